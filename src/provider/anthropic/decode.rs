//! Decodes the events of a response into chunks.
//!
//! The response is complete with `message_stop`. A missing `message_stop` is an error even after a
//! stop reason, because whatever cut the stream off may have cut more. Unknown events and deltas
//! are ignored; unknown blocks become items that only the service can read.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{
    KIND,
    block::{Block, MAX_HELD_BYTES},
    hosted::ResultBudget,
    usage,
    wire::{Delta, Event, MessageStart},
};
use crate::{
    model::FinishReason,
    provider::{
        Chunk, Finish, authorship,
        http::{Chunks, Decoded, Fault, classify, lenient, report::MergedReport, sse, stream},
    },
};

/// Limit on the bytes of one metadata value attached to the whole response. A larger value is
/// dropped.
const MAX_ATTACHED_BYTES: usize = 16 << 10;

/// Decodes one response.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Fingerprint of the prompt that the response follows.
    fingerprint: Option<String>,
    id: String,
    model: String,
    /// Blocks that are still streaming, by the service's index.
    open: BTreeMap<i64, OpenBlock>,
    /// The highest index of a block that has started.
    last_started_index: Option<i64>,
    /// `message_start` was received.
    started: bool,
    /// Number of tool calls that have started.
    calls: u32,
    /// The response has content.
    has_content: bool,
    report: MergedReport,
    finish: Option<String>,
    /// Metadata that the service attached to the whole response.
    attached: BTreeMap<&'static str, Box<RawValue>>,
    /// Content has been emitted.
    shown: bool,
    /// Remaining space for results of server tools.
    room: ResultBudget,
}

/// A block that is still streaming, and the number of its bytes that are buffered.
#[derive(Debug)]
struct OpenBlock {
    block: Block,
    held: usize,
    /// Hash of the start of the block.
    start_hash: u64,
    /// A delta was applied to the block.
    extended: bool,
}

impl Decoder {
    /// Creates a decoder of the response to a prompt with this fingerprint.
    pub fn new(fingerprint: Option<String>) -> Self {
        Self { fingerprint, ..Self::default() }
    }

    fn handle(&mut self, event: Event, chunks: &mut Chunks) -> Decoded {
        let index = event.index.0.unwrap_or(0);
        match event.kind.0.as_str() {
            "message_start" => self.start(read(event.message)?, chunks),
            "content_block_start" => match event.content_block {
                Some(block) => self.open_block(index, &block, chunks),
                None => Ok(()),
            },
            "content_block_delta" => match (self.open.get_mut(&index), event.delta) {
                (Some(open), Some(delta)) => {
                    open.extended = true;
                    let held = open.block.extend(read(Some(delta))?, chunks);
                    open.held = open.held.saturating_add(held);
                    self.check_held()
                }
                (None, Some(delta)) => {
                    self.check_begun(index)?;
                    without_block(&read(Some(delta))?)
                }
                (_, None) => Ok(()),
            },
            "content_block_stop" => match self.open.remove(&index) {
                Some(OpenBlock { block, .. }) => {
                    block.close(&mut self.room, chunks);
                    Ok(())
                }
                None => self.check_begun(index),
            },
            "message_delta" => {
                self.attach([
                    ("context_management", event.context_management),
                    ("input_transformations", event.input_transformations),
                ]);
                self.end_of_message(read(event.delta)?);
                event.usage.iter().for_each(|it| self.report.add(it));
                Ok(())
            }
            "message_stop" => self.complete(chunks),
            _ => Ok(()),
        }
    }

    /// Handles `message_start`. A gateway may send it twice, and one that falls back to another
    /// service starts again: what arrived before is discarded. Content that has been emitted cannot
    /// be taken back here; the call fails and is retried, which discards it.
    fn start(&mut self, started: MessageStart, chunks: &mut Chunks) -> Decoded {
        // Without an earlier `message_start`, the open blocks belong to this message.
        let is_late = !self.started && self.open.values().any(|open| open.block.is_held());
        if self.shown || is_late {
            return Err(Fault::broken("the response was restarted after content was received"));
        }
        let fingerprint = self.fingerprint.take();
        *self = Self::new(fingerprint);
        self.started = true;
        self.id = started.id.0;
        self.model = started.model.0;
        self.attach([
            ("container", started.container),
            ("context_management", started.context_management),
            ("input_transformations", started.input_transformations),
        ]);
        started.usage.iter().for_each(|it| self.report.add(it));
        // The response to the results of programmatic tool calls may contain all content in this
        // event.
        let blocks = started.content.as_deref();
        let blocks: Vec<Box<RawValue>> = blocks.map(lenient::read).unwrap_or_default();
        for (index, block) in (0..).zip(&blocks) {
            self.open_block(index, block, chunks)?;
            if let Some(OpenBlock { block, .. }) = self.open.remove(&index) {
                block.close(&mut self.room, chunks);
            }
        }
        self.finish = started.stop_reason.some();
        Ok(())
    }

