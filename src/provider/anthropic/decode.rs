//! Events of an answer to chunks.
//!
//! The answer is complete with `message_stop`. Its absence is an error even when a stop reason was
//! given, because whatever cut the stream off may have cut more. Unknown events and deltas say
//! nothing; unknown blocks are items that only the service can read.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde::de::DeserializeOwned;
use serde_json::{json, value::RawValue};

use super::{
    KIND,
    block::{Block, MAX_HELD_BYTES},
    hosted::Room,
    usage::Report,
    wire::{Delta, Event, Started},
};
use crate::{
    model::FinishReason,
    provider::{
        Chunk, Finish,
        http::{
            Fault, Said,
            classify::{self, Place},
            lenient::{self, Word},
            sse, stream,
        },
    },
};

/// Bytes of something that the service attached to the whole answer; more are not kept.
const MAX_ATTACHED_BYTES: usize = 16 << 10;

/// An answer that is being decoded.
#[derive(Debug, Default)]
pub struct Decoder {
    /// What the prompt that it continues hashes to.
    fingerprint: Option<String>,
    id: String,
    model: String,
    /// The blocks that are being written, by the service's number.
    open: BTreeMap<i64, Open>,
    /// The largest number of a block that began.
    begun: Option<i64>,
    /// The message began.
    started: bool,
    /// Calls that began.
    calls: u32,
    /// Something was said.
    said: bool,
    report: Report,
    finish: Option<String>,
    /// What the service attached to the whole answer.
    attached: BTreeMap<&'static str, Box<RawValue>>,
    /// Something of the answer was handed out.
    shown: bool,
    /// The room for results of the service's own tools.
    room: Room,
}

/// A block that is being written, and the bytes of it that are kept until it ends.
#[derive(Debug)]
struct Open {
    block: Block,
    held: usize,
    /// A hash of what it began with.
    began: u64,
    /// Something was added to it.
    extended: bool,
}

impl Decoder {
    /// A decoder of the answer to a prompt of that fingerprint.
    pub fn new(fingerprint: Option<String>) -> Self {
        Self {
            fingerprint,
            ..Self::default()
        }
    }

    fn handle(&mut self, event: Event, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        let Event {
            kind,
            message,
            index,
            content_block,
            delta,
            usage,
            error: _,
            context_management,
            input_transformations,
        } = event;
        let index = index.and_then(|index| index.0).unwrap_or(0);
        match kind.0.as_str() {
            "message_start" => self.start(read(message)?, chunks),
            "content_block_start" => match content_block {
                Some(block) => self.open_block(index, &block, chunks),
                None => Ok(()),
            },
            "content_block_delta" => match (self.open.get_mut(&index), delta) {
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
                Some(Open { block, .. }) => {
                    block.close(&mut self.room, chunks);
                    Ok(())
                }
                None => self.check_begun(index),
            },
            "message_delta" => {
                self.attach([
                    ("context_management", context_management),
                    ("input_transformations", input_transformations),
                ]);
                self.end_of_message(read(delta)?);
                usage.iter().for_each(|report| self.report.add(report));
                Ok(())
            }
            "message_stop" => self.complete(chunks),
            _ => Ok(()),
        }
    }

    /// A gateway may say twice that the message begins, and one that calls another service itself
    /// begins again: what came before is forgotten. Once something was handed out it cannot be taken
    /// back here: the call is made again, which voids it.
    fn start(&mut self, started: Started, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        // Without a beginning before it, the blocks are those of this message.
        let is_late = !self.started && self.open.values().any(|open| open.block.is_held());
        if self.shown || is_late {
            return Err(Fault::broken("the answer began again in its middle"));
        }
        let fingerprint = self.fingerprint.take();
        *self = Self::new(fingerprint);
        self.started = true;
        let Started {
            id,
            model,
            content,
            stop_reason,
            usage,
            container,
            context_management,
            input_transformations,
        } = started;
        self.id = id.0;
        self.model = model.0;
        self.attach([
            ("container", container),
            ("context_management", context_management),
            ("input_transformations", input_transformations),
        ]);
        usage.iter().for_each(|report| self.report.add(report));
        // The answer to results of calls that a program of the model's made may come so, as a whole.
        let blocks: Vec<Box<RawValue>> = content
            .and_then(|content| serde_json::from_str(content.get()).ok())
            .unwrap_or_default();
        for (index, block) in (0..).zip(&blocks) {
            self.open_block(index, block, chunks)?;
            if let Some(Open { block, .. }) = self.open.remove(&index) {
                block.close(&mut self.room, chunks);
            }
        }
        if !stop_reason.0.is_empty() {
            self.finish = Some(stop_reason.0);
        }
        Ok(())
    }

