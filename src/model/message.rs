//! Messages and their parts: what is said in a conversation.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::{
    Applied, BlobId, CallId, CompactionId, Counted, Failure, Media, MessageId, Seq, TurnId, Usage,
};

/// What the model reads in place of a result that was pruned.
pub const PRUNED_WORDS: &str = "[Old tool result content cleared]";

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Instructions inside the conversation.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// Results of tool calls.
    Tool,
}

/// A message as a host sends it: its parts have no sizes, its results do not know their tool yet
/// and are not cut. `store::NewMessage` is what is written of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputMessage {
    /// Who speaks.
    pub role: Role,
    /// The content in order; never empty.
    pub parts: Vec<Part>,
    /// Compactions leave it alone.
    pub pinned: bool,
    /// The host's own labels.
    pub metadata: BTreeMap<String, String>,
    /// The model call that produced an appended message of the assistant.
    pub response: Option<ModelResponse>,
    /// When an appended message was written. `None` means now.
    pub created_at: Option<Timestamp>,
}

impl InputMessage {
    /// A message of these parts and nothing else.
    #[must_use]
    pub const fn new(role: Role, parts: Vec<Part>) -> Self {
        Self {
            role,
            parts,
            pinned: false,
            metadata: BTreeMap::new(),
            response: None,
            created_at: None,
        }
    }
}

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Identifier.
    pub id: MessageId,
    /// The turn that made it.
    pub turn: Option<TurnId>,
    /// The step of that turn, from 1; 0 for the input.
    pub step: u32,
    /// Position in the session.
    pub seq: Seq,
    /// Who speaks.
    pub role: Role,
    /// The content in order.
    pub parts: Vec<StoredPart>,
    /// Tokens that the message costs beside its parts.
    pub overhead: u32,
    /// When it was committed.
    pub created_at: Timestamp,
    /// The model call that produced an assistant message.
    pub response: Option<ModelResponse>,
    /// Compactions leave it alone.
    pub pinned: bool,
    /// The host's labels.
    pub metadata: BTreeMap<String, String>,
    /// The queued messages that it was made of, in order.
    pub queued: Vec<Applied>,
    /// It was written by a compaction in place of older messages.
    pub is_summary: bool,
    /// The compaction that took it out of the prompt. `None` while the model sees it.
    pub compacted_by: Option<CompactionId>,
    /// The seq at which it was voided. `None` while it is valid.
    pub voided_at: Option<Seq>,
}

impl Message {
    /// The message as the model sees it: pruned results as their placeholder.
    #[must_use]
    pub fn seen(self) -> Self {
        Self {
            parts: self.parts.into_iter().map(StoredPart::seen).collect(),
            ..self
        }
    }

    /// Its texts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts
            .iter()
            .filter_map(|stored| stored.part.content.as_text())
    }

    /// The results of calls in it.
    pub fn results(&self) -> impl DoubleEndedIterator<Item = &ToolResult> {
        self.parts
            .iter()
            .filter_map(|stored| stored.part.content.as_result())
    }

    /// Whether it calls a tool.
    pub fn calls(&self) -> bool {
        self.parts.iter().any(|stored| stored.part.is_call())
    }

    /// Its media, those in results included.
    pub fn media(&self) -> impl Iterator<Item = &Media> {
        self.parts.iter().flat_map(|stored| stored.part.media())
    }

    /// Replaces media by words, where there are some for it; told are the part that it is or stands
    /// in, and itself.
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
                            *given = Given::Text(words);
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
    /// The part.
    pub part: Part,
    /// Its size in the context window.
    pub size: Counted,
    /// Which estimator counted it.
    pub estimator: String,
    /// Set on a result that was pruned; the size is then that of its placeholder.
    pub pruned: Option<Pruned>,
}

impl StoredPart {
    /// The part as the model sees it: a pruned result as its placeholder.
    #[must_use]
    pub fn seen(mut self) -> Self {
        if let (Some(_), Content::ToolResult(result)) = (&self.pruned, &mut self.part.content) {
            result.parts = vec![Given::Text(PRUNED_WORDS.to_owned())];
        }
        self
    }
}

