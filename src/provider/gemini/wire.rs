//! Gemini's generateContent as it goes over the wire. What comes in is read as leniently as it is
//! written: every field may be missing or null, and unknown ones are passed over.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer, ser::Error as _};
use serde_json::value::RawValue;

use crate::provider::http::lenient::{Number, Piece, Word};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Speaker {
    User,
    Model,
}

/// What one says before the other one does.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Content<'a> {
    pub(super) role: Speaker,
    pub(super) parts: Vec<Part<'a>>,
}

/// A part of a request.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Part<'a> {
    /// One that contextd writes.
    Own(OwnPart<'a>),
    /// One of the service's own, as it came.
    Item(Json<'a>),
}

/// A part and what signs it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OwnPart<'a> {
    #[serde(flatten)]
    pub(super) data: Data<'a>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) thought: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thought_signature: Option<Cow<'a, str>>,
}

/// What a part holds.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Data<'a> {
    Text(Cow<'a, str>),
    InlineData(InlineData),
    FileData(FileData<'a>),
    FunctionCall(Call<'a>),
    FunctionResponse(Response<'a>),
}

/// Content here, in base64.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InlineData {
    pub(super) mime_type: String,
    pub(super) data: String,
}

/// Content at an address.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileData<'a> {
    pub(super) mime_type: String,
    pub(super) file_uri: &'a str,
}

/// A call in a request.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Call<'a> {
    /// The service's own id, where it gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) name: Cow<'a, str>,
    pub(super) args: Json<'a>,
}

/// The result of a call.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Response<'a> {
    /// That of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) name: Cow<'a, str>,
    pub(super) response: Outcome,
    /// Media that the tool gave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<Part<'a>>,
}

/// What a tool gave, in words.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Outcome {
    Output(String),
    Error(String),
}

/// A tool of the host.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Function<'a> {
    pub(super) name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) description: &'a str,
    /// The schema as the host wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parameters_json_schema: Option<Json<'a>>,
}

/// Tools of a request.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Tools<'a> {
    /// The host's.
    Host {
        #[serde(rename = "functionDeclarations")]
        functions: Vec<Function<'a>>,
    },
    /// One of the service's, as the host wrote it.
    Service(Json<'a>),
}

/// JSON as another one wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Json<'a>(pub(super) Cow<'a, str>);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'a> Part<'a> {
    /// A part that nothing signs.
    pub(super) fn new(data: Data<'a>) -> Self {
        Self::Own(OwnPart {
            data,
            thought: false,
            thought_signature: None,
        })
    }

    /// A plain text.
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::new(Data::Text(text.into()))
    }
}

/// One event of an answer: what is new.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Chunk {
    pub(super) candidates: Option<Vec<Candidate>>,
    pub(super) prompt_feedback: Option<Feedback>,
    pub(super) usage_metadata: Option<Box<RawValue>>,
    pub(super) model_version: Word,
    pub(super) response_id: Word,
    pub(super) error: Option<Box<RawValue>>,
}

/// What the service says about the prompt.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Feedback {
    pub(super) block_reason: Word,
}

/// One of several answers.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Candidate {
    pub(super) index: Option<Number>,
    pub(super) content: Option<Said>,
    pub(super) finish_reason: Word,
    pub(super) grounding_metadata: Option<Box<RawValue>>,
    pub(super) url_context_metadata: Option<Box<RawValue>>,
    pub(super) citation_metadata: Option<Box<RawValue>>,
}

/// What an answer says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Said {
    pub(super) parts: Option<Vec<Box<RawValue>>>,
}

/// A part of an answer, as far as it is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SaidPart {
    pub(super) text: Option<Piece>,
    pub(super) thought: Option<bool>,
    pub(super) thought_signature: Word,
    pub(super) function_call: Option<FunctionCall>,
}

/// A call, or more of one.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FunctionCall {
    pub(super) id: Word,
    pub(super) name: Word,
    pub(super) args: Option<Box<RawValue>>,
    pub(super) partial_args: Option<Vec<PartialArg>>,
    pub(super) will_continue: Option<bool>,
}

/// A piece of arguments: a value, or more of a text, and where it stands.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PartialArg {
    pub(super) json_path: Word,
    pub(super) string_value: Option<Piece>,
    pub(super) number_value: Option<Box<RawValue>>,
    pub(super) bool_value: Option<Box<RawValue>>,
    /// A word that stands for null, or null itself.
    pub(super) null_value: Option<Box<RawValue>>,
}

/// What an answer rests on.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Grounding {
    pub(super) grounding_chunks: Option<Vec<Box<RawValue>>>,
    pub(super) grounding_supports: Option<Vec<Support>>,
}

/// Which passage rests on which sources.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Support {
    pub(super) segment: Option<Segment>,
    pub(super) grounding_chunk_indices: Option<Vec<Number>>,
}

/// A passage of the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Segment {
    pub(super) start_index: Option<Number>,
    pub(super) end_index: Option<Number>,
    pub(super) text: Word,
}

/// A source: its one field names its kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GroundingChunk {
    pub(super) web: Option<Source>,
    pub(super) retrieved_context: Option<Source>,
    pub(super) maps: Option<Source>,
}

/// Where a source is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Source {
    pub(super) uri: Word,
    pub(super) title: Word,
    /// The words that were found there.
    pub(super) text: Word,
}
