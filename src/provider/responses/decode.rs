//! Decodes the events of a response into chunks.
//!
//! The response is complete with the event that carries the whole response. A missing one is an
//! error even if text arrived. Not every service repeats the content of earlier events in that
//! event, so the response is assembled from the events.

use serde_json::{json, value::RawValue};

use super::{
    KIND,
    dialect::Dialect,
    items::{Items, TextKind, TextLocation},
    usage, wire,
};
use crate::{
    model::FinishReason,
    provider::{
        Chunk, Finish, authorship,
        http::{
            Chunks, Decoded, Fault, classify,
            lenient::{Piece, member, read},
            sse, stream,
        },
    },
};

/// OpenRouter sends this after the last event.
const DONE: &str = "[DONE]";

/// The final statuses of a response.
const ENDS: [&str; 4] = ["completed", "incomplete", "failed", "cancelled"];

/// Decodes one response.
#[derive(Debug)]
pub struct Decoder {
    id: String,
    model: String,
    items: Items,
}

impl Decoder {
    /// Creates a decoder of one response.
    pub fn new(dialect: &Dialect) -> Self {
        Self { id: String::new(), model: String::new(), items: Items::new(dialect.runs_custom_tools) }
    }

    /// Handles an event of this type. Unknown types are ignored.
    fn take(&mut self, kind: &str, event: wire::Event, chunks: &mut Chunks) -> Decoded {
        let output = self.output(kind, &event)?;
        let items = &mut self.items;
        items.record_sequence(event.sequence_number.0, output, kind.ends_with(".delta"))?;
        let piece = |raw: Option<Box<RawValue>>| raw.map(|raw| Piece::of(&raw)).unwrap_or_default();
        let raw = |raw: Option<Box<RawValue>>| raw.unwrap_or_else(|| RawValue::NULL.to_owned());
        match kind {
            "response.created" | "response.queued" | "response.in_progress" => {
                self.identify(&response(event.response));
                Ok(())
            }
            "response.output_item.added" => items.begin(output, &raw(event.item), chunks),
            "response.output_item.done" => items.end(output, &raw(event.item), chunks),
            "response.output_text.annotation.added" => {
                let place = TextLocation::new(output, TextKind::Text, event.content_index.0.unwrap_or(0));
                items.cite(place, &raw(event.annotation), chunks)
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                items.extend_call(output, &piece(event.delta), chunks)
            }
            "response.function_call_arguments.done" => items.complete_call(output, &piece(event.arguments), chunks),
            "response.custom_tool_call_input.done" => items.complete_call(output, &piece(event.input), chunks),
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.done" => self.complete(kind, response(event.response), chunks),
            kind => match text_event(kind, output, &event) {
                Some((place, false)) => items.add_text(place, &piece(event.delta), chunks),
                Some((place, true)) => {
                    let whole = piece(event.text.or(event.refusal));
                    items.complete(place, &whole, chunks)
                }
                None => Ok(()),
            },
        }
    }

    /// The number of the item that an event is about. If the service sends no numbers, items are
    /// identified by id.
    fn output(&mut self, kind: &str, event: &wire::Event) -> Result<i64, Fault> {
        if let Some(number) = event.output_index.0 {
            return Ok(number);
        }
        let is_item = kind.starts_with("response.output_item.");
        let item = event.item.as_deref().filter(|_| is_item);
        let item: wire::Item = item.map(read).unwrap_or_default();
        let id = event.item_id.as_ref().unwrap_or(&item.id);
        self.items.output_index(&id.0, kind == "response.output_item.added")
    }

    /// Takes id and model from each event that has them. The last ones apply: some services change
    /// the id during the response.
    fn identify(&mut self, response: &wire::Response) {
        response.id.clone_into(&mut self.id);
        response.model.clone_into(&mut self.model);
    }

