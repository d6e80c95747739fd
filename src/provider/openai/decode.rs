//! Decodes the events of a response into chunks.
//!
//! The response is complete with `[DONE]`, or if the stream ends after a finish reason: some
//! services then close the stream or leave it open. A stream that ends before is an error even if
//! text arrived, because whatever cut it off may have cut more.

use serde_json::{json, value::RawValue};

use super::{
    KIND,
    calls::Calls,
    citations::Citations,
    dialect::Dialect,
    reasoning_details::{self, Details},
    usage,
    wire::{self, Content, Delta},
};
use crate::{
    model::{FinishReason, Usage, json::replace_lone_surrogates},
    provider::{
        Chunk, Finish, authorship,
        chunk::TextKind,
        error::Kind,
        generated_image,
        http::{
            Chunks, Decoded, Fault, classify,
            lenient::{self, Joiner, Piece},
            sse, stream,
        },
    },
};

/// The last event of a stream.
const DONE: &str = "[DONE]";

/// Limit on the bytes of an unreadable image that is kept as an item.
const MAX_IMAGE_BYTES: usize = 64 << 10;

/// Decodes one response.
#[derive(Debug, Default)]
pub struct Decoder {
    reasoning_outside: bool,
    /// Fingerprint of the prompt, for a model that binds its reasoning to it.
    fingerprint: Option<String>,
    id: String,
    model: String,
    /// The service tier, as reported.
    tier: String,
    calls: Calls,
    /// Reasoning details that were not emitted yet.
    details: Details,
    citations: Citations,
    /// Output of another kind was written after the last text.
    interrupted: bool,
    /// The kind of the last text.
    text_kind: TextKind,
    joiner: Joiner,
    has_content: bool,
    refused: bool,
    finish: Option<String>,
    native_finish: Option<String>,
    usage: Option<Usage>,
}

impl Decoder {
    /// Creates a decoder of the response to a prompt with this fingerprint.
    pub fn new(dialect: &Dialect, fingerprint: Option<String>) -> Self {
        Self { reasoning_outside: dialect.reasoning_outside, fingerprint, ..Self::default() }
    }

    fn chunk(&mut self, chunk: wire::Chunk, chunks: &mut Chunks) -> Decoded {
        chunk.id.keep_in(&mut self.id);
        chunk.model.keep_in(&mut self.model);
        chunk.service_tier.keep_in(&mut self.tier);
        // The last report applies; reports are cumulative.
        let report = chunk.usage.or_else(|| usage::of_groq(&chunk.x_groq?));
        if let Some(usage) = report.and_then(|report| usage::read(&report, self.reasoning_outside)) {
            self.usage = Some(usage);
        }
        // Only one choice was requested.
        let first = |choice: &wire::Choice| choice.index.0.unwrap_or(0) == 0;
        for choice in chunk.choices.into_iter().flatten().filter(first) {
            if let Some(delta) = choice.delta {
                self.delta(delta, chunks)?;
            }
            self.finish = choice.finish_reason.some().or(self.finish.take());
            let native = choice.native_finish_reason.some();
            self.native_finish = native.or(self.native_finish.take());
        }
        if self.ends_with_text() {
            self.citations.search([chunk.search_results, chunk.citations], chunks);
        }
        Ok(())
    }

    /// Decodes a delta. Reasoning is emitted before text, and text before calls.
    fn delta(&mut self, delta: Delta, chunks: &mut Chunks) -> Decoded {
        let thoughts = [delta.reasoning_content, delta.reasoning].into_iter();
        let thought = thoughts.flatten().find(|text| !text.is_empty());
        let details = delta.reasoning_details.unwrap_or_default();
        let thought = thought.or_else(|| reasoning_details::text(&details)).unwrap_or_default();
        self.add_text(TextKind::Reasoning, &thought, chunks);
        self.details.add(details);
        match delta.content {
            Some(Content::Text(text)) => self.add_text(TextKind::Text, &text, chunks),
            Some(Content::Parts(parts)) => {
                for part in parts {
                    match (part.kind.0.as_str(), part.thinking, part.text) {
                        ("thinking", Some(thinking), _) => self.add_text(TextKind::Reasoning, &thinking.text(), chunks),
                        ("text", _, Some(text)) => self.add_text(TextKind::Text, &text, chunks),
                        (_, _, _) => {}
                    }
                    if let Some(image) = part.image_url {
                        self.show(&image, chunks);
                    }
                }
            }
            None => {}
        }
        if self.ends_with_text() {
            self.citations.annotate(delta.annotations, chunks);
        }
        self.add_text(TextKind::Refusal, &delta.refusal.unwrap_or_default(), chunks);
        for image in delta.images.unwrap_or_default() {
            let members = lenient::members(image.get());
            self.show(members.get("image_url").unwrap_or(&image), chunks);
        }
        for fragment in delta.tool_calls.unwrap_or_default() {
            self.interrupt(chunks);
            self.calls.take(fragment, chunks)?;
        }
        if let Some(function) = delta.function_call {
            self.interrupt(chunks);
            self.calls.take_only(function, chunks)?;
        }
        Ok(())
    }

    fn add_text(&mut self, voice: TextKind, piece: &Piece, chunks: &mut Chunks) {
        if piece.is_empty() {
            return;
        }
        self.calls.interrupt(chunks);
        if voice != self.text_kind {
            self.end_text(chunks);
        }
        if voice != TextKind::Reasoning {
            self.hand_out_details(chunks);
        }
        let continues = self.ends_with_text();
        self.text_kind = voice;
        self.interrupted = false;
        self.has_content = true;
        self.refused |= voice == TextKind::Refusal;
        let text = self.joiner.join(piece);
        if voice == TextKind::Text {
            self.citations.take_text(&text.text, continues);
        }
        chunks.text(voice, text);
    }

