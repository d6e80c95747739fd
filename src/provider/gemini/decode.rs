//! Decodes the events of a response into chunks.
//!
//! Each event holds complete new parts. Consecutive texts of one kind are one part, unless one of
//! them is signed: a signature belongs to exactly the part that it arrived with. There is no end
//! marker. The response is complete when the connection closes after a finish reason, of which
//! there may be several.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json, value::RawValue};

use super::{
    KIND,
    arguments::Arguments,
    citations::citations,
    items, names, usage,
    wire::{self, Candidate, FunctionCall, ResponsePart},
};
use crate::{
    model::{FinishReason, json::replace_lone_surrogates},
    provider::{
        Chunk, Finish, GeneratedImage, authorship,
        chunk::TextKind,
        error::Kind,
        http::{
            Chunks, Decoded, Fault, classify,
            lenient::{self, Joiner, LenientString, Piece, Text},
            report::MergedReport,
            sse, stream,
        },
    },
};

/// Fields of a part that are not its content.
const NON_CONTENT_FIELDS: &[&str] = &["thought", "thoughtSignature", "partMetadata", "videoMetadata"];

/// Limit on the bytes that are buffered until they are emitted: streamed arguments, and metadata of
/// the whole response.
const MAX_HELD_BYTES: usize = 8 << 20;

/// A call whose arguments are still streaming.
#[derive(Debug)]
struct OpenCall {
    index: u32,
    arguments: Arguments,
}

/// Decodes one response.
#[derive(Debug, Default)]
pub struct Decoder {
    id: String,
    model: String,
    /// Number of calls that have started.
    calls: u32,
    open: Option<OpenCall>,
    /// The kind of the last text.
    text_kind: TextKind,
    joiner: Joiner,
    /// The next text starts a new part.
    sealed: bool,
    /// The text of the part that was written last. Empty if that is not a text part.
    text: String,
    /// A signature without text, held until another part follows: citations of the text come before
    /// it.
    signature: Option<(TextKind, String)>,
    /// The response has content.
    has_content: bool,
    report: MergedReport,
    finish: Option<String>,
    /// Why the prompt was blocked.
    blocked: Option<String>,
    /// Metadata that the service attached to the whole response.
    attached: BTreeMap<&'static str, Box<RawValue>>,
}

impl Decoder {
    fn chunk(&mut self, chunk: wire::Chunk, chunks: &mut Chunks) -> Decoded {
        chunk.response_id.keep_in(&mut self.id);
        chunk.model_version.keep_in(&mut self.model);
        if let Some(report) = chunk.usage_metadata {
            self.report.add(&report);
        }
        if let Some(word) = word(chunk.prompt_feedback.unwrap_or_default().block_reason) {
            self.blocked = Some(word);
        }
        // Only one candidate was requested.
        let first = |candidate: &Candidate| candidate.index.0.unwrap_or(0) == 0;
        for candidate in chunk.candidates.into_iter().flatten().filter(first) {
            self.candidate(candidate, chunks)?;
        }
        Ok(())
    }

    fn candidate(&mut self, candidate: Candidate, chunks: &mut Chunks) -> Decoded {
        let parts = candidate.content.and_then(|content| content.parts);
        for raw in parts.unwrap_or_default() {
            self.part(&raw, chunks)?;
        }
        self.finish = word(candidate.finish_reason).or(self.finish.take());
        let attached = [
            ("groundingMetadata", candidate.grounding_metadata),
            ("urlContextMetadata", candidate.url_context_metadata),
            ("citationMetadata", candidate.citation_metadata),
        ];
        let attached = attached
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .filter(|(_, value)| !matches!(value.get(), "null" | "{}"));
        self.attached.extend(attached);
        let held: usize = self.attached.values().map(|raw| raw.get().len()).sum();
        if held > MAX_HELD_BYTES {
            return Err(Fault::oversized("the metadata of the response is too large"));
        }
        Ok(())
    }

    fn part(&mut self, raw: &RawValue, chunks: &mut Chunks) -> Decoded {
        let part = parse_part(raw)?;
        let signature = part.thought_signature.0;
        let voice = match part.thought {
            Some(true) => TextKind::Reasoning,
            Some(false) | None => TextKind::Text,
        };
        match (part.function_call, part.text) {
            (Some(call), _) => self.call(call, &signature, chunks)?,
            (None, Some(text)) => self.add_text(voice, &text, signature, chunks),
            (None, None) => self.other(raw, signature, chunks),
        }
        Ok(())
    }