    /// Completes the response, or returns the error with which the service ended it.
    fn complete(&mut self, kind: &str, response: wire::Response, chunks: &mut Chunks) -> Decoded {
        self.identify(&response);
        let status = outcome(kind, response.status.0);
        let error = response.error.filter(|error| error.get() != "null");
        if let Some(error) = error {
            return Err(classify::error_fault(&error));
        }
        let details = response.incomplete_details;
        let detail = details.map(|details| member(details.get(), "reason")).unwrap_or_default();
        let output = response.output.as_deref();
        let output: Vec<Box<RawValue>> = output.map(read).unwrap_or_default();
        self.items.finish(output, chunks)?;
        let reason = match (status.as_str(), detail.as_str()) {
            ("completed", _) if self.items.called() => FinishReason::ToolCalls,
            ("completed", _) if self.items.refused() => FinishReason::Refusal,
            ("completed", _) => FinishReason::Stop,
            ("incomplete", "content_filter") => FinishReason::ContentFilter,
            ("incomplete", "steered") => FinishReason::Stop,
            ("incomplete", _) => FinishReason::Length,
            (other, _) => {
                let message = format!("the service aborted the response: {other}");
                return Err(Fault::broken(message));
            }
        };
        let tier = response.service_tier.some();
        let usage = response.usage.as_deref();
        chunks.push(Chunk::Finished(Finish {
            reason,
            provider_reason: if detail.is_empty() { status } else { detail },
            usage: usage.and_then(usage::read),
            prompt_usage: usage.and_then(usage::last_round),
            provider_model: std::mem::take(&mut self.model),
            response_id: std::mem::take(&mut self.id),
            prompt_fingerprint: None,
            metadata: tier.map(|tier| authorship::metadata(KIND, json!({"service_tier": tier}))),
        }));
        Ok(())
    }
}

impl stream::Decoder for Decoder {
    fn event(&mut self, event: &sse::Event, chunks: &mut Chunks) -> Decoded {
        let data = event.data.trim();
        if data == DONE {
            return Err(unfinished());
        }
        // Some services send empty data to keep the connection open.
        if data.is_empty() {
            return Ok(());
        }
        let mut read: wire::Event = match serde_json::from_str(data) {
            Ok(read) => read,
            // A named event of another API, possibly added by a proxy.
            Err(_) if is_foreign(&event.name) => return Ok(()),
            Err(error) => return Err(Fault::unreadable(&error)),
        };
        let named = std::mem::take(&mut read.kind.0);
        let kind = if named.is_empty() { event.name.as_str() } else { named.as_str() };
        let error = read.error.as_ref().filter(|error| error.get() != "null");
        if kind == "error" || (kind.is_empty() && error.is_some()) {
            return Err(classify::event_fault(data));
        }
        self.take(kind, read, chunks)
    }

    fn end(&mut self, _: &mut Chunks) -> Decoded {
        Err(unfinished())
    }
}

/// How a response ended: its final status. If the status is missing or not final, it is derived
/// from the name of the event that carries the response.
fn outcome(event: &str, status: String) -> String {
    if ENDS.contains(&status.as_str()) {
        return status;
    }
    match event.strip_prefix("response.").unwrap_or(event) {
        "done" => "completed".to_owned(),
        meant => meant.to_owned(),
    }
}

/// The place to which an event adds text, and whether the text is complete. Returns `None` if the
/// event adds no text.
fn text_event(kind: &str, output: i64, event: &wire::Event) -> Option<(TextLocation, bool)> {
    let (voice, whole) = match kind {
        "response.output_text.delta" => (TextKind::Text, false),
        "response.output_text.done" => (TextKind::Text, true),
        "response.refusal.delta" => (TextKind::Refusal, false),
        "response.refusal.done" => (TextKind::Refusal, true),
        "response.reasoning_summary_text.delta" => (TextKind::Summary, false),
        "response.reasoning_summary_text.done" => (TextKind::Summary, true),
        "response.reasoning_text.delta" => (TextKind::Reasoning, false),
        "response.reasoning_text.done" => (TextKind::Reasoning, true),
        _ => return None,
    };
    let index = match voice {
        TextKind::Summary => event.summary_index,
        TextKind::Text | TextKind::Refusal | TextKind::Reasoning => event.content_index,
    };
    let place = TextLocation::new(output, voice, index.0.unwrap_or(0));
    Some((place, whole))
}

fn response(raw: Option<Box<RawValue>>) -> wire::Response {
    raw.as_deref().map(read).unwrap_or_default()
}

fn unfinished() -> Fault {
    Fault::broken("the response ended without its final event")
}

/// Whether the name of an event does not belong to this API.
fn is_foreign(name: &str) -> bool {
    !matches!(name, "" | "message" | "error") && !name.starts_with("response.")
}