    /// Handles an image that the model generated: a URL, or an object that contains one. An
    /// unreadable one is kept as an item, unless it is too large.
    fn show(&mut self, image: &RawValue, chunks: &mut Chunks) {
        let value = lenient::value(image.get()).unwrap_or_default();
        let url = value["url"].as_str().or(value.as_str());
        self.interrupt(chunks);
        self.calls.interrupt(chunks);
        chunks.push(match url.and_then(generated_image::at) {
            Some(image) => Chunk::Image(image),
            None => {
                let json = if image.get().len() > MAX_IMAGE_BYTES {
                    json!({"url": null}).to_string()
                } else {
                    replace_lone_surrogates(image.get()).into_owned()
                };
                Chunk::Item(authorship::item("image_url", json, "A picture that cannot be read"))
            }
        });
    }

    /// Whether a citation that arrives now belongs to the text that was written last.
    fn ends_with_text(&self) -> bool {
        self.text_kind == TextKind::Text && !self.interrupted
    }

    /// Ends the current text before content of another kind.
    fn interrupt(&mut self, chunks: &mut Chunks) {
        self.end_text(chunks);
        self.hand_out_details(chunks);
        self.has_content = true;
        self.interrupted = true;
    }

    fn end_text(&mut self, chunks: &mut Chunks) {
        chunks.end_text(self.text_kind, &mut self.joiner);
    }

    /// Attaches the details to the reasoning before them. Without reasoning before them, the
    /// service redacted it.
    fn hand_out_details(&mut self, chunks: &mut Chunks) {
        if !self.details.is_empty() {
            self.end_text(chunks);
            self.calls.interrupt(chunks);
            self.interrupted = true;
            let details = std::mem::take(&mut self.details).close();
            chunks.push(Chunk::Reasoning(String::new()));
            chunks.attach(KIND, json!({"reasoning_details": details}));
        }
    }

    /// Completes the response.
    fn complete(&mut self, chunks: &mut Chunks) -> Decoded {
        self.end_text(chunks);
        self.hand_out_details(chunks);
        self.calls.close(chunks)?;
        let reason = match &self.finish {
            Some(word) => finish_reason(word)?,
            None if self.has_content => FinishReason::Stop,
            None => return Err(Fault::broken("the response was empty")),
        };
        let cut_off = self.native_finish.as_deref().is_some_and(is_length);
        let whole = matches!(reason, FinishReason::Stop | FinishReason::ToolCalls);
        let reason = match (whole, cut_off) {
            (true, true) => FinishReason::Length,
            (true, false) if self.refused && reason == FinishReason::Stop => FinishReason::Refusal,
            (_, _) => reason,
        };
        let tier = std::mem::take(&mut self.tier);
        let metadata = || authorship::metadata(KIND, json!({"service_tier": tier}));
        chunks.push(Chunk::Finished(Finish {
            reason,
            provider_reason: self.finish.clone().unwrap_or_default(),
            usage: self.usage.take(),
            prompt_usage: None,
            provider_model: std::mem::take(&mut self.model),
            response_id: std::mem::take(&mut self.id),
            metadata: (!tier.is_empty()).then(metadata),
            prompt_fingerprint: self.fingerprint.take(),
        }));
        Ok(())
    }
}

impl stream::Decoder for Decoder {
    fn event(&mut self, event: &sse::Event, chunks: &mut Chunks) -> Decoded {
        let data = event.data.trim();
        if event.name == "error" {
            return Err(classify::event_fault(data));
        }
        if data == DONE {
            return self.complete(chunks);
        }
        // Some services send empty data to keep the connection open.
        if data.is_empty() {
            return Ok(());
        }
        match serde_json::from_str::<wire::Chunk>(data) {
            Ok(wire::Chunk { error: Some(error), .. }) => Err(classify::error_fault(&error)),
            Ok(chunk) if chunk.object.0 == "error" => Err(classify::event_fault(data)),
            Ok(chunk) => self.chunk(chunk, chunks),
            // Named events do not belong to this API. A proxy may have added them.
            Err(_) if !event.name.is_empty() && event.name != "message" => Ok(()),
            Err(error) => Err(Fault::unreadable(&error)),
        }
    }

    fn has_finish_reason(&self) -> bool {
        self.finish.is_some()
    }

    fn end(&mut self, chunks: &mut Chunks) -> Decoded {
        if self.finish.is_some() {
            return self.complete(chunks);
        }
        Err(Fault::broken("the response ended without its end marker"))
    }
}

impl Content {
    /// Joins the content into one text.
    fn text(self) -> Piece {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => {
                let mut whole = Piece::default();
                let texts = parts.into_iter().filter_map(|part| part.text);
                texts.for_each(|text| whole.extend(&text));
                whole
            }
        }
    }
}

/// Maps a finish reason. An unknown value ends a complete response, because `[DONE]` was received.
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
    let message = format!("the service aborted the response: {word}");
    Fault { code: word.to_owned(), ..Fault::new(kind, message) }
}

/// Whether the response reached its limit or the end of the context window, in the terms of
/// services and of their upstream services.
fn is_length(word: &str) -> bool {
    const WORDS: &[&str] =
        &["length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"];
    WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}