    /// Handles a part that is neither text nor a call: a provider item, an image, or only a
    /// signature.
    fn other(&mut self, raw: &RawValue, signature: String, chunks: &mut Chunks) {
        let fields = lenient::members(raw.get());
        match fields.keys().find(|key| !NON_CONTENT_FIELDS.contains(&key.as_str())) {
            Some(kind) => {
                self.interrupt(chunks);
                self.has_content = true;
                match items::picture(kind, raw) {
                    Some(made) => {
                        chunks.push(Chunk::Image(GeneratedImage::Content(made)));
                        if !signature.is_empty() {
                            attach(&signature, chunks);
                        }
                    }
                    None => chunks.push(Chunk::Item(items::item(kind, raw))),
                }
            }
            None => self.add_text(TextKind::Text, &Piece::default(), signature, chunks),
        }
    }

    /// Handles text. A signed text is a separate part.
    fn add_text(&mut self, voice: TextKind, piece: &Piece, signature: String, chunks: &mut Chunks) {
        if piece.is_empty() && signature.is_empty() {
            return;
        }
        self.has_content = true;
        self.close_call(true, chunks);
        self.hand_out_signature(chunks);
        if piece.is_empty() {
            self.end_text(chunks);
            self.signature = Some((voice, signature));
            return;
        }
        if voice != self.text_kind || !signature.is_empty() || self.sealed {
            self.end_text(chunks);
            self.text.clear();
            self.text_kind = voice;
        }
        self.sealed = !signature.is_empty();
        if self.sealed {
            chunks.push(Chunk::PartEnded);
        }
        let joined = self.joiner.join(piece);
        self.add(joined, chunks);
        if self.sealed {
            self.end_text(chunks);
            attach(&signature, chunks);
        }
    }

    fn add(&mut self, text: Text, chunks: &mut Chunks) {
        if self.text_kind == TextKind::Text {
            self.text.push_str(&text.text);
        }
        chunks.text(self.text_kind, text);
    }

    /// Ends text of the current kind. An unpaired surrogate at its end is replaced.
    fn end_text(&mut self, chunks: &mut Chunks) {
        let rest = self.joiner.rest();
        self.add(rest, chunks);
    }

    /// Emits the held signature as a part without text.
    fn hand_out_signature(&mut self, chunks: &mut Chunks) {
        let Some((voice, signature)) = self.signature.take() else {
            return;
        };
        self.text.clear();
        chunks.push(Chunk::PartEnded);
        chunks.push(voice.chunk(String::new()));
        attach(&signature, chunks);
    }

    /// Ends the current text or call before a part of another kind.
    fn interrupt(&mut self, chunks: &mut Chunks) {
        self.close_call(true, chunks);
        self.hand_out_signature(chunks);
        self.end_text(chunks);
        self.text.clear();
    }

    /// Handles a call or its start. A call without a name continues the call before it.
    fn call(&mut self, call: FunctionCall, signature: &str, chunks: &mut Chunks) -> Decoded {
        let FunctionCall { id, name, args, .. } = call;
        let has_arguments = args.is_some() || call.partial_args.is_some();
        if name.0.is_empty() && self.open.is_none() && has_arguments {
            return Err(Fault::broken("the response contains a tool call without a name"));
        }
        if !name.0.is_empty() {
            self.interrupt(chunks);
            self.has_content = true;
            let index = self.calls;
            self.calls += 1;
            let own = call_metadata(signature, &id.0);
            chunks.push(Chunk::ToolCall { index, id: id.0, name: names::unescape(name.0) });
            if !own.is_empty() {
                chunks.attach_to_call(index, KIND, own);
            }
            if let Some(args) = args.filter(|args| args.get() != "null") {
                let json = args.get().to_owned();
                chunks.push(Chunk::ToolInput { index, json });
            } else {
                self.open = Some(OpenCall { index, arguments: Arguments::default() });
            }
        }
        if let Some(open) = &mut self.open {
            let pieces = call.partial_args.unwrap_or_default();
            pieces.iter().for_each(|piece| open.arguments.add(piece));
            if open.arguments.bytes() > MAX_HELD_BYTES {
                return Err(Fault::oversized("the arguments of a tool call are too large"));
            }
        }
        if call.will_continue != Some(true) {
            self.close_call(true, chunks);
        }
        Ok(())
    }

    fn close_call(&mut self, complete: bool, chunks: &mut Chunks) {
        if let Some(OpenCall { index, arguments }) = self.open.take() {
            let json = arguments.json(complete);
            chunks.push(Chunk::ToolInput { index, json });
        }
    }

