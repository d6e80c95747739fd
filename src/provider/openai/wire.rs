//! Chat Completions as it goes over the wire. What comes in is read as leniently as it is written: nearly every field may be
//! missing or null.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

/// A message of a request.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(super) enum Message<'a> {
    /// Instructions.
    System { content: &'a str },
    /// Instructions, for models that know the role.
    Developer { content: &'a str },
    /// The user.
    User { content: UserContent<'a> },
    /// The model.
    Assistant(Assistant<'a>),
    /// A tool's result.
    Tool { tool_call_id: &'a str, content: String },
}

/// What a user says: a text, or several.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum UserContent<'a> {
    /// One.
    Text(&'a str),
    /// Several.
    Parts(Vec<UserPart<'a>>),
}

/// A part of what a user says.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum UserPart<'a> {
    /// A text.
    Text { text: Cow<'a, str> },
    /// A picture.
    ImageUrl { image_url: Url<'a> },
    /// A sound.
    InputAudio { input_audio: Audio },
    /// A file.
    File { file: File<'a> },
}

/// Where a picture is, or the picture itself as a `data:` address.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Url<'a> {
    pub(super) url: Cow<'a, str>,
}

/// A sound in base64.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Audio {
    pub(super) data: String,
    pub(super) format: &'static str,
}

/// A file as a `data:` address.
#[derive(Debug, Clone, Serialize)]
pub(super) struct File<'a> {
    pub(super) filename: &'a str,
    pub(super) file_data: String,
}

/// What the model said. Its text is a plain string: some models imitate an array.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Assistant<'a> {
    /// Null beside calls.
    pub(super) content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refusal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) reasoning_details: Vec<Map<String, Value>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<Call<'a>>,
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

/// What is called.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
}

/// A tool in a request.
#[derive(Debug, Serialize)]
pub(super) struct Tool<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) function: ToolFunction<'a>,
}

/// What a tool is.
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

/// One event of an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk {
    pub(super) id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) object: Option<String>,
    pub(super) choices: Option<Vec<Choice>>,
    pub(super) usage: Option<Box<RawValue>>,
    pub(super) x_groq: Option<Groq>,
    pub(super) error: Option<Value>,
}

/// Groq's own corner.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Groq {
    pub(super) usage: Option<Box<RawValue>>,
}

/// One of several answers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    pub(super) index: Option<i64>,
    pub(super) delta: Option<Delta>,
    pub(super) finish_reason: Option<String>,
    pub(super) native_finish_reason: Option<String>,
}

/// What is new.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta {
    pub(super) content: Option<Content>,
    pub(super) refusal: Option<String>,
    pub(super) reasoning: Option<String>,
    pub(super) reasoning_content: Option<String>,
    pub(super) reasoning_details: Option<Vec<Map<String, Value>>>,
    pub(super) tool_calls: Option<Vec<Fragment>>,
}

/// Text, or Mistral's parts.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    /// Text.
    Text(String),
    /// Parts.
    Parts(Vec<Part>),
}

/// A part of Mistral's content; another kind of part says nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Part {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) text: Option<String>,
    pub(super) thinking: Option<Thinking>,
}

/// What is in a part that thinks.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Thinking {
    /// Text.
    Text(String),
    /// Parts of it.
    Parts(Vec<ThinkingPart>),
}

/// A piece of thinking.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ThinkingPart {
    pub(super) text: Option<String>,
}

/// A piece of a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Fragment {
    pub(super) index: Option<i64>,
    pub(super) id: Option<String>,
    pub(super) function: Option<FunctionFragment>,
    pub(super) extra_content: Option<Value>,
}

/// A piece of what is called.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionFragment {
    pub(super) name: Option<String>,
    /// A string; from some services the object itself.
    pub(super) arguments: Option<Box<RawValue>>,
}
