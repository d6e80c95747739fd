//! Assembles the streamed chunks of a model response into the parts of one assistant message.

use std::collections::{BTreeMap, BTreeSet};

use super::{Chunk, Error, Finish, GeneratedImage, chunk::TextKind, error::Kind};
use crate::model::{
    CallId, Citation, Content, Delta, Media, MessageId, NewContent, Part, ProviderItem, ToolCall,
    delta::DeltaKind,
    media::{BlobRef, Source},
};

#[cfg(test)]
mod tests;

/// Limit on tool calls in one response.
pub const MAX_CALLS: usize = 128;

/// Limit on parts in one response, tool calls included.
pub const MAX_PARTS: usize = 4_096;

/// Limit on the total bytes of the images in one response. Images beyond it are replaced by text.
pub const MAX_PICTURE_BYTES: usize = 24 << 20;

/// A provider's call id longer than this many bytes is replaced by a generated one.
const MAX_CALL_ID_BYTES: usize = 128;

/// A response that is still streaming. A part keeps its index from its first delta to the end.
#[derive(Debug, Clone)]
pub struct Assembly {
    message: MessageId,
    used_call_ids: BTreeSet<CallId>,
    max_bytes: usize,
    bytes: usize,
    parts: Vec<Part>,
    /// Index into `parts` of each tool call, keyed by the provider's index.
    calls: BTreeMap<u32, usize>,
    /// Index of the part that was written last.
    last: Option<usize>,
    /// The last part is complete: more text of the same kind starts a new part.
    sealed: bool,
    /// Kind of a part that started with an empty chunk. The part is created only if metadata
    /// follows.
    hidden: Option<TextKind>,
    pictures: Vec<NewContent>,
}

/// The effect of one chunk on the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Nothing visible to readers of the stream.
    NoDelta,
    Delta(Delta),
    Finished(Finish),
}

/// A complete response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssembledResponse {
    /// The parts, in order.
    pub parts: Vec<Part>,
    /// The tool calls among the parts.
    pub calls: Vec<ToolCall>,
    /// Content of the images. It must be stored before the parts that refer to it.
    pub pictures: Vec<NewContent>,
    pub finish: Finish,
}

/// Why a response cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedResponse {
    /// The response exceeds this limit, in bytes.
    #[error("response too large: more than {0} bytes")]
    TooLarge(usize),
    /// The response exceeds [`MAX_CALLS`].
    #[error("response too large: more than {MAX_CALLS} tool calls")]
    TooManyCalls,
    /// The response exceeds [`MAX_PARTS`].
    #[error("response too large: more than {MAX_PARTS} parts")]
    TooManyParts,
    /// The call with this index started twice.
    #[error("tool call {0} started twice")]
    RepeatedCall(u32),
    /// Arguments or metadata arrived for a call that has not started.
    #[error("received data for tool call {0}, which has not started")]
    UnknownCall(u32),
    /// Metadata arrived before any part.
    #[error("received metadata before the first part of the response")]
    StrayMetadata,
    /// A citation arrived without text to attach it to.
    #[error("received a citation that belongs to no text of the response")]
    StrayCitation,
}

impl MalformedResponse {
    /// Converts to an error of a call to `provider`. A response that exceeds a limit is not
    /// retried: it would exceed the limit again.
    pub fn into_error(self, provider: &str) -> Error {
        let should_retry = match self {
            Self::TooLarge(_) | Self::TooManyCalls | Self::TooManyParts => Some(false),
            Self::RepeatedCall(_) | Self::UnknownCall(_) | Self::StrayMetadata | Self::StrayCitation => None,
        };
        Error { should_retry, ..Error::new(Kind::Broken, provider, self.to_string()) }
    }
}

impl Assembly {
    /// Creates an empty response. `taken` are the call ids that the session already uses;
    /// `max_bytes` limits the size of the response.
    pub fn new(message: MessageId, taken: BTreeSet<CallId>, max_bytes: usize) -> Self {
        Self {
            message,
            used_call_ids: taken,
            max_bytes,
            bytes: 0,
            parts: Vec::new(),
            calls: BTreeMap::new(),
            last: None,
            sealed: false,
            hidden: None,
            pictures: Vec::new(),
        }
    }

