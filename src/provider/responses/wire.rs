//! The Responses API as it goes over the wire. What comes in is read as leniently as it is written:
//! every field may be missing, null or of another type.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::provider::http::lenient::{Number, Word};

/// An event of an answer, with the fields of all of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub(super) kind: Option<Word>,
    /// Which item of the answer. Ids do not tell it: some services change them within an item.
    pub(super) output_index: Option<Number>,
    /// Which event of the answer.
    pub(super) sequence_number: Option<Number>,
    /// The id of the item; some services send it alone.
    pub(super) item_id: Option<Word>,
    /// Which content of a message or of raw reasoning.
    pub(super) content_index: Option<Number>,
    /// Which part of a summary.
    pub(super) summary_index: Option<Number>,
    pub(super) delta: Option<Box<RawValue>>,
    pub(super) text: Option<Box<RawValue>>,
    pub(super) refusal: Option<Box<RawValue>>,
    pub(super) arguments: Option<Box<RawValue>>,
    pub(super) input: Option<Box<RawValue>>,
    pub(super) part: Option<Box<RawValue>>,
    pub(super) annotation: Option<Box<RawValue>>,
    pub(super) item: Option<Box<RawValue>>,
    pub(super) response: Option<Box<RawValue>>,
    pub(super) error: Option<Box<RawValue>>,
}

/// The whole answer, as events at its beginning and its end carry it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    pub(super) id: Option<Word>,
    pub(super) model: Option<Word>,
    pub(super) status: Option<Word>,
    pub(super) service_tier: Option<Word>,
    pub(super) error: Option<Box<RawValue>>,
    pub(super) incomplete_details: Option<Box<RawValue>>,
    pub(super) usage: Option<Box<RawValue>>,
    pub(super) output: Option<Box<RawValue>>,
}

/// Why an answer is incomplete.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IncompleteDetails {
    pub(super) reason: Option<Word>,
}

/// An item of an answer, with the fields of those that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Item {
    #[serde(rename = "type")]
    pub(super) kind: Option<Word>,
    pub(super) id: Option<Word>,
    pub(super) phase: Option<Word>,
    pub(super) call_id: Option<Word>,
    pub(super) name: Option<Word>,
    pub(super) arguments: Option<Box<RawValue>>,
    pub(super) input: Option<Box<RawValue>>,
    /// Which program made the call, where a program of the model's did.
    pub(super) caller: Option<Box<RawValue>>,
    pub(super) content: Option<Box<RawValue>>,
    pub(super) summary: Option<Box<RawValue>>,
    pub(super) encrypted_content: Option<Word>,
}

/// A piece of a message, of a summary or of raw reasoning.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContentPart {
    pub(super) text: Option<Box<RawValue>>,
    pub(super) refusal: Option<Box<RawValue>>,
    pub(super) annotations: Option<Box<RawValue>>,
}

/// Where words of an answer come from.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Annotation {
    pub(super) url: Option<Word>,
    pub(super) title: Option<Word>,
    pub(super) filename: Option<Word>,
    /// In characters.
    pub(super) start_index: Option<Number>,
    /// In characters.
    pub(super) end_index: Option<Number>,
    /// Where a file is cited, in characters.
    pub(super) index: Option<Number>,
}

/// An item of a request.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Input<'a> {
    /// A message of a role.
    Message(Message<'a>),
    /// Reasoning of the model that is asked.
    Reasoning(Reasoning),
    /// A call of a tool.
    FunctionCall {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        call_id: &'a str,
        name: Cow<'a, str>,
        arguments: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<Value>,
    },
    /// The result of such a call.
    FunctionCallOutput { call_id: &'a str, output: Text<'a> },
    /// A call of a tool whose input is a text.
    CustomToolCall {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        call_id: &'a str,
        name: Cow<'a, str>,
        input: String,
    },
    /// The result of such a call.
    CustomToolCallOutput { call_id: &'a str, output: Text<'a> },
    /// An item of the service's own, as it came.
    #[serde(untagged)]
    Own(Box<RawValue>),
}

/// A message of a role.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Message<'a> {
    pub(super) role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// A message with an id has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<String>,
    pub(super) content: Text<'a>,
}

/// Reasoning as it goes back.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Reasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) summary: Vec<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<[RawReasoning; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) encrypted_content: Option<String>,
}

/// Reasoning in plain text.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum RawReasoning {
    /// Its words.
    ReasoningText { text: String },
}

/// A part of a summary.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Summary {
    /// Its words.
    SummaryText { text: String },
}

/// A text, or several contents.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Text<'a> {
    /// One.
    One(Cow<'a, str>),
    /// Several.
    Several(Vec<Content<'a>>),
}

/// A content of a message or a result.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Content<'a> {
    /// A text that the model reads.
    InputText { text: Cow<'a, str> },
    /// A text that the model wrote.
    OutputText {
        text: Cow<'a, str>,
        /// Must be there.
        annotations: [(); 0],
    },
    /// Its refusal.
    Refusal { refusal: Cow<'a, str> },
    /// A picture, by its address or as a `data:` address.
    InputImage {
        image_url: Cow<'a, str>,
        detail: &'static str,
    },
    /// A file, by its address or as a `data:` address.
    InputFile {
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_data: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_url: Option<&'a str>,
    },
}

/// A tool in a request.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Tool<'a> {
    /// That the host runs.
    Host {
        #[serde(rename = "type")]
        kind: &'static str,
        name: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        description: &'a str,
        /// The schema as the host wrote it.
        parameters: &'a RawValue,
        /// Always said: the service takes schemas strictly where it is not.
        strict: bool,
    },
    /// That the service runs, as the host wrote it.
    Provider(&'a RawValue),
}
