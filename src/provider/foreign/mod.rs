//! Messages in the shapes of other APIs, read into neutral ones. Pure: everything that is wrong is
//! noted with its path, and content is handed out as it came.
//!
//! Each shape is read by the `import` module of its protocol.

mod media;
mod node;

pub use media::{ForeignMedia, ForeignSource};
pub(super) use media::{at_address, encoded, from_data_or_url, inline};
pub(super) use node::{Node, Object};

use crate::{
    model::{Citation, PromptShape, Role},
    provider::{ai_sdk, anthropic, gemini, openai, responses},
};

/// Flaws that are noted; far more than are reported.
const MOST_FLAWS: usize = 1_000;

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Foreign {
    /// The messages in order; none of them is empty.
    pub messages: Vec<ForeignMessage>,
    /// What is wrong, in order.
    pub flaws: Vec<ForeignFlaw>,
}

/// A message in neutral form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignMessage {
    /// Where it begins, such as `[3]`.
    pub at: String,
    /// Who speaks.
    pub role: Role,
    /// Its parts in order.
    pub parts: Vec<ForeignPart>,
}

/// A part in neutral form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignPart {
    /// Where it stands, such as `[3].content[1]`.
    pub at: String,
    /// What it is.
    pub content: ForeignContent,
    /// Sources of a text.
    pub citations: Vec<Citation>,
    /// What was attached to it, a JSON object keyed by kind of provider.
    pub metadata: Option<String>,
}

/// What a part is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignContent {
    /// Text.
    Text(String),
    /// What the model thought.
    Reasoning {
        /// What is shown of it.
        text: String,
        /// It was hidden on purpose.
        redacted: bool,
    },
    /// Words of refusal.
    Refusal(String),
    /// A picture, sound or file.
    Media(ForeignMedia),
    /// A call of a tool.
    Call {
        /// Its id.
        id: String,
        /// The tool.
        name: String,
        /// The arguments as they are written.
        arguments: String,
    },
    /// The result of a call.
    Result {
        /// The call.
        call: String,
        /// What the tool gave.
        given: Vec<ForeignGiven>,
        /// How the call ended.
        outcome: ForeignOutcome,
    },
    /// Something that only its service can read.
    Item {
        /// The service's name of its type.
        kind: String,
        /// The item as it came.
        json: String,
        /// A line for people.
        title: String,
        /// Who alone can read it. `None` means the provider of the model that wrote the messages.
        reader: Option<&'static str>,
    },
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForeignOutcome {
    /// With what the tool gave.
    #[default]
    Success,
    /// The tool failed.
    Error,
    /// A person denied the call.
    Denied,
}

/// A piece of what a tool gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignGiven {
    /// Text.
    Text(String),
    /// A picture, sound or file.
    Media(ForeignMedia),
}

/// Something that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignFlaw {
    /// Where, such as `[3].content[1].type`; empty for all of it.
    pub at: String,
    /// What kind of mistake it is.
    pub kind: FlawKind,
    /// What is expected, for people.
    pub why: String,
}

/// A kind of mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlawKind {
    /// It must be there.
    Missing,
    /// It has another type or form.
    Malformed,
    /// It is well-formed, and cannot be taken.
    Unsupported,
    /// There is too much of it.
    TooLarge,
    /// It is no JSON.
    NotJson,
}

/// Reads messages of that shape. Calls that have no id in it get one that begins with `prefix`. A
/// shape that is no other API's holds no messages.
pub fn read(shape: PromptShape, json: &str, prefix: &str) -> Foreign {
    let mut reading = Reading {
        foreign: Foreign::default(),
        prefix,
        made: 0,
    };
    let Some(elements) = elements(json, &mut reading) else {
        return reading.foreign;
    };
    match shape {
        PromptShape::OpenAiChat => openai::import::read(&elements, &mut reading),
        PromptShape::OpenAiResponses => responses::import::read(&elements, &mut reading),
        PromptShape::Anthropic => anthropic::import::read(&elements, &mut reading),
        PromptShape::Gemini => gemini::import::read(&elements, &mut reading),
        PromptShape::AiSdk => ai_sdk::import::read(&elements, &mut reading),
        PromptShape::Neutral | PromptShape::Native => {}
    }
    let Foreign { messages, flaws } = &reading.foreign;
    if messages.is_empty() && flaws.is_empty() {
        reading.note(String::new(), FlawKind::Missing, "must hold a message");
    }
    reading.foreign
}

/// The elements of the array.
fn elements<'a>(json: &'a str, reading: &mut Reading<'_>) -> Option<Vec<Node<'a>>> {
    let Ok(raw) = serde_json::from_str(json) else {
        reading.note(String::new(), FlawKind::NotJson, "must be a JSON array");
        return None;
    };
    let root = Node::root(raw);
    if !root.is_array() {
        let why = "must be the JSON array of messages alone, without the request around it";
        reading.note(String::new(), FlawKind::Malformed, why);
        return None;
    }
    Some(root.elements(reading))
}

/// What was read so far.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    foreign: Foreign,
    /// What ids begin with that are made here.
    prefix: &'a str,
    /// How many were made.
    made: usize,
}

impl Reading<'_> {
    /// Notes something wrong.
    pub(super) fn note(&mut self, at: String, kind: FlawKind, why: impl Into<String>) {
        if self.foreign.flaws.len() < MOST_FLAWS {
            self.foreign.flaws.push(ForeignFlaw {
                at,
                kind,
                why: why.into(),
            });
        }
    }

    /// Adds a message, unless nothing is in it: services write empty answers, and need none back.
    pub(super) fn add(&mut self, at: &str, role: Role, parts: Vec<ForeignPart>) {
        if !parts.is_empty() {
            self.foreign.messages.push(ForeignMessage {
                at: at.to_owned(),
                role,
                parts,
            });
        }
    }

    /// An id for a call that has none.
    pub(super) fn make_id(&mut self) -> String {
        self.made += 1;
        format!("{}{}", self.prefix, self.made)
    }

    /// Notes a role that the shape does not have.
    pub(super) fn unknown_role(&mut self, object: &Object<'_>, role: &str, known: &str) {
        if !role.is_empty() {
            let why = format!("must be {known}");
            self.note(object.path("role"), FlawKind::Unsupported, why);
        }
    }

    /// Notes a type that cannot be taken there.
    pub(super) fn unknown_type(&mut self, object: &Object<'_>, known: &str) {
        let why = format!("must be {known} here");
        self.note(object.path("type"), FlawKind::Unsupported, why);
    }
}

impl ForeignOutcome {
    /// The outcome in a shape that says no more than whether the tool failed.
    pub(super) fn of(failed: bool) -> Self {
        if failed { Self::Error } else { Self::Success }
    }
}

impl ForeignPart {
    /// A part with nothing attached.
    pub(super) fn new(at: &str, content: ForeignContent) -> Self {
        Self {
            at: at.to_owned(),
            content,
            citations: Vec::new(),
            metadata: None,
        }
    }

    /// The same with what a kind of provider attached, where it is something.
    #[must_use]
    pub(super) fn attached(
        self,
        kind: &str,
        own: serde_json::Map<String, serde_json::Value>,
    ) -> Self {
        let metadata = (!own.is_empty()).then(|| serde_json::json!({ kind: own }).to_string());
        Self { metadata, ..self }
    }

    /// A text. `None` if it is empty.
    pub(super) fn text(at: &str, text: String) -> Option<Self> {
        (!text.is_empty()).then(|| Self::new(at, ForeignContent::Text(text)))
    }
}

#[cfg(test)]
mod tests;
