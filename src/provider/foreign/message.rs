//! Neutral messages as read from other formats, and the defects found while reading.

use std::fmt;

use serde_json::{Map, Value};

use crate::{
    model::{Citation, ProviderItem, Role, ToolOutcome},
    provider::authorship,
};

/// The result of reading messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForeignConversation {
    /// The messages, in order. None of them is empty.
    pub messages: Vec<ForeignMessage>,
    /// The defects, in order.
    pub flaws: Vec<ForeignFlaw>,
}

/// A message in neutral form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignMessage {
    /// Path of the message in the source, such as `[3]`.
    pub at: String,
    pub role: Role,
    pub parts: Vec<ForeignPart>,
}

/// A part in neutral form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignPart {
    /// Path of the part in the source, such as `[3].content[1]`.
    pub at: String,
    pub content: ForeignContent,
    /// Citations of a text.
    pub citations: Vec<Citation>,
    /// Attached metadata: a JSON object keyed by kind of provider.
    pub metadata: Option<String>,
    /// Unpaired surrogates in the part were replaced with U+FFFD.
    pub sanitized: bool,
}

/// The content of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignContent {
    Text(String),
    Reasoning {
        /// The visible text.
        text: String,
        /// Whether the text was redacted.
        redacted: bool,
    },
    Refusal(String),
    /// An image, audio or file.
    Media(ForeignMedia),
    Call {
        id: String,
        name: String,
        /// The arguments as written in the source.
        arguments: String,
    },
    /// The result of a tool call.
    Result {
        /// Id of the call.
        call: String,
        /// The texts and media of the result.
        parts: Vec<Self>,
        outcome: ToolOutcome,
    },
    /// A part that only its service can read.
    Item {
        /// The type as named by the service.
        kind: String,
        /// The item, unchanged.
        json: String,
        /// One human-readable line.
        title: String,
        /// The only provider that can read the item. `None` means the provider of the model that
        /// wrote the messages.
        reader: Option<&'static str>,
    },
}

/// An image, audio or file.
#[derive(Clone, PartialEq, Eq)]
pub struct ForeignMedia {
    pub media_type: String,
    /// Name of the file. Empty if it has none.
    pub filename: String,
    pub source: ForeignSource,
}

/// Where the content of a media part is.
#[derive(Clone, PartialEq, Eq)]
pub enum ForeignSource {
    /// Inline.
    Data(Vec<u8>),
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

/// A defect in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignFlaw {
    /// Path of the defect, such as `[3].content[1].type`. Empty if it concerns the whole input.
    pub at: String,
    pub kind: FlawKind,
    /// A human-readable description of what is expected.
    pub why: String,
}

/// The kind of a defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlawKind {
    /// A required value is missing.
    Missing,
    /// The value has the wrong type or form.
    Malformed,
    /// The value is well-formed but not supported.
    Unsupported,
    /// The value is too large.
    TooLarge,
    /// The input is not valid JSON.
    NotJson,
}

/// The outcome of a call in a format that states only whether the tool failed.
pub(crate) fn outcome(failed: bool) -> ToolOutcome {
    if failed { ToolOutcome::Error } else { ToolOutcome::Success }
}

impl ForeignPart {
    /// Creates a part without metadata.
    pub(crate) fn new(at: &str, content: ForeignContent) -> Self {
        Self { at: at.to_owned(), content, citations: Vec::new(), metadata: None, sanitized: false }
    }

    /// Attaches metadata of a kind of provider, unless it is empty.
    #[must_use]
    pub(crate) fn with_metadata(self, kind: &str, own: Map<String, Value>) -> Self {
        let metadata = (!own.is_empty()).then(|| authorship::metadata(kind, own));
        Self { metadata, ..self }
    }

    /// Creates a media part.
    pub(crate) fn media(at: &str, media: ForeignMedia) -> Self {
        Self::new(at, ForeignContent::Media(media))
    }

    /// Creates a reasoning part. Without text, it is redacted.
    pub(crate) fn reasoning(at: &str, text: String) -> Self {
        let redacted = text.is_empty();
        Self::new(at, ForeignContent::Reasoning { text, redacted })
    }

    /// Creates a tool call.
    pub(crate) fn call(at: &str, id: String, name: String, arguments: String) -> Self {
        Self::new(at, ForeignContent::Call { id, name, arguments })
    }

    /// Creates the result of a call from its texts and media.
    pub(crate) fn result(at: &str, call: String, given: Vec<Self>, outcome: ToolOutcome) -> Self {
        let parts = given.into_iter().map(|part| part.content).collect();
        Self::new(at, ForeignContent::Result { call, parts, outcome })
    }

    /// Creates a part that only its service can read.
    pub(crate) fn item(at: &str, item: ProviderItem, reader: Option<&'static str>) -> Self {
        let content = ForeignContent::Item { kind: item.kind, json: item.json, title: item.title, reader };
        Self::new(at, content)
    }

    /// Creates a text part. Returns `None` if the text is empty.
    pub(crate) fn text(at: &str, text: String) -> Option<Self> {
        (!text.is_empty()).then(|| Self::new(at, ForeignContent::Text(text)))
    }
}
