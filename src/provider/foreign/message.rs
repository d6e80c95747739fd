//! Messages in neutral form, and what is wrong with them.

use std::fmt;

use crate::model::{Citation, Role};

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
    /// Halves of characters in it became U+FFFD.
    pub sanitized: bool,
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

/// A picture, sound or file.
#[derive(Clone, PartialEq, Eq)]
pub struct ForeignMedia {
    /// Its MIME type.
    pub media_type: String,
    /// Name of the file; empty if it has none.
    pub filename: String,
    /// Where its content is.
    pub source: ForeignSource,
}

/// Where content is.
#[derive(Clone, PartialEq, Eq)]
pub enum ForeignSource {
    /// Here.
    Data(Vec<u8>),
    /// At this address.
    Url(String),
}

impl fmt::Debug for ForeignMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            ForeignSource::Data(data) => write!(f, "{} of {} bytes", self.media_type, data.len()),
            ForeignSource::Url(url) => write!(f, "{} at {url}", self.media_type),
        }
    }
}

impl fmt::Debug for ForeignSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(data) => write!(f, "{} bytes", data.len()),
            Self::Url(url) => f.write_str(url),
        }
    }
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

impl ForeignOutcome {
    /// The outcome in a shape that says no more than whether the tool failed.
    pub(in crate::provider) fn of(failed: bool) -> Self {
        if failed { Self::Error } else { Self::Success }
    }
}

impl ForeignPart {
    /// A part with nothing attached.
    pub(in crate::provider) fn new(at: &str, content: ForeignContent) -> Self {
        Self {
            at: at.to_owned(),
            content,
            citations: Vec::new(),
            metadata: None,
            sanitized: false,
        }
    }

    /// The same with what a kind of provider attached, where it is something.
    #[must_use]
    pub(in crate::provider) fn attached(
        self,
        kind: &str,
        own: serde_json::Map<String, serde_json::Value>,
    ) -> Self {
        let metadata = (!own.is_empty()).then(|| serde_json::json!({ kind: own }).to_string());
        Self { metadata, ..self }
    }

    /// A text. `None` if it is empty.
    pub(in crate::provider) fn text(at: &str, text: String) -> Option<Self> {
        (!text.is_empty()).then(|| Self::new(at, ForeignContent::Text(text)))
    }
}