    /// Keeps metadata of the whole response. A later value replaces an earlier one.
    fn attach<const N: usize>(&mut self, attached: [(&'static str, Option<Box<RawValue>>); N]) {
        let attached = attached
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .filter(|(_, value)| value.get() != "null" && value.get().len() <= MAX_ATTACHED_BYTES);
        self.attached.extend(attached);
    }

    fn open_block(&mut self, index: i64, block: &RawValue, chunks: &mut Chunks) -> Decoded {
        let mut hasher = DefaultHasher::new();
        block.get().hash(&mut hasher);
        let began = hasher.finish();
        match self.open.get(&index) {
            Some(open) if open.start_hash == began && !open.extended => return Ok(()),
            Some(open) if open.start_hash == began && has_id(block) => {
                return Err(Fault::broken("a content block of the response started twice"));
            }
            Some(_) | None => {}
        }
        // The service did not end the previous block of this index.
        if let Some(OpenBlock { block, .. }) = self.open.remove(&index) {
            block.close(&mut self.room, chunks);
        }
        self.has_content = true;
        self.last_started_index = self.last_started_index.max(Some(index));
        let held = block.get().len();
        let block = Block::open(block, self.calls, chunks)?;
        self.calls += u32::from(block.is_call());
        let open = OpenBlock { block, held, start_hash: began, extended: false };
        self.open.insert(index, open);
        self.check_held()
    }

    fn check_held(&self) -> Decoded {
        let held = self.open.values().map(|open| open.held);
        if held.fold(0, usize::saturating_add) > MAX_HELD_BYTES {
            return Err(Fault::oversized("the content blocks of the response are too large"));
        }
        Ok(())
    }

    fn end_of_message(&mut self, delta: Delta) {
        self.finish = delta.stop_reason.some().or(self.finish.take());
        self.attach([
            ("stop_details", delta.stop_details),
            ("container", delta.container),
            ("context_management", delta.context_management),
            ("input_transformations", delta.input_transformations),
        ]);
    }

    /// Rejects an event for a block beyond those that have started: the start of that block is
    /// missing.
    fn check_begun(&self, index: i64) -> Decoded {
        if Some(index) > self.last_started_index {
            return Err(Fault::broken("the start of a content block is missing"));
        }
        Ok(())
    }

    /// Completes the response.
    fn complete(&mut self, chunks: &mut Chunks) -> Decoded {
        for (_, OpenBlock { block, .. }) in std::mem::take(&mut self.open) {
            block.close(&mut self.room, chunks);
        }
        let word = self.finish.take().unwrap_or_default();
        if word.is_empty() && !self.has_content {
            return Err(Fault::broken("the response was empty"));
        }
        let reason = finish_reason(&word);
        if reason == FinishReason::Refusal && !self.has_content {
            chunks.extend(self.explanation().map(Chunk::Refusal));
        }
        let attached = std::mem::take(&mut self.attached);
        chunks.push(Chunk::Finished(Finish {
            reason,
            provider_reason: word,
            usage: usage::read(&self.report),
            prompt_usage: usage::last_round(&self.report),
            provider_model: std::mem::take(&mut self.model),
            response_id: std::mem::take(&mut self.id),
            metadata: (!attached.is_empty()).then(|| authorship::metadata(KIND, attached)),
            prompt_fingerprint: self.fingerprint.take(),
        }));
        Ok(())
    }

    /// The service's explanation of a refusal.
    fn explanation(&self) -> Option<String> {
        let details = self.attached.get("stop_details")?;
        Some(lenient::member(details.get(), "explanation")).filter(|words| !words.is_empty())
    }
}

impl stream::Decoder for Decoder {
    fn event(&mut self, event: &sse::Event, chunks: &mut Chunks) -> Decoded {
        let data = event.data.trim();
        // Some gateways append the end marker of another API.
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let failed = || Err(classify::event_fault(data));
        let mut read: Event = match serde_json::from_str(data) {
            Ok(read) => read,
            Err(_) if event.name == "error" => return failed(),
            // A named event of another API, possibly added by a proxy.
            Err(_) if !matches!(event.name.as_str(), "" | "message") && !is_known(&event.name) => {
                return Ok(());
            }
            Err(error) => return Err(Fault::unreadable(&error)),
        };
        if read.kind.0.is_empty() {
            read.kind.0.clone_from(&event.name);
        }
        let kind = read.kind.0.as_str();
        if event.name == "error" || kind == "error" || is_error(&read) {
            return failed();
        }
        let before = chunks.len();
        let handled = self.handle(read, chunks);
        self.shown |= chunks.len() > before;
        handled
    }

    fn end(&mut self, _: &mut Chunks) -> Decoded {
        Err(Fault::broken("the response ended without its end marker"))
    }
}

/// Parses the payload of an event of a known type. A malformed payload is an error, because it may
/// be part of the response.
fn read<T: DeserializeOwned + Default>(raw: Option<Box<RawValue>>) -> Result<T, Fault> {
    let read = raw.map(|raw| serde_json::from_str(raw.get()));
    let read = read.transpose().map_err(|error| Fault::unreadable(&error))?;
    Ok(read.unwrap_or_default())
}

/// Whether a block has an id, so that no other block can have an equal start.
fn has_id(block: &RawValue) -> bool {
    !lenient::member(block.get(), "id").is_empty()
}

/// Handles a delta of a block that never started or has ended. Content is an error, because the
/// response would lack it.
fn without_block(delta: &Delta) -> Decoded {
    let pieces = [&delta.text, &delta.thinking, &delta.partial_json];
    if pieces.into_iter().flatten().any(|piece| !piece.is_empty()) {
        return Err(Fault::broken("received content for a block that has not started or has ended"));
    }
    Ok(())
}

/// Whether an event type is one of those that make up a response.
fn is_known(kind: &str) -> bool {
    matches!(
        kind,
        "message_start"
            | "content_block_start"
            | "content_block_delta"
            | "content_block_stop"
            | "message_delta"
            | "message_stop"
    )
}

/// Whether an event without a type reports an error, as gateways send it.
fn is_error(event: &Event) -> bool {
    matches!(event.kind.0.as_str(), "" | "message") && event.error.is_some()
}

/// Maps a stop reason. An unknown value ends a complete response, because `message_stop` was
/// received.
fn finish_reason(word: &str) -> FinishReason {
    match word {
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::Refusal,
        // The service compacted the conversation and expects to be called again.
        "pause_turn" | "compaction" => FinishReason::Paused,
        _ => FinishReason::Stop,
    }
}
