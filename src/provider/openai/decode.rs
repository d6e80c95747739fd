//! Events of an answer to chunks.
//!
//! The answer is complete with `[DONE]`. Its absence is an error even when text arrived and a finish reason was given, because
//! whatever cut the stream off may have cut more. Perplexity alone closes without it, once it has said why it ends.

use std::collections::VecDeque;

use serde_json::{Map, Value, json, value::RawValue};

use super::{
    calls::Calls,
    details,
    dialect::Dialect,
    usage,
    wire::{self, Content, Delta, Thinking},
};
use crate::{
    model::{FinishReason, Usage},
    provider::{
        Chunk, Finish,
        error::Kind,
        http::{
            Fault, Said,
            classify::{self, Place},
            sse, stream,
        },
    },
};

/// The event behind which nothing comes.
const DONE: &str = "[DONE]";

/// An answer that is being decoded.
#[derive(Debug)]
pub struct Decoder {
    dialect: &'static Dialect,
    id: String,
    model: String,
    calls: Calls,
    /// Details of reasoning that were not handed out yet.
    details: Vec<Map<String, Value>>,
    said: bool,
    refused: bool,
    finish: Option<String>,
    native_finish: Option<String>,
    usage: Option<Usage>,
}

impl Decoder {
    /// A decoder of one answer.
    pub fn new(dialect: &'static Dialect) -> Self {
        Self {
            dialect,
            id: String::new(),
            model: String::new(),
            calls: Calls::default(),
            details: Vec::new(),
            said: false,
            refused: false,
            finish: None,
            native_finish: None,
            usage: None,
        }
    }

    fn chunk(&mut self, chunk: wire::Chunk, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        keep(&mut self.id, chunk.id);
        keep(&mut self.model, chunk.model);
        // The last report wins, and is cumulative.
        let report = chunk.usage.or(chunk.x_groq.and_then(|groq| groq.usage));
        if let Some(usage) = report.and_then(|report| usage::read(&report, self.dialect)) {
            self.usage = Some(usage);
        }
        // Of several answers only the first was asked for.
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index.unwrap_or(0) == 0) {
            if let Some(delta) = choice.delta {
                self.delta(delta, chunks)?;
            }
            self.finish = choice.finish_reason.filter(|reason| !reason.is_empty()).or(self.finish.take());
            self.native_finish = choice.native_finish_reason.or(self.native_finish.take());
        }
        Ok(())
    }

    /// Reasoning comes before text, and text before calls.
    fn delta(&mut self, delta: Delta, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        let Delta { content, refusal, reasoning, reasoning_content, reasoning_details, tool_calls } = delta;
        let thought = [reasoning_content, reasoning].into_iter().flatten().find(|text| !text.is_empty());
        let details = reasoning_details.unwrap_or_default();
        let thought = thought.or_else(|| details::text(&details)).unwrap_or_default();
        self.think(thought, chunks);
        details::add(&mut self.details, details);
        match content {
            Some(Content::Text(text)) => self.say(text, chunks),
            Some(Content::Parts(parts)) => {
                for part in parts {
                    match part.thinking {
                        Some(thinking) if part.kind == "thinking" => self.think(thinking.into_text(), chunks),
                        _ if part.kind == "text" => self.say(part.text.unwrap_or_default(), chunks),
                        _ => {}
                    }
                }
            }
            None => {}
        }
        if let Some(refusal) = refusal.filter(|refusal| !refusal.is_empty()) {
            self.hand_out_details(chunks);
            (self.said, self.refused) = (true, true);
            chunks.push_back(Chunk::Refusal(refusal));
        }
        for fragment in tool_calls.unwrap_or_default() {
            self.hand_out_details(chunks);
            self.said = true;
            self.calls.take(fragment, chunks)?;
        }
        Ok(())
    }

    fn think(&mut self, text: String, chunks: &mut VecDeque<Chunk>) {
        if !text.is_empty() {
            self.said = true;
            chunks.push_back(Chunk::Reasoning(text));
        }
    }

    fn say(&mut self, text: String, chunks: &mut VecDeque<Chunk>) {
        if !text.is_empty() {
            self.hand_out_details(chunks);
            self.said = true;
            chunks.push_back(Chunk::Text(text));
        }
    }

    /// Attaches the details to the reasoning before them. Where there is none, the service hid it.
    fn hand_out_details(&mut self, chunks: &mut VecDeque<Chunk>) {
        if !self.details.is_empty() {
            let details = std::mem::take(&mut self.details);
            chunks.push_back(Chunk::Reasoning(String::new()));
            chunks.push_back(Chunk::PartMetadata(json!({super::KIND: {"reasoning_details": details}}).to_string()));
        }
    }

    /// The answer is complete.
    fn complete(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        self.hand_out_details(chunks);
        self.calls.close()?;
        let reason = match &self.finish {
            Some(word) => finish_reason(word)?,
            None if self.said => FinishReason::Stop,
            None => return Err(Fault::broken("the answer was empty")),
        };
        let cut_off = self.native_finish.as_deref().is_some_and(is_length);
        let whole = matches!(reason, FinishReason::Stop | FinishReason::ToolCalls);
        let reason = match (whole, cut_off) {
            (true, true) => FinishReason::Length,
            (true, false) if self.refused && reason == FinishReason::Stop => FinishReason::Refusal,
            (_, _) => reason,
        };
        chunks.push_back(Chunk::Finished(Finish {
            reason,
            provider_reason: self.finish.clone().unwrap_or_default(),
            usage: self.usage.take(),
            provider_model: std::mem::take(&mut self.model),
            response_id: std::mem::take(&mut self.id),
        }));
        Ok(())
    }
}