    /// Adds a chunk. `new_id` generates a call id where the provider's id is missing, already taken
    /// or unusable.
    ///
    /// # Errors
    ///
    /// Returns [`MalformedResponse`] if the chunk does not fit the response so far or exceeds a limit.
    pub fn apply(&mut self, chunk: Chunk, new_id: impl FnOnce() -> CallId) -> Result<Progress, MalformedResponse> {
        match chunk {
            Chunk::Text(text) => self.append_text(TextKind::Text, &text),
            Chunk::Reasoning(text) => self.append_text(TextKind::Reasoning, &text),
            Chunk::Refusal(text) => self.append_text(TextKind::Refusal, &text),
            Chunk::ToolCall { index, id, name } => self.begin_call(index, id, name, new_id),
            Chunk::ToolInput { index, json } => self.extend_call(index, &json),
            Chunk::PartEnded => {
                self.sealed = true;
                self.hidden = None;
                Ok(Progress::NoDelta)
            }
            Chunk::PartMetadata(json) => self.attach(&json),
            Chunk::CallMetadata { index, json } => self.attach_to_call(index, &json),
            Chunk::Citation(citation) => self.cite(citation),
            Chunk::Item(item) => self.add_item(item),
            Chunk::Image(made) => self.add_picture(made),
            Chunk::Sanitized => {
                if let Some(last) = self.last {
                    self.parts[last].sanitized = true;
                }
                Ok(Progress::NoDelta)
            }
            Chunk::Finished(finish) => Ok(Progress::Finished(finish)),
        }
    }

    /// The parts to keep of a cancelled response: the text, reasoning and refusal received so far.
    /// Tool calls are left out because they may be incomplete, and provider items because their
    /// results may be missing.
    pub fn into_partial(self) -> Vec<Part> {
        let said = |part: &Part| text_kind(&part.content).is_some_and(|kind| part.content != empty_text(kind));
        self.parts.into_iter().filter(said).collect()
    }

    /// Returns the complete response. A call without arguments gets an empty object.
    pub fn finish(mut self, mut finish: Finish) -> AssembledResponse {
        if let Some(usage) = &mut finish.usage {
            usage.provider_tool_calls = usage.provider_tool_calls.max(self.provider_tool_calls());
        }
        for part in &mut self.parts {
            if let Content::ToolCall(call) = &mut part.content
                && call.arguments.trim().is_empty()
            {
                call.arguments = "{}".to_owned();
            }
        }
        let calls = self.parts.iter().filter_map(|part| part.content.as_call());
        AssembledResponse { calls: calls.cloned().collect(), parts: self.parts, pictures: self.pictures, finish }
    }

    /// Number of tool calls among the provider items.
    fn provider_tool_calls(&self) -> u32 {
        let is_call = |it: &&Part| matches!(&it.content, Content::ProviderItem(item) if is_tool_call(&item.kind));
        narrow(self.parts.iter().filter(is_call).count())
    }

    /// Appends text of this kind. An empty chunk writes nothing and does not start a new part.
    fn append_text(&mut self, voice: TextKind, text: &str) -> Result<Progress, MalformedResponse> {
        let open = self.last.filter(|&last| !self.sealed && text_kind(&self.parts[last].content) == Some(voice));
        if text.is_empty() {
            self.hidden = open.is_none().then_some(voice);
            return Ok(Progress::NoDelta);
        }
        let at = match open {
            Some(at) => at,
            None => self.open(empty_text(voice))?,
        };
        self.append(at, text)
    }

    /// Starts a tool call. Its first delta is empty and carries the tool name.
    fn begin_call(
        &mut self,
        index: u32,
        id: String,
        name: String,
        new_id: impl FnOnce() -> CallId,
    ) -> Result<Progress, MalformedResponse> {
        if self.calls.contains_key(&index) {
            return Err(MalformedResponse::RepeatedCall(index));
        }
        if self.calls.len() == MAX_CALLS {
            return Err(MalformedResponse::TooManyCalls);
        }
        self.count_bytes(name.len())?;
        let id = self.unique_call_id(id, new_id);
        let (name, replaced) = cleaned(&name);
        let at = self.open(Content::ToolCall(ToolCall { id, name, arguments: String::new() }))?;
        self.parts[at].sanitized = replaced;
        self.calls.insert(index, at);
        self.append(at, "")
    }

