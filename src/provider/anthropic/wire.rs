//! The wire format of Anthropic Messages. Responses are parsed leniently: nearly every field may be
//! missing or null, and unknown fields are ignored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::provider::{
    body::Json,
    http::lenient::{LenientString, Number, Piece},
};

/// A prompt cache marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct CacheControl {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttl: Option<&'static str>,
}

/// The role of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WireRole {
    User,
    Assistant,
    /// A system message within the conversation.
    System,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Message<'a> {
    pub(super) role: WireRole,
    pub(super) content: Vec<Block<'a>>,
}

/// A content block of a message in a request.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Block<'a> {
    /// A block that contextd writes.
    Own {
        #[serde(flatten)]
        content: Content<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    /// A provider item, unchanged.
    Item(Json<'a>),
}

/// The content of a block.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Content<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        citations: Vec<Json<'a>>,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "str::is_empty")]
        title: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: Cow<'a, str>,
        input: Json<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<Value>,
    },
    ToolResult {
        tool_use_id: &'a str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Block<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    Thinking {
        thinking: &'a str,
        /// Models of other vendors may send none.
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    RedactedThinking {
        data: String,
    },
}

impl<'a> Block<'a> {
    /// A block without a cache marker.
    pub(super) fn new(content: Content<'a>) -> Self {
        Self::Own { content, cache_control: None }
    }

    /// The content of a block that contextd writes.
    pub(super) fn own_content(&self) -> Option<&Content<'a>> {
        match self {
            Self::Own { content, .. } => Some(content),
            Self::Item(_) => None,
        }
    }

    /// A text block.
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::new(Content::Text { text: text.into(), citations: Vec::new() })
    }
}

/// The source of an image or a file.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Source<'a> {
    /// Inline, in base64.
    Base64 { media_type: String, data: String },
    /// By URL, which the service fetches.
    Url { url: &'a str },
    /// Inline, as plain text.
    Text { media_type: String, data: String },
}

impl Source<'_> {
    /// The inline data or the URL.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Base64 { data, .. } | Self::Text { data, .. } => data,
            Self::Url { url } => url,
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Tool<'a> {
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) description: &'a str,
    pub(super) input_schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strict: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<CacheControl>,
}

/// One event of a response. The event type determines what its fields hold and is read first: other
/// events may use the same field names for other content.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub(super) kind: LenientString,
    pub(super) message: Option<Box<RawValue>>,
    pub(super) index: Number,
    pub(super) content_block: Option<Box<RawValue>>,
    pub(super) delta: Option<Box<RawValue>>,
    pub(super) usage: Option<Box<RawValue>>,
    pub(super) error: Option<Box<RawValue>>,
    /// What the service removed from the conversation before the model read it.
    pub(super) context_management: Option<Box<RawValue>>,
    pub(super) input_transformations: Option<Box<RawValue>>,
}

/// The message in `message_start`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageStart {
    pub(super) id: LenientString,
    pub(super) model: LenientString,
    /// Blocks that are already complete. Usually empty.
    pub(super) content: Option<Box<RawValue>>,
    pub(super) stop_reason: LenientString,
    pub(super) usage: Option<Box<RawValue>>,
    pub(super) container: Option<Box<RawValue>>,
    pub(super) context_management: Option<Box<RawValue>>,
    pub(super) input_transformations: Option<Box<RawValue>>,
}

/// A content block in `content_block_start`. Its content is usually empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct BlockStart {
    #[serde(rename = "type")]
    pub(super) kind: LenientString,
    pub(super) text: Option<Piece>,
    pub(super) citations: Option<Vec<Box<RawValue>>>,
    pub(super) thinking: Option<Piece>,
    pub(super) signature: LenientString,
    pub(super) data: LenientString,
    pub(super) id: LenientString,
    pub(super) name: LenientString,
    pub(super) input: Option<Box<RawValue>>,
    pub(super) caller: Option<Box<RawValue>>,
}

/// A delta of a block, or of the message at its end.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta {
    pub(super) text: Option<Piece>,
    pub(super) thinking: Option<Piece>,
    pub(super) partial_json: Option<Piece>,
    pub(super) signature: LenientString,
    pub(super) citation: Option<Box<RawValue>>,
    /// The summary of a compaction by the service.
    pub(super) content: Option<Box<RawValue>>,
    pub(super) stop_reason: LenientString,
    pub(super) stop_details: Option<Box<RawValue>>,
    pub(super) container: Option<Box<RawValue>>,
    pub(super) context_management: Option<Box<RawValue>>,
    pub(super) input_transformations: Option<Box<RawValue>>,
}

/// A citation of a text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireCitation {
    pub(super) url: LenientString,
    pub(super) source: LenientString,
    pub(super) title: LenientString,
    pub(super) document_title: LenientString,
    pub(super) cited_text: LenientString,
}