impl stream::Decoder for Decoder {
    fn event(&mut self, event: &sse::Event, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        let data = event.data.trim();
        if event.name == "error" {
            return Err(classify::fault(Place::Stream, &Said::of_body(data.as_bytes())));
        }
        if data == DONE {
            return self.complete(chunks);
        }
        match serde_json::from_str::<wire::Chunk>(data) {
            Ok(wire::Chunk { error: Some(error), .. }) => {
                Err(classify::fault(Place::Stream, &Said::of_json(&json!({ "error": error }))))
            }
            Ok(chunk) if chunk.object.as_deref() == Some("error") => {
                Err(classify::fault(Place::Stream, &Said::of_body(data.as_bytes())))
            }
            Ok(chunk) => self.chunk(chunk, chunks),
            // Named events are nothing of this API's; a proxy's, perhaps.
            Err(_) if !event.name.is_empty() && event.name != "message" => Ok(()),
            Err(error) => {
                Err(Fault::broken(format!("an event of the stream cannot be read: {}", without_content(&error))))
            }
        }
    }

    fn end(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        if self.dialect.closes_without_done && self.finish.is_some() {
            return self.complete(chunks);
        }
        Err(Fault::broken("the answer ended without its end marker"))
    }
}

impl Thinking {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
        }
    }
}

/// Why a model stopped. A word that nobody knows ends a complete answer: `[DONE]` has come.
fn finish_reason(word: &str) -> Result<FinishReason, Fault> {
    match word {
        "tool_calls" | "function_call" => Ok(FinishReason::ToolCalls),
        "content_filter" => Ok(FinishReason::ContentFilter),
        "insufficient_system_resource" => Err(failed(Kind::Overloaded, word)),
        "error" => Err(failed(Kind::Broken, word)),
        word if is_length(word) => Ok(FinishReason::Length),
        _ => Ok(FinishReason::Stop),
    }
}

fn failed(kind: Kind, word: &str) -> Fault {
    let message = format!("the service gave up on the answer: {word}");
    Fault { code: word.to_owned(), ..Fault::new(kind, message) }
}

/// Whether the answer reached its limit, or the end of the window; in the words of services and of those behind them.
fn is_length(word: &str) -> bool {
    const WORDS: &[&str] =
        &["length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"];
    WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Keeps the first value that is not empty.
fn keep(kept: &mut String, value: Option<String>) {
    if kept.is_empty() {
        *kept = value.unwrap_or_default();
    }
}

/// Where JSON is wrong, without what stands there.
fn without_content(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "it is cut off",
        serde_json::error::Category::Data => "it has a field of an unexpected type",
        serde_json::error::Category::Io | serde_json::error::Category::Syntax => "it is not JSON",
    };
    format!("{what}, at byte {}", error.column())
}

/// The text that a piece of arguments adds.
pub(super) fn arguments(raw: &RawValue) -> String {
    serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| raw.get().to_owned())
}