    /// Appends to the arguments of a tool call.
    fn extend_call(&mut self, index: u32, json: &str) -> Result<Progress, MalformedResponse> {
        let at = self.call_at(index)?;
        if json.is_empty() { Ok(Progress::NoDelta) } else { self.append(at, json) }
    }

    /// The index of the part of a tool call.
    fn call_at(&self, index: u32) -> Result<usize, MalformedResponse> {
        let at = self.calls.get(&index).copied();
        at.ok_or(MalformedResponse::UnknownCall(index))
    }

    /// Sets the metadata of the part that was written last. Later metadata replaces it.
    fn attach(&mut self, json: &str) -> Result<Progress, MalformedResponse> {
        self.count_bytes(json.len())?;
        let at = match (self.hidden, self.last) {
            (Some(voice), _) => self.open(empty_text(voice))?,
            (None, Some(last)) => last,
            (None, None) => return Err(MalformedResponse::StrayMetadata),
        };
        self.parts[at].provider_metadata = Some(storable(json, &mut self.parts[at].sanitized));
        self.sealed = true;
        Ok(Progress::NoDelta)
    }

    /// Sets the metadata of a tool call. Later metadata replaces it.
    fn attach_to_call(&mut self, index: u32, json: &str) -> Result<Progress, MalformedResponse> {
        self.count_bytes(json.len())?;
        let at = self.call_at(index)?;
        self.parts[at].provider_metadata = Some(storable(json, &mut self.parts[at].sanitized));
        Ok(Progress::NoDelta)
    }

    /// Adds a citation to the text that was written last.
    fn cite(&mut self, citation: Citation) -> Result<Progress, MalformedResponse> {
        let Citation { url, title, cited_text, provider_metadata: own, .. } = &citation;
        let bytes = url.len() + title.len() + cited_text.len();
        self.count_bytes(bytes + own.as_ref().map_or(0, String::len))?;
        let last = self.last.map(|last| &mut self.parts[last]);
        let text = last.filter(|last| last.content.as_text().is_some()).ok_or(MalformedResponse::StrayCitation)?;
        let mut storable = |words: &str| storable(words, &mut text.sanitized);
        let citation = Citation {
            url: storable(url),
            title: storable(title),
            cited_text: storable(cited_text),
            provider_metadata: own.as_ref().map(|json| storable(json)),
            ..citation
        };
        text.citations.push(citation);
        Ok(Progress::NoDelta)
    }

    /// Adds a part that only the provider can read.
    fn add_item(&mut self, item: ProviderItem) -> Result<Progress, MalformedResponse> {
        self.count_bytes(item.kind.len() + item.json.len() + item.title.len())?;
        let [(kind, in_kind), (json, in_json), (title, in_title)] =
            [&item.kind, &item.json, &item.title].map(|text| cleaned(text));
        let at = self.open(Content::ProviderItem(ProviderItem { kind, json, title, ..item }))?;
        self.parts[at].sanitized = in_kind || in_json || in_title;
        self.sealed = true;
        Ok(Progress::NoDelta)
    }

    /// Adds an image. A repeated image is ignored.
    fn add_picture(&mut self, made: GeneratedImage) -> Result<Progress, MalformedResponse> {
        let (source, media_type) = match made {
            GeneratedImage::Url(url) => {
                self.count_bytes(url.len())?;
                (Source::Url(url), "image/png".to_owned())
            }
            GeneratedImage::Content(content) => {
                if self.pictures.iter().any(|it| it.id() == content.id()) {
                    return Ok(Progress::NoDelta);
                }
                let media_type = content.media_type().to_owned();
                let bytes = content.bytes().len();
                let held: usize = self.pictures.iter().map(|it| it.bytes().len()).sum();
                if held + bytes > MAX_PICTURE_BYTES {
                    self.sealed = true;
                    let words = format!("[{media_type} of {bytes} bytes left out: too large]");
                    let said = self.append_text(TextKind::Text, &words);
                    self.sealed = true;
                    return said;
                }
                let kept = BlobRef { id: content.id().clone(), bytes: bytes as u64, pixels: None };
                self.pictures.push(content);
                (Source::Blob(kept), media_type)
            }
        };
        self.open(Content::Media(Media { media_type, source, filename: String::new() }))?;
        self.sealed = true;
        Ok(Progress::NoDelta)
    }

