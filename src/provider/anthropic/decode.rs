//! Events of an answer to chunks.
//!
//! The answer is complete with `message_stop`. Its absence is an error even when a stop reason was
//! given, because whatever cut the stream off may have cut more. Unknown events and deltas say
//! nothing; unknown blocks are items that only the service can read.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{json, value::RawValue};

use super::{
    KIND,
    block::{Block, MAX_HELD_BYTES},
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
            lenient::Word,
            sse, stream,
        },
    },
};

/// An answer that is being decoded.
#[derive(Debug, Default)]
pub struct Decoder {
    /// What the prompt that it continues hashes to.
    fingerprint: Option<String>,
    id: String,
    model: String,
    /// The blocks that are being written, by the service's number.
    open: BTreeMap<i64, Block>,
    /// Calls that began.
    calls: u32,
    /// Something was said.
    said: bool,
    report: Report,
    finish: Option<String>,
    /// What the service attached to the whole answer.
    attached: BTreeMap<&'static str, Box<RawValue>>,
    /// Bytes that are kept until their block ends.
    held: usize,
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
        } = event;
        let index = index.and_then(|index| index.0).unwrap_or(0);
        match kind.0.as_str() {
            "message_start" => self.start(message.unwrap_or_default()),
            "content_block_start" => match content_block {
                Some(block) => self.open_block(index, &block, chunks),
                None => Ok(()),
            },
            "content_block_delta" => match (self.open.get_mut(&index), delta) {
                (Some(block), Some(delta)) => {
                    self.held = self.held.saturating_add(block.extend(delta, chunks));
                    self.check_held()
                }
                (_, _) => Ok(()),
            },
            "content_block_stop" => {
                if let Some(block) = self.open.remove(&index) {
                    block.close(chunks);
                }
                Ok(())
            }
            "message_delta" => {
                self.end_of_message(delta.unwrap_or_default());
                usage.iter().for_each(|report| self.report.add(report));
                Ok(())
            }
            "message_stop" => self.complete(chunks),
            _ => Ok(()),
        }
    }

    /// A gateway may say twice that the message begins. One that begins again after something was
    /// said cannot take that back: the call is made again.
    fn start(&mut self, started: Started) -> Result<(), Fault> {
        if self.said {
            return Err(Fault::broken("the answer began again in its middle"));
        }
        let Started { id, model, usage } = started;
        self.id = id.0;
        self.model = model.0;
        usage.iter().for_each(|report| self.report.add(report));
        Ok(())
    }

    fn open_block(
        &mut self,
        index: i64,
        block: &RawValue,
        chunks: &mut VecDeque<Chunk>,
    ) -> Result<(), Fault> {
        // Whoever does not end the one before means the same number.
        if let Some(before) = self.open.remove(&index) {
            before.close(chunks);
        }
        self.said = true;
        let opened = Block::open(block, self.calls, chunks);
        self.calls += u32::from(opened.is_call());
        self.held = self.held.saturating_add(block.get().len());
        self.open.insert(index, opened);
        self.check_held()
    }

    fn check_held(&self) -> Result<(), Fault> {
        if self.held > MAX_HELD_BYTES {
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
            ..
        } = delta;
        if !stop_reason.0.is_empty() {
            self.finish = Some(stop_reason.0);
        }
        let attached = [("stop_details", stop_details), ("container", container)];
        let attached = attached
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .filter(|(_, value)| value.get() != "null");
        self.attached.extend(attached);
    }

    /// The answer is complete.
    fn complete(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        for (_, block) in std::mem::take(&mut self.open) {
            block.close(chunks);
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
        match serde_json::from_str::<Event>(data) {
            Ok(read) if event.name == "error" || read.kind.0 == "error" => Err(classify::fault(
                Place::Stream,
                &Said::of_body(data.as_bytes()),
            )),
            Ok(read) => self.handle(read, chunks),
            Err(_) if event.name == "error" => Err(classify::fault(
                Place::Stream,
                &Said::of_body(data.as_bytes()),
            )),
            Err(error) => Err(Fault::unreadable(&error)),
        }
    }

    fn end(&mut self, _: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        Err(Fault::broken("the answer ended without its end marker"))
    }
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