/// When and how much a tool result was pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruned {
    /// The seq of the event that says so.
    pub at: Seq,
    /// When. `None` in a fork, which has no such event.
    pub time: Option<Timestamp>,
    /// Its size before.
    pub original_tokens: u32,
}

/// One piece of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub content: Content,
    /// Sources that a text refers to.
    pub citations: Vec<Citation>,
    /// What the provider attached, a JSON object keyed by kind of provider; opaque, handed back
    /// unchanged.
    pub provider_metadata: Option<String>,
    /// Characters that cannot be stored were replaced.
    pub sanitized: bool,
}

impl Part {
    /// A part with nothing attached.
    pub fn new(content: Content) -> Self {
        Self {
            content,
            citations: Vec::new(),
            provider_metadata: None,
            sanitized: false,
        }
    }

    /// A plain text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Content::Text(text.into()))
    }

    /// Whether it is a call of a tool.
    pub fn is_call(&self) -> bool {
        match &self.content {
            Content::ToolCall(_) => true,
            Content::Text(_)
            | Content::Reasoning { .. }
            | Content::ToolResult(_)
            | Content::Refusal(_)
            | Content::Media(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => false,
        }
    }

    /// Whether it says nothing to a user and asks for nothing: reasoning, or words without a character.
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

    /// The medium that it is, or those of the result that it is.
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
        own.into_iter().chain(given.iter().filter_map(Given::media))
    }
}

/// What a part is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text.
    Text(String),
    /// The model's reasoning.
    Reasoning {
        /// What the provider shows of it.
        text: String,
        /// The provider hid the text on purpose.
        redacted: bool,
    },
    /// The model calls a tool.
    ToolCall(ToolCall),
    /// The result of a call.
    ToolResult(ToolResult),
    /// The model's words of refusal.
    Refusal(String),
    /// An image, document, sound or video.
    Media(Media),
    /// Something that only its provider can read.
    ProviderItem(ProviderItem),
    /// A part of a kind that a newer version wrote.
    Unknown(UnknownPart),
}

impl Content {
    /// The text. `None` if it is something else.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Reasoning { .. }
            | Self::ToolCall(_)
            | Self::ToolResult(_)
            | Self::Refusal(_)
            | Self::Media(_)
            | Self::ProviderItem(_)
            | Self::Unknown(_) => None,
        }
    }

    /// The call of a tool. `None` if it is something else.
    pub fn as_call(&self) -> Option<&ToolCall> {
        match self {
            Self::ToolCall(call) => Some(call),
            Self::Text(_)
            | Self::Reasoning { .. }
            | Self::ToolResult(_)
            | Self::Refusal(_)
            | Self::Media(_)
            | Self::ProviderItem(_)
            | Self::Unknown(_) => None,
        }
    }

    /// The result of a call. `None` if it is something else.
    pub fn as_result(&self) -> Option<&ToolResult> {
        match self {
            Self::ToolResult(result) => Some(result),
            Self::Text(_)
            | Self::Reasoning { .. }
            | Self::ToolCall(_)
            | Self::Refusal(_)
            | Self::Media(_)
            | Self::ProviderItem(_)
            | Self::Unknown(_) => None,
        }
    }
}

/// Something that a provider made and only it can read, such as a search it made: kept, and sent
/// back to that provider unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderItem {
    /// Configured name of the provider.
    pub provider: String,
    /// The provider's name of its type, e.g. `web_search_call`.
    pub kind: String,
    /// The item as JSON, unchanged.
    pub json: String,
    /// A line for people; may be empty.
    pub title: String,
}

/// A source that a text refers to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Citation {
    /// Address of the source; empty for an attached document.
    pub url: String,
    /// Title of the source.
    pub title: String,
    /// The words that were cited.
    pub cited_text: String,
    /// First byte of the passage in the part's text.
    pub start_byte: u32,
    /// The byte after its last one; 0 when the provider gave no range.
    pub end_byte: u32,
    /// The provider's own object as JSON, unchanged.
    pub provider_metadata: Option<String>,
}

/// A part of a kind that this version does not know, as it is stored: it is kept, and not sent to
/// the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPart {
    /// What it is.
    pub kind: String,
    /// Its words.
    pub body: String,
    /// What else is stored of it, encoded.
    pub rest: Vec<u8>,
}