    /// Starts a new part at the end.
    fn open(&mut self, content: Content) -> Result<usize, MalformedResponse> {
        if self.parts.len() == MAX_PARTS {
            return Err(MalformedResponse::TooManyParts);
        }
        self.parts.push(Part::new(content));
        let at = self.parts.len() - 1;
        self.wrote(at);
        Ok(at)
    }

    /// Records the part that was written last.
    fn wrote(&mut self, at: usize) {
        (self.last, self.sealed, self.hidden) = (Some(at), false, None);
    }

    fn append(&mut self, at: usize, text: &str) -> Result<Progress, MalformedResponse> {
        let (text, replaced) = cleaned(text);
        self.count_bytes(text.len())?;
        self.wrote(at);
        let part = &mut self.parts[at];
        part.sanitized |= replaced;
        let (written, kind) = match &mut part.content {
            Content::Text(written) | Content::Refusal(written) => (written, DeltaKind::Text),
            Content::Reasoning { text: written, redacted } => {
                *redacted = false;
                (written, DeltaKind::Reasoning)
            }
            Content::ToolCall(ToolCall { id, name, arguments }) => {
                (arguments, DeltaKind::ToolInput { call: id.clone(), name: name.clone() })
            }
            // Nothing is appended to other parts.
            Content::ToolResult(_) | Content::Media(_) | Content::ProviderItem(_) | Content::Unknown(_) => {
                return Ok(Progress::NoDelta);
            }
        };
        let offset = narrow(written.len());
        written.push_str(&text);
        Ok(Progress::Delta(Delta { message: self.message.clone(), part: narrow(at), offset, text, kind }))
    }

    /// Counts bytes against the size limit.
    fn count_bytes(&mut self, bytes: usize) -> Result<(), MalformedResponse> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.max_bytes { Err(MalformedResponse::TooLarge(self.max_bytes)) } else { Ok(()) }
    }

    /// Returns the provider's call id if it is usable, otherwise a new one.
    fn unique_call_id(&mut self, id: String, new_id: impl FnOnce() -> CallId) -> CallId {
        let usable = !id.is_empty() && id.len() <= MAX_CALL_ID_BYTES && !id.contains(char::is_control);
        let id = CallId::new(id);
        let id = if usable && !self.used_call_ids.contains(&id) { id } else { new_id() };
        self.used_call_ids.insert(id.clone());
        id
    }
}

/// A part for text of this kind. Reasoning without text exists only for its metadata: the provider
/// redacted it.
fn empty_text(kind: TextKind) -> Content {
    match kind {
        TextKind::Text => Content::Text(String::new()),
        TextKind::Reasoning => Content::Reasoning { text: String::new(), redacted: true },
        TextKind::Refusal => Content::Refusal(String::new()),
    }
}

/// The kind of the text of a part. Returns `None` for a part of another kind.
fn text_kind(content: &Content) -> Option<TextKind> {
    match content {
        Content::Text(_) => Some(TextKind::Text),
        Content::Reasoning { .. } => Some(TextKind::Reasoning),
        Content::Refusal(_) => Some(TextKind::Refusal),
        Content::ToolCall(_)
        | Content::ToolResult(_)
        | Content::Media(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => None,
    }
}

/// Returns the text in a form that can be stored, and records whether it was changed.
fn storable(text: &str, sanitized: &mut bool) -> String {
    let (text, replaced) = cleaned(text);
    *sanitized |= replaced;
    text
}

/// Replaces NUL, which PostgreSQL cannot store, with U+FFFD. Also returns whether there was any.
fn cleaned(text: &str) -> (String, bool) {
    (text.replace('\0', "\u{fffd}"), text.contains('\0'))
}

/// Converts an index or offset. Both are far below the limit of `u32`.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Whether a provider item of this kind is a call of a provider-executed tool, by the naming of the
/// protocols.
fn is_tool_call(kind: &str) -> bool {
    let gemini = ["executableCode", "toolCall"];
    kind.ends_with("_tool_use") || kind.ends_with("_call") || gemini.contains(&kind)
}
