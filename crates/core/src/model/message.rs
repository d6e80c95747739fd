//! Messages of a conversation, and their parts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::{AppliedMessage, BlobId, CallId, CompactionId, Failure, Media, MessageId, PartSize, Seq, TurnId, Usage};

/// Text that replaces a pruned tool result in the prompt.
pub const PRUNED_TEXT: &str = "[Old tool result content cleared]";

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Instructions inside the conversation.
    System,
    User,
    Assistant,
    /// Results of tool calls.
    Tool,
}

/// A message as sent by a host: its parts have no sizes, and its tool results have no tool name yet and are not
/// truncated. `store::NewMessage` is its form for storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputMessage {
    pub role: Role,
    /// In order; never empty.
    pub parts: Vec<Part>,
    /// Compactions do not replace the message.
    pub pinned: bool,
    /// Labels set by the host.
    pub metadata: BTreeMap<String, String>,
    /// For an appended assistant message: the model call that produced it.
    pub response: Option<ModelResponse>,
    /// When an appended message was written. `None` means now.
    pub created_at: Option<Timestamp>,
}

impl InputMessage {
    /// A message with these parts and no other properties.
    #[must_use]
    pub const fn new(role: Role, parts: Vec<Part>) -> Self {
        Self { role, parts, pinned: false, metadata: BTreeMap::new(), response: None, created_at: None }
    }
}

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub id: MessageId,
    /// The turn that created it.
    pub turn: Option<TurnId>,
    /// The step of that turn, from 1; 0 for the input.
    pub step: u32,
    /// Position in the session.
    pub seq: Seq,
    pub role: Role,
    /// In order.
    pub parts: Vec<StoredPart>,
    /// Tokens of the message in addition to its parts.
    pub overhead: u32,
    /// When it was committed.
    pub created_at: Timestamp,
    /// The model call that produced an assistant message.
    pub response: Option<ModelResponse>,
    /// Compactions do not replace the message.
    pub pinned: bool,
    /// Labels set by the host.
    pub metadata: BTreeMap<String, String>,
    /// The queued messages that were merged into it, in order.
    pub queued: Vec<AppliedMessage>,
    /// A compaction wrote it to replace older messages.
    pub is_summary: bool,
    /// The compaction that replaced it in the prompt. `None` while it is in the prompt.
    pub compacted_by: Option<CompactionId>,
    /// The seq at which it was voided. `None` while it is valid.
    pub voided_at: Option<Seq>,
}

impl Message {
    /// The message as sent to the model: pruned results are replaced by the placeholder.
    #[must_use]
    pub fn as_sent_to_model(self) -> Self {
        Self { parts: self.parts.into_iter().map(StoredPart::as_sent_to_model).collect(), ..self }
    }

    /// The texts of its text parts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|stored| stored.part.content.as_text())
    }

    /// Its tool results.
    pub fn results(&self) -> impl DoubleEndedIterator<Item = &ToolResult> {
        self.parts.iter().filter_map(|stored| stored.part.content.as_result())
    }

    /// Whether it contains a tool call.
    pub fn calls(&self) -> bool {
        self.parts.iter().any(|stored| stored.part.is_call())
    }

    /// Its media, including those in tool results.
    pub fn media(&self) -> impl Iterator<Item = &Media> {
        self.parts.iter().flat_map(|stored| stored.part.media())
    }

    /// Replaces each medium for which `words` returns a text. `words` gets the index of the part that is or contains
    /// the medium, and the medium.
    pub fn replace_media(&mut self, mut words: impl FnMut(usize, &Media) -> Option<String>) {
        for (at, stored) in self.parts.iter_mut().enumerate() {
            match &mut stored.part.content {
                Content::Media(media) => {
                    if let Some(words) = words(at, media) {
                        stored.part.content = Content::Text(words);
                    }
                }
                Content::ToolResult(result) => {
                    for given in &mut result.parts {
                        if let Some(words) = given.media().and_then(|media| words(at, media)) {
                            *given = OutputPart::Text(words);
                        }
                    }
                }
                Content::Text(_)
                | Content::Reasoning { .. }
                | Content::ToolCall(_)
                | Content::Refusal(_)
                | Content::ProviderItem(_)
                | Content::Unknown(_) => {}
            }
        }
    }
}

