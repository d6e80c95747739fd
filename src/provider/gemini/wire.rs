//! The wire format of Gemini's generateContent. Responses are parsed leniently: every field may be
//! missing or null, and unknown fields are ignored.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::provider::{
    body::Json,
    http::lenient::{LenientString, Number, Piece},
};

/// The role of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WireRole {
    User,
    Model,
}

/// A content: the consecutive parts of one role.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Content<'a> {
    pub(super) role: WireRole,
    pub(super) parts: Vec<Part<'a>>,
}

/// A part of a request.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Part<'a> {
    /// A part that contextd writes.
    Own(OwnPart<'a>),
    /// A provider item, unchanged.
    Item(Json<'a>),
}

/// A part and its signature.
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

/// The data of a part.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Data<'a> {
    Text(Cow<'a, str>),
    InlineData(InlineData),
    FileData(FileData<'a>),
    FunctionCall(Call<'a>),
    FunctionResponse(Response<'a>),
}

/// Inline content in base64.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InlineData {
    pub(super) mime_type: String,
    pub(super) data: String,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileData<'a> {
    pub(super) mime_type: String,
    pub(super) file_uri: &'a str,
}

/// A call in a request.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Call<'a> {
    /// The id that the service gave the call, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) name: Cow<'a, str>,
    pub(super) args: Json<'a>,
}

/// The result of a call.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Response<'a> {
    /// The id of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) name: Cow<'a, str>,
    /// The text under `output` or `error`.
    pub(super) response: BTreeMap<&'static str, String>,
    /// Media in the tool result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<Part<'a>>,
}

/// A host tool.
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

impl<'a> Part<'a> {
    /// A part without a signature.
    pub(super) fn new(data: Data<'a>) -> Self {
        Self::Own(OwnPart { data, thought: false, thought_signature: None })
    }

    /// A text part.
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::new(Data::Text(text.into()))
    }
}

/// One event of a response, with the new content.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Chunk {
    pub(super) candidates: Option<Vec<Candidate>>,
    pub(super) prompt_feedback: Option<Feedback>,
    pub(super) usage_metadata: Option<Box<RawValue>>,
    pub(super) model_version: LenientString,
    pub(super) response_id: LenientString,
    pub(super) error: Option<Box<RawValue>>,
}

/// Feedback of the service on the prompt.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Feedback {
    pub(super) block_reason: LenientString,
}

/// One of several candidate responses.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Candidate {
    pub(super) index: Number,
    pub(super) content: Option<CandidateContent>,
    pub(super) finish_reason: LenientString,
    pub(super) grounding_metadata: Option<Box<RawValue>>,
    pub(super) url_context_metadata: Option<Box<RawValue>>,
    pub(super) citation_metadata: Option<Box<RawValue>>,
}

/// The content of a response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CandidateContent {
    pub(super) parts: Option<Vec<Box<RawValue>>>,
}

/// A part of a response. Only these fields are parsed.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ResponsePart {
    pub(super) text: Option<Piece>,
    pub(super) thought: Option<bool>,
    pub(super) thought_signature: LenientString,
    pub(super) function_call: Option<FunctionCall>,
}

/// A call, or a continuation of one.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FunctionCall {
    pub(super) id: LenientString,
    pub(super) name: LenientString,
    pub(super) args: Option<Box<RawValue>>,
    pub(super) partial_args: Option<Vec<PartialArg>>,
    pub(super) will_continue: Option<bool>,
}

/// A piece of streamed arguments: a value or more of a text, with its JSON path.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PartialArg {
    pub(super) json_path: LenientString,
    pub(super) string_value: Option<Piece>,
    pub(super) number_value: Option<Box<RawValue>>,
    pub(super) bool_value: Option<Box<RawValue>>,
    /// The name of a null value, or null itself.
    pub(super) null_value: Option<Box<RawValue>>,
}

/// The grounding report of a response.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Grounding {
    pub(super) grounding_chunks: Option<Vec<Box<RawValue>>>,
    pub(super) grounding_supports: Option<Vec<Support>>,
}

/// A passage and the sources that support it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Support {
    pub(super) segment: Option<Segment>,
    pub(super) grounding_chunk_indices: Option<Vec<Number>>,
}

/// A passage of the response.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Segment {
    pub(super) start_index: Option<Number>,
    pub(super) end_index: Option<Number>,
    pub(super) text: LenientString,
}

/// A source. Its single field determines its kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GroundingChunk {
    pub(super) web: Option<Source>,
    pub(super) retrieved_context: Option<Source>,
    pub(super) maps: Option<Source>,
}

/// The location of a source.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Source {
    pub(super) uri: LenientString,
    pub(super) title: LenientString,
    /// The text that was retrieved from the source.
    pub(super) text: LenientString,
}