/// A tool call made by the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Identifies the call in its session.
    pub id: CallId,
    /// The tool's name.
    pub name: String,
    /// The arguments exactly as the model wrote them.
    pub arguments: String,
}

impl ToolCall {
    /// Whether the arguments are one JSON object; only such a call is run, and only such arguments
    /// are sent again. The text is skipped, not built: neither depth, size of numbers nor lone
    /// surrogates matter.
    pub fn has_object(&self) -> bool {
        serde_json::from_str::<&RawValue>(&self.arguments)
            .is_ok_and(|json| json.get().starts_with('{'))
    }
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolOutcome {
    /// The tool did its work.
    Success,
    /// The tool failed; the parts say how.
    Error,
    /// A person denied it.
    Denied,
    /// No result came in time.
    TimedOut,
    /// Closed without a result.
    Cancelled,
}

/// The result of a tool call as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The call it answers.
    pub call: CallId,
    /// The tool's name.
    pub name: String,
    /// What it holds in order: texts, cleaned and cut, and media.
    pub parts: Vec<Given>,
    /// How the call ended.
    pub outcome: ToolOutcome,
    /// How the output was cut, if it was.
    pub truncation: Option<Truncation>,
    /// What the tool says to people, which no model reads; empty when it says nothing to them.
    pub display_text: String,
}

impl ToolResult {
    /// Its texts.
    pub fn texts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.parts.iter().filter_map(Given::text)
    }

    /// Its media.
    pub fn media(&self) -> impl Iterator<Item = &Media> {
        self.parts.iter().filter_map(Given::media)
    }
}

/// A piece of what a tool gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// Text.
    Text(String),
    /// An image, document, sound or video.
    Media(Media),
}

impl Given {
    /// The text. `None` means it is something else.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Media(_) => None,
        }
    }

    /// The medium. `None` means it is something else.
    pub fn media(&self) -> Option<&Media> {
        match self {
            Self::Text(_) => None,
            Self::Media(media) => Some(media),
        }
    }
}

impl From<&str> for Given {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Given {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// How a tool's output was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncation {
    /// Length of the whole output in characters (Unicode scalar values).
    pub original_chars: u32,
    /// Characters kept, the marker left out.
    pub kept_chars: u32,
    /// The whole output.
    pub full_output: BlobId,
    /// Length of the whole output in bytes.
    pub full_bytes: u64,
    /// Cut to the room left in the window, which was less than the tool's limits allow.
    pub for_room: bool,
}

/// Why a model stopped writing, in one vocabulary for all providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FinishReason {
    /// It was done, or met a stop sequence.
    Stop,
    /// It asks for tools.
    ToolCalls,
    /// It reached its output limit or the end of the window.
    Length,
    /// Stopped by a filter.
    ContentFilter,
    /// It refused.
    Refusal,
    /// The call failed.
    Error,
    /// Cancelled; the text up to then was kept.
    Cancelled,
    /// The provider paused a long turn of its own tools: called again with the answer so far, it
    /// goes on.
    Paused,
}

/// The model call that produced an assistant message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelResponse {
    /// Configured name of the provider.
    pub provider: String,
    /// Model reference as requested, `PROVIDER/MODEL`.
    pub model: String,
    /// The model that the provider says answered; empty when it did not say.
    pub provider_model: String,
    /// The provider's id of the response; empty when there is none.
    pub provider_response_id: String,
    /// Why it stopped.
    pub finish: FinishReason,
    /// The provider's own word for it.
    pub provider_finish: String,
    /// Tokens of this call. `None` if the provider reported none.
    pub usage: Option<Usage>,
    /// What went wrong, when the part that had arrived was kept.
    pub failure: Option<Failure>,
    /// From sending the request to the first content.
    pub time_to_first_token: Option<std::time::Duration>,
    /// From sending the request to the end of the answer.
    pub elapsed: std::time::Duration,
    /// What the provider attached to the whole answer, a JSON object keyed by kind of provider.
    pub provider_metadata: Option<String>,
    /// A hash of what the answer continues, as it was sent: instructions, tools and all messages.
    /// `None` where reasoning is not bound to it.
    pub prompt_fingerprint: Option<String>,
}
