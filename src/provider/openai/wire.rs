//! The wire format of Chat Completions. Responses are parsed leniently: nearly every field may be
//! missing or null.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value, value::RawValue};

use crate::provider::http::lenient::{LenientString, Number, Piece};

/// A message of a request.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(super) enum Message<'a> {
    /// A user message.
    User { content: UserContent<'a> },
    /// An assistant message.
    Assistant(Assistant<'a>),
    /// The result of a tool call.
    Tool { tool_call_id: &'a str, content: Cow<'a, str> },
    /// Instructions. Some models support the role `developer` for them.
    #[serde(untagged)]
    Instructions { role: &'static str, content: Cow<'a, str> },
}

/// The content of a user message.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum UserContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<UserPart<'a>>),
}

/// A part of a user message.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum UserPart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: Url<'a> },
    InputAudio { input_audio: Audio },
    File { file: File<'a> },
}

impl<'a> UserPart<'a> {
    /// A text part.
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// The URL of an image, possibly a `data:` URL.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Url<'a> {
    pub(super) url: Cow<'a, str>,
}

/// Audio in base64.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Audio {
    pub(super) data: String,
    pub(super) format: &'static str,
}

/// A file as a `data:` URL.
#[derive(Debug, Clone, Serialize)]
pub(super) struct File<'a> {
    pub(super) filename: &'a str,
    pub(super) file_data: String,
}

/// An assistant message. Its text is sent as a plain string, because some models imitate an array.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Assistant<'a> {
    /// Null if there are only calls.
    pub(super) content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refusal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) reasoning_details: Vec<Map<String, Value>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<Call<'a>>,
    /// Images that the model generated, for OpenRouter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) images: Vec<UserPart<'a>>,
}

/// A call in a request.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Call<'a> {
    pub(super) id: &'a str,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra_content: Option<Value>,
}

/// The function of a call.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Function<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) arguments: &'a str,
}

/// A tool in a request.
#[derive(Debug, Serialize)]
pub(super) struct Tool<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) function: ToolFunction<'a>,
}

/// The function of a tool.
#[derive(Debug, Serialize)]
pub(super) struct ToolFunction<'a> {
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) description: &'a str,
    /// The schema as the host wrote it.
    pub(super) parameters: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strict: Option<bool>,
}

/// One event of a response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk {
    pub(super) id: LenientString,
    pub(super) model: LenientString,
    pub(super) object: LenientString,
    pub(super) service_tier: LenientString,
    pub(super) choices: Option<Vec<Choice>>,
    pub(super) usage: Option<Box<RawValue>>,
    /// Groq's extension field, which may hold `usage`.
    pub(super) x_groq: Option<Box<RawValue>>,
    pub(super) error: Option<Box<RawValue>>,
    /// Perplexity's search results and their URLs.
    pub(super) search_results: Option<Box<RawValue>>,
    pub(super) citations: Option<Box<RawValue>>,
}

/// One of several choices.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    pub(super) index: Number,
    pub(super) delta: Option<Delta>,
    pub(super) finish_reason: LenientString,
    pub(super) native_finish_reason: LenientString,
}

/// The new content of a choice.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta {
    pub(super) content: Option<Content>,
    pub(super) refusal: Option<Piece>,
    /// Citations of the text.
    pub(super) annotations: Option<Box<RawValue>>,
    pub(super) reasoning: Option<Piece>,
    pub(super) reasoning_content: Option<Piece>,
    pub(super) reasoning_details: Option<Vec<DetailFragment>>,
    pub(super) tool_calls: Option<Vec<Fragment>>,
    /// Images that the model generated.
    pub(super) images: Option<Vec<Box<RawValue>>>,
    /// The only call of a response, in the form that preceded `tool_calls`.
    pub(super) function_call: Option<FunctionFragment>,
}

/// A fragment of OpenRouter's reasoning details.
pub(super) type DetailFragment = BTreeMap<String, Box<RawValue>>;

/// Text, or Mistral's parts.
#[derive(Debug)]
pub(super) enum Content {
    Text(Piece),
    Parts(Vec<Part>),
}

/// A part of Mistral's content. Other kinds of parts are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Part {
    #[serde(rename = "type")]
    pub(super) kind: LenientString,
    pub(super) text: Option<Piece>,
    pub(super) thinking: Option<Content>,
    /// An image that the model generated.
    pub(super) image_url: Option<Box<RawValue>>,
}

impl<'de> Deserialize<'de> for Content {
    /// A string is deserialized as bytes, see [`Piece`]. For an array, `serde_json` calls
    /// `visit_seq` instead.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> de::Visitor<'de> for Either {
            type Value = Content;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or parts")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Content, E> {
                Piece::deserialize(de::value::BytesDeserializer::new(bytes)).map(Content::Text)
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, parts: A) -> Result<Content, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(parts)).map(Content::Parts)
            }
        }
        deserializer.deserialize_bytes(Either)
    }
}

/// A fragment of a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Fragment {
    pub(super) index: Number,
    pub(super) id: LenientString,
    pub(super) function: Option<FunctionFragment>,
    pub(super) extra_content: Option<Box<RawValue>>,
}

/// A fragment of the function of a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionFragment {
    pub(super) name: LenientString,
    /// A string; some services send the object itself.
    pub(super) arguments: Option<Box<RawValue>>,
}