    /// Keeps what the service attached to the whole answer; a later one replaces it.
    fn attach<const N: usize>(&mut self, attached: [(&'static str, Option<Box<RawValue>>); N]) {
        let attached = attached
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .filter(|(_, value)| value.get() != "null" && value.get().len() <= MAX_ATTACHED_BYTES);
        self.attached.extend(attached);
    }

    fn open_block(
        &mut self,
        index: i64,
        block: &RawValue,
        chunks: &mut VecDeque<Chunk>,
    ) -> Result<(), Fault> {
        let mut hasher = DefaultHasher::new();
        block.get().hash(&mut hasher);
        let began = hasher.finish();
        match self.open.get(&index) {
            Some(open) if open.began == began && !open.extended => return Ok(()),
            Some(open) if open.began == began && has_id(block) => {
                return Err(Fault::broken("a block of the answer began twice"));
            }
            Some(_) | None => {}
        }
        // A service that does not end the one before means the same number.
        if let Some(Open { block, .. }) = self.open.remove(&index) {
            block.close(&mut self.room, chunks);
        }
        self.said = true;
        self.begun = self.begun.max(Some(index));
        let held = block.get().len();
        let block = Block::open(block, self.calls, chunks)?;
        self.calls += u32::from(block.is_call());
        let open = Open {
            block,
            held,
            began,
            extended: false,
        };
        self.open.insert(index, open);
        self.check_held()
    }

    fn check_held(&self) -> Result<(), Fault> {
        let held = self.open.values().map(|open| open.held);
        if held.fold(0, usize::saturating_add) > MAX_HELD_BYTES {
            return Err(Fault {
                should_retry: Some(false),
                ..Fault::broken("the blocks of the answer have no end")
            });
        }
        Ok(())
    }

    fn end_of_message(&mut self, delta: Delta) {
        let Delta {
            stop_reason,
            stop_details,
            container,
            context_management,
            input_transformations,
            ..
        } = delta;
        if !stop_reason.0.is_empty() {
            self.finish = Some(stop_reason.0);
        }
        self.attach([
            ("stop_details", stop_details),
            ("container", container),
            ("context_management", context_management),
            ("input_transformations", input_transformations),
        ]);
    }

    /// Refuses what belongs to a block beyond all that began: its beginning is missing.
    fn check_begun(&self, index: i64) -> Result<(), Fault> {
        if Some(index) > self.begun {
            return Err(Fault::broken(
                "the beginning of a block of the answer is missing",
            ));
        }
        Ok(())
    }

    /// The answer is complete.
    fn complete(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        for (_, Open { block, .. }) in std::mem::take(&mut self.open) {
            block.close(&mut self.room, chunks);
        }
        let word = self.finish.take().unwrap_or_default();
        if word.is_empty() && !self.said {
            return Err(Fault::broken("the answer was empty"));
        }
        let reason = finish_reason(&word);
        if reason == FinishReason::Refusal && !self.said {
            chunks.extend(self.explanation().map(Chunk::Refusal));
        }
        let attached = std::mem::take(&mut self.attached);
        chunks.push_back(Chunk::Finished(Finish {
            reason,
            provider_reason: word,
            usage: self.report.read(),
            prompt_usage: self.report.last_round(),
            provider_model: std::mem::take(&mut self.model),
            response_id: std::mem::take(&mut self.id),
            metadata: (!attached.is_empty()).then(|| json!({ KIND: attached }).to_string()),
            prompt_fingerprint: self.fingerprint.take(),
        }));
        Ok(())
    }

    /// Why the service refused, in its own words.
    fn explanation(&self) -> Option<String> {
        let details = self.attached.get("stop_details")?;
        let details =
            serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(details.get()).ok()?;
        let word = serde_json::from_str::<Word>(details.get("explanation")?.get()).ok()?;
        Some(word.0).filter(|words| !words.is_empty())
    }
}

impl stream::Decoder for Decoder {
    fn event(&mut self, event: &sse::Event, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        let data = event.data.trim();
        // Gateways end with the marker of another API, after the end of this one.
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let failed = || {
            let said = Said::of_body(data.as_bytes());
            Err(classify::fault(Place::Stream, &said))
        };
        let mut read: Event = match serde_json::from_str(data) {
            Ok(read) => read,
            Err(_) if event.name == "error" => return failed(),
            // A named event of another API, a proxy's perhaps.
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

    fn end(&mut self, _: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        Err(Fault::broken("the answer ended without its end marker"))
    }
}

/// The content of an event of a known type: nothing is passed over that may be a part of the answer.
fn read<T: DeserializeOwned + Default>(raw: Option<Box<RawValue>>) -> Result<T, Fault> {
    let read = raw.map(|raw| serde_json::from_str(raw.get()));
    let read = read
        .transpose()
        .map_err(|error| Fault::unreadable(&error))?;
    Ok(read.unwrap_or_default())
}

/// Whether a block has an id, so that no other one begins as it does.
fn has_id(block: &RawValue) -> bool {
    let members = lenient::members(block.get());
    let id = members.get("id").map(|raw| lenient::word(raw));
    id.is_some_and(|id| !id.is_empty())
}

/// Takes a piece of a block that never began, or has ended: an answer without it would lack what the
/// model said.
fn without_block(delta: &Delta) -> Result<(), Fault> {
    let pieces = [&delta.text, &delta.thinking, &delta.partial_json];
    if pieces.into_iter().flatten().any(|piece| !piece.is_empty()) {
        return Err(Fault::broken(
            "a piece of the answer belongs to no block of it",
        ));
    }
    Ok(())
}

/// Whether a type is one of those that an answer is made of.
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

/// Whether an event without a type says that something failed, as gateways do.
fn is_error(event: &Event) -> bool {
    matches!(event.kind.0.as_str(), "" | "message") && event.error.is_some()
}

/// Why a model stopped. An unknown value ends a complete answer: `message_stop` has come.
fn finish_reason(word: &str) -> FinishReason {
    match word {
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::Refusal,
        // The service compacted the conversation and waits to be called again.
        "pause_turn" | "compaction" => FinishReason::Paused,
        _ => FinishReason::Stop,
    }
}