/// A part with its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPart {
    pub part: Part,
    pub size: PartSize,
    /// Name of the estimator that counted it.
    pub estimator: String,
    /// Set on a pruned result; `size` is then that of the placeholder.
    pub pruned: Option<Pruned>,
}

impl StoredPart {
    /// The part as sent to the model: a pruned result is replaced by the placeholder.
    #[must_use]
    pub fn as_sent_to_model(mut self) -> Self {
        if let (Some(_), Content::ToolResult(result)) = (&self.pruned, &mut self.part.content) {
            result.parts = vec![OutputPart::Text(PRUNED_TEXT.to_owned())];
        }
        self
    }
}

/// When a tool result was pruned, and its original size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruned {
    /// The seq of the event of the prune.
    pub at: Seq,
    /// `None` in a fork, which does not have the event.
    pub time: Option<Timestamp>,
    /// Its size in tokens before the prune.
    pub original_tokens: u32,
}

/// One piece of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub content: Content,
    /// Sources cited in a text.
    pub citations: Vec<Citation>,
    /// Data attached by the provider, a JSON object keyed by kind of provider; opaque, sent back unchanged.
    pub provider_metadata: Option<String>,
    /// Characters that cannot be stored were replaced.
    pub sanitized: bool,
}

impl Part {
    /// A part without citations and metadata.
    pub fn new(content: Content) -> Self {
        Self { content, citations: Vec::new(), provider_metadata: None, sanitized: false }
    }

    /// A plain text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Content::Text(text.into()))
    }

    /// Whether the part is a tool call.
    pub fn is_call(&self) -> bool {
        self.content.as_call().is_some()
    }

    /// Whether the part has no content for the user and requires no action: reasoning, or text that is only white
    /// space.
    pub fn is_silent(&self) -> bool {
        match &self.content {
            Content::Reasoning { .. } => true,
            Content::Text(text) | Content::Refusal(text) => text.trim().is_empty(),
            Content::ToolCall(_)
            | Content::ToolResult(_)
            | Content::Media(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => false,
        }
    }

    /// The medium, or the media of the tool result.
    pub fn media(&self) -> impl Iterator<Item = &Media> {
        let (own, given) = match &self.content {
            Content::Media(media) => (Some(media), [].as_slice()),
            Content::ToolResult(result) => (None, result.parts.as_slice()),
            Content::Text(_)
            | Content::Reasoning { .. }
            | Content::ToolCall(_)
            | Content::Refusal(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => (None, [].as_slice()),
        };
        own.into_iter().chain(given.iter().filter_map(OutputPart::media))
    }
}

/// What a part is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Text(String),
    /// The model's reasoning.
    Reasoning {
        /// The reasoning text as far as the provider exposes it.
        text: String,
        /// The provider withheld the text.
        redacted: bool,
    },
    ToolCall(ToolCall),
    ToolResult(ToolResult),
    /// The text of a refusal.
    Refusal(String),
    /// An image, document, audio or video.
    Media(Media),
    /// An opaque item that only its provider can interpret.
    ProviderItem(ProviderItem),
    /// A part of a kind written by a newer version.
    Unknown(UnknownPart),
}

impl Content {
    /// The text. Returns `None` for any other kind of part.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The tool call. Returns `None` for any other kind of part.
    pub fn as_call(&self) -> Option<&ToolCall> {
        if let Self::ToolCall(call) = self { Some(call) } else { None }
    }

    /// The tool result. Returns `None` for any other kind of part.
    pub fn as_result(&self) -> Option<&ToolResult> {
        if let Self::ToolResult(result) = self { Some(result) } else { None }
    }
}

/// An opaque item created by a provider, such as a web search: stored, and sent back to that provider unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderItem {
    /// Configured name of the provider.
    pub provider: String,
    /// The provider's name of the item's type, e.g. `web_search_call`.
    pub kind: String,
    /// The item as JSON, unchanged.
    pub json: String,
    /// A one-line description for users; may be empty.
    pub title: String,
}

/// A source cited in a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Citation {
    /// URL of the source; empty for an attached document.
    pub url: String,
    pub title: String,
    pub cited_text: String,
    /// Byte offset of the first byte of the passage in the part's text.
    pub start_byte: u32,
    /// Byte offset after its last byte; 0 if the provider sent no range.
    pub end_byte: u32,
    /// The provider's own object as JSON, unchanged.
    pub provider_metadata: Option<String>,
}

