//! The wire format of the Responses API. Responses are parsed leniently: every field may be
//! missing, null or of another type.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::provider::http::lenient::{LenientString, Number};

/// An event of a response, with the fields of all event types.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub(super) kind: LenientString,
    /// Number of the item in the response. Ids cannot identify it: some services change them within
    /// an item.
    pub(super) output_index: Number,
    /// Sequence number of the event.
    pub(super) sequence_number: Number,
    /// Id of the item. Some services send it instead of `output_index`.
    pub(super) item_id: Option<LenientString>,
    /// Index of the content of a message or of unencrypted reasoning.
    pub(super) content_index: Number,
    /// Index of the part of a summary.
    pub(super) summary_index: Number,
    pub(super) delta: Option<Box<RawValue>>,
    pub(super) text: Option<Box<RawValue>>,
    pub(super) refusal: Option<Box<RawValue>>,
    pub(super) arguments: Option<Box<RawValue>>,
    pub(super) input: Option<Box<RawValue>>,
    pub(super) annotation: Option<Box<RawValue>>,
    pub(super) item: Option<Box<RawValue>>,
    pub(super) response: Option<Box<RawValue>>,
    pub(super) error: Option<Box<RawValue>>,
}

/// The whole response, as carried by the first and last events.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    pub(super) id: LenientString,
    pub(super) model: LenientString,
    pub(super) status: LenientString,
    pub(super) service_tier: LenientString,
    pub(super) error: Option<Box<RawValue>>,
    pub(super) incomplete_details: Option<Box<RawValue>>,
    pub(super) usage: Option<Box<RawValue>>,
    pub(super) output: Option<Box<RawValue>>,
}

/// An item of a response, with the fields of all item types that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Item {
    #[serde(rename = "type")]
    pub(super) kind: LenientString,
    pub(super) id: LenientString,
    pub(super) phase: LenientString,
    pub(super) call_id: LenientString,
    pub(super) name: LenientString,
    pub(super) arguments: Option<Box<RawValue>>,
    pub(super) input: Option<Box<RawValue>>,
    /// The program that made the call, for a programmatic tool call.
    pub(super) caller: Option<Box<RawValue>>,
    pub(super) content: Option<Box<RawValue>>,
    pub(super) summary: Option<Box<RawValue>>,
    pub(super) encrypted_content: LenientString,
}

/// A part of a message, of a summary or of unencrypted reasoning.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContentPart {
    pub(super) text: Option<Box<RawValue>>,
    pub(super) refusal: Option<Box<RawValue>>,
    pub(super) annotations: Option<Box<RawValue>>,
}

/// A citation of a text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Annotation {
    pub(super) url: Option<LenientString>,
    pub(super) title: Option<LenientString>,
    pub(super) filename: Option<LenientString>,
    /// In characters.
    pub(super) start_index: Option<Number>,
    /// In characters.
    pub(super) end_index: Option<Number>,
    /// Position of a file citation, in characters.
    pub(super) index: Option<Number>,
}

/// An item of a request.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Input<'a> {
    /// A message item.
    Message(Message<'a>),
    /// Reasoning of the model that is called.
    Reasoning(Reasoning<'a>),
    /// A call of a function tool.
    FunctionCall {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        call_id: &'a str,
        name: Cow<'a, str>,
        arguments: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<Value>,
    },
    /// The result of a function call.
    FunctionCallOutput { call_id: &'a str, output: Text<'a> },
    /// A call of a custom tool, whose input is a text.
    CustomToolCall {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        call_id: &'a str,
        name: Cow<'a, str>,
        input: String,
    },
    /// The result of a custom tool call.
    CustomToolCallOutput { call_id: &'a str, output: Text<'a> },
    /// A provider item, unchanged.
    #[serde(untagged)]
    Own(Box<RawValue>),
}

/// A message item.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Message<'a> {
    pub(super) role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// Set only for a message with an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<String>,
    pub(super) content: Text<'a>,
}

/// Reasoning that is sent back.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Reasoning<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) summary: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<[Content<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) encrypted_content: Option<String>,
}

/// A text, or a list of contents.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Text<'a> {
    One(Cow<'a, str>),
    Several(Vec<Content<'a>>),
}

/// A content of a message, of a result or of reasoning.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Content<'a> {
    /// A text that the model reads.
    InputText { text: Cow<'a, str> },
    /// A text that the model wrote.
    OutputText {
        text: Cow<'a, str>,
        /// A required field.
        annotations: [(); 0],
    },
    /// A part of a summary of reasoning.
    SummaryText { text: Cow<'a, str> },
    /// Unencrypted reasoning.
    ReasoningText { text: Cow<'a, str> },
    /// A refusal that the model wrote.
    Refusal { refusal: Cow<'a, str> },
    /// An image by URL, possibly a `data:` URL.
    InputImage { image_url: Cow<'a, str>, detail: &'static str },
    /// A file by URL or as a `data:` URL.
    InputFile {
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_data: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_url: Option<&'a str>,
    },
}

impl<'a> Content<'a> {
    /// A text that the model reads.
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::InputText { text: text.into() }
    }
}

/// A host tool in a request.
#[derive(Debug, Serialize)]
pub(super) struct Tool<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) description: &'a str,
    /// The schema as the host wrote it.
    pub(super) parameters: &'a RawValue,
    /// Always set, because the service defaults to strict schemas.
    pub(super) strict: bool,
}