    /// Completes the response.
    fn complete(&mut self, chunks: &mut Chunks) -> Decoded {
        // The service did not mark the call as complete.
        self.close_call(false, chunks);
        self.end_text(chunks);
        let (reason, word) = match (self.finish.take(), self.blocked.take()) {
            (Some(word), _) => (finish_reason(&word, self.calls > 0)?, word),
            (None, Some(word)) => (FinishReason::ContentFilter, word),
            (None, None) => {
                return Err(Fault::broken("the response ended without a finish reason"));
            }
        };
        if reason == FinishReason::Stop && !self.has_content {
            return Err(Fault::broken("the response was empty"));
        }
        let sources = self.attached.get("groundingMetadata");
        if let Some(sources) = sources.filter(|_| !self.text.is_empty()) {
            let cited = citations(sources, &self.text);
            chunks.extend(cited.into_iter().map(Chunk::Citation));
        }
        self.hand_out_signature(chunks);
        let attached = std::mem::take(&mut self.attached);
        let attached = (!attached.is_empty()).then(|| authorship::metadata(KIND, attached));
        chunks.push(Chunk::Finished(Finish {
            reason,
            provider_reason: word,
            usage: usage::read(&self.report),
            prompt_usage: usage::without_tools(&self.report),
            provider_model: std::mem::take(&mut self.model),
            response_id: std::mem::take(&mut self.id),
            metadata: attached.map(|json| replace_lone_surrogates(&json).into_owned()),
            prompt_fingerprint: None,
        }));
        Ok(())
    }
}

impl stream::Decoder for Decoder {
    fn event(&mut self, event: &sse::Event, chunks: &mut Chunks) -> Decoded {
        let data = event.data.trim();
        // Some gateways append the end marker of another API.
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        // An error may arrive as the only element of an array.
        if event.name == "error" || data.starts_with('[') {
            return Err(classify::event_fault(data));
        }
        match serde_json::from_str::<wire::Chunk>(data) {
            Ok(wire::Chunk { error: Some(_), .. }) => Err(classify::event_fault(data)),
            Ok(chunk) => self.chunk(chunk, chunks),
            Err(error) => Err(Fault::unreadable(&error)),
        }
    }

    fn end(&mut self, chunks: &mut Chunks) -> Decoded {
        self.complete(chunks)
    }
}

/// Parses a part. A malformed part is ignored unless it is a call, which is an error.
fn parse_part(raw: &RawValue) -> Result<ResponsePart, Fault> {
    let is_call = || {
        let fields = lenient::members(raw.get());
        let call = fields.get("functionCall");
        call.is_some_and(|call| call.get() != "null")
    };
    match serde_json::from_str(raw.get()) {
        Ok(said) => Ok(said),
        Err(_) if is_call() => Err(Fault::broken("the response contains a tool call that cannot be parsed")),
        Err(_) => Ok(ResponsePart::default()),
    }
}

/// Maps a finish reason. An unknown value ends a complete response.
fn finish_reason(word: &str, calls: bool) -> Result<FinishReason, Fault> {
    let failed = |kind, message: &str| Fault { code: word.to_owned(), ..Fault::new(kind, message) };
    match word.to_ascii_uppercase().as_str() {
        "MAX_TOKENS" => Ok(FinishReason::Length),
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "MODEL_ARMOR" => Ok(FinishReason::ContentFilter),
        // The model may succeed on the next attempt.
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" | "MALFORMED_RESPONSE" => {
            Err(failed(Kind::Broken, "the model generated a tool call that the service could not parse"))
        }
        "MISSING_THOUGHT_SIGNATURE" => {
            Err(failed(Kind::BadRequest, "the service requires a thought signature that the request does not contain"))
        }
        _ if calls => Ok(FinishReason::ToolCalls),
        _ => Ok(FinishReason::Stop),
    }
}

/// Attaches its signature to the part that was written last.
fn attach(signature: &str, chunks: &mut Chunks) {
    chunks.attach(KIND, json!({ "thoughtSignature": signature }));
}

/// The metadata of a call.
fn call_metadata(signature: &str, id: &str) -> Map<String, Value> {
    let fields = [("thoughtSignature", signature), ("id", id)].into_iter();
    let given = fields.filter(|(_, word)| !word.is_empty());
    given.map(|(key, word)| (key.to_owned(), json!(word))).collect()
}

/// Returns `None` for an empty or unset value, such as `FINISH_REASON_UNSPECIFIED`.
fn word(word: LenientString) -> Option<String> {
    word.some().filter(|word| !word.ends_with("_UNSPECIFIED"))
}