/// A part of a kind that this version does not know, as stored: it is kept, and not sent to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPart {
    pub kind: String,
    /// The stored text.
    pub body: String,
    /// The other stored fields, encoded.
    pub rest: Vec<u8>,
}

/// A tool call made by the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Unique in its session.
    pub id: CallId,
    /// Name of the tool.
    pub name: String,
    /// The arguments exactly as the model wrote them.
    pub arguments: String,
}

impl ToolCall {
    /// Whether the arguments are one JSON object. Only such a call is run, and only such arguments are sent again. The
    /// text is validated without being deserialized: nesting depth, size of numbers and lone surrogates are not
    /// limited.
    pub fn has_object(&self) -> bool {
        serde_json::from_str::<&RawValue>(&self.arguments).is_ok_and(|json| json.get().starts_with('{'))
    }
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolOutcome {
    /// The tool succeeded.
    Success,
    /// The tool failed; the parts contain the error.
    Error,
    /// A user denied the call.
    Denied,
    /// No result arrived before the deadline.
    TimedOut,
    /// The call was closed without a result.
    Cancelled,
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The call that it answers.
    pub call: CallId,
    /// Name of the tool.
    pub name: String,
    /// In order: texts, sanitized and truncated, and media.
    pub parts: Vec<OutputPart>,
    pub outcome: ToolOutcome,
    /// `None` if the output was not truncated.
    pub truncation: Option<Truncation>,
    /// Output for users, not sent to the model; may be empty.
    pub display_text: String,
}

impl ToolResult {
    /// The texts in the output.
    pub fn texts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.parts.iter().filter_map(OutputPart::text)
    }

    /// The media in the output.
    pub fn media(&self) -> impl Iterator<Item = &Media> {
        self.parts.iter().filter_map(OutputPart::media)
    }
}

/// A piece of a tool's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputPart {
    Text(String),
    /// An image, document, audio or video.
    Media(Media),
}

impl OutputPart {
    /// The text. Returns `None` for a medium.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Media(_) => None,
        }
    }

    /// The medium. Returns `None` for a text.
    pub fn media(&self) -> Option<&Media> {
        match self {
            Self::Text(_) => None,
            Self::Media(media) => Some(media),
        }
    }
}

impl From<&str> for OutputPart {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for OutputPart {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// How a tool's output was truncated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncation {
    /// Length of the whole output in characters (Unicode scalar values).
    pub original_chars: u32,
    /// Characters kept, without the marker.
    pub kept_chars: u32,
    /// The blob with the whole output.
    pub full_output: BlobId,
    /// Length of the whole output in bytes.
    pub full_bytes: u64,
    /// Truncated to the room left in the window, which was smaller than the tool's limits.
    pub for_room: bool,
}

/// Why a model stopped generating, in one set of values for all providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FinishReason {
    /// The model finished, or generated a stop sequence.
    Stop,
    /// The model made tool calls.
    ToolCalls,
    /// It reached the output limit or the end of the window.
    Length,
    /// A content filter stopped it.
    ContentFilter,
    /// The model refused.
    Refusal,
    /// The call failed.
    Error,
    /// Cancelled; the text generated so far was kept.
    Cancelled,
    /// The provider paused a long response with calls of its own tools. It continues when it is called again with the
    /// response so far.
    Paused,
}

/// The model call that produced an assistant message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelResponse {
    /// Configured name of the provider.
    pub provider: String,
    /// Model reference as requested, `PROVIDER/MODEL`.
    pub model: String,
    /// The model that responded according to the provider; empty if not reported.
    pub provider_model: String,
    /// The provider's id of the response; empty if there is none.
    pub provider_response_id: String,
    pub finish: FinishReason,
    /// The provider's own finish reason.
    pub provider_finish: String,
    /// Tokens of this call. `None` if the provider reported none.
    pub usage: Option<Usage>,
    /// The failure, if the call failed but the partial response was kept.
    pub failure: Option<Failure>,
    /// Time from sending the request to the first content.
    pub time_to_first_token: Option<std::time::Duration>,
    /// Time from sending the request to the end of the response.
    pub elapsed: std::time::Duration,
    /// Data attached by the provider to the whole response, a JSON object keyed by kind of provider.
    pub provider_metadata: Option<String>,
    /// A hash of the prompt as sent: instructions, tools and all messages. `None` if the reasoning is not bound to the
    /// prompt.
    pub prompt_fingerprint: Option<String>,
}
