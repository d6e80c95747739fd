//! The Responses API as it goes over the wire. What comes in is read as leniently as it is written:
//! every field may be missing, null or of another type.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::http::lenient::{Number, Word};

/// An event of an answer, with the fields of all of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub(super) kind: Option<Word>,
    /// Which item of the answer. Ids do not tell it: some services change them within an item.
    pub(super) output_index: Option<Number>,
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
