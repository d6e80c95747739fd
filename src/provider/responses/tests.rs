//! Tests of the decoder, with all recordings and with streams that services may send, and of
//! encoded requests.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{decode::Decoder, dialect};
use crate::{
    model::{Citation, Content, FinishReason, Part},
    provider::{
        Chunk, Finish,
        assemble::AssembledResponse,
        error::Kind,
        http::Fault,
        recordings::{self, DecodeOutcome, assembled},
    },
};

mod bodies;
mod events;
mod requests;

/// Decodes a complete stream.
fn decode(name: &str, body: &str) -> DecodeOutcome {
    let dialect = dialect::named(name).expect("a dialect");
    recordings::decode(Decoder::new(dialect), [body.as_bytes()])
}

/// A stream of these events.
fn stream(events: &[Value]) -> String {
    let framed = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        format!("event: {kind}\ndata: {event}\n\n")
    };
    events.iter().map(framed).collect()
}

/// The last event of a complete response.
fn completed() -> Value {
    ended("completed", json!({}))
}

/// The last event of a response, with these fields.
fn ended(status: &str, fields: Value) -> Value {
    let mut response = json!({"id": "resp_1", "model": "gpt", "status": status});
    for (key, value) in fields.as_object().expect("fields") {
        response[key] = value.clone();
    }
    json!({"type": format!("response.{status}"), "response": response})
}

/// The event that starts an item.
fn added(output: u32, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": output, "item": item})
}

/// The event that completes an item.
fn done(output: u32, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": output, "item": item})
}

/// A text delta.
fn delta(kind: &str, output: u32, index: u32, delta: &str) -> Value {
    let index_name = if kind == "reasoning_summary_text" { "summary_index" } else { "content_index" };
    json!({"type": format!("response.{kind}.delta"), "output_index": output, index_name: index, "delta": delta})
}

fn message(id: &str, texts: &[&str]) -> Value {
    let text = |text: &&str| json!({"type": "output_text", "text": text});
    json!({"type": "message", "id": id, "role": "assistant", "content": texts.iter().map(text).collect::<Vec<_>>()})
}

/// The response of a valid stream.
fn answer(events: &[Value]) -> AssembledResponse {
    answer_of("openai", events)
}

fn answer_of(name: &str, events: &[Value]) -> AssembledResponse {
    let mut events = events.to_vec();
    events.push(completed());
    assembled(&chunks(name, &events))
}

fn chunks(name: &str, events: &[Value]) -> Vec<Chunk> {
    let (chunks, result) = decode(name, &stream(events));
    assert_eq!(result, Ok(()), "{events:?}");
    chunks
}

/// The fault of an invalid stream.
fn fault(events: &[Value]) -> Fault {
    decode("openai", &stream(events)).1.expect_err("a fault")
}

/// A compact form of the parts, with their metadata.
fn shown(parts: &[Part]) -> Vec<String> {
    let show = |part: &Part| {
        let content = match &part.content {
            Content::Text(text) => format!("text {text}"),
            Content::Reasoning { text, redacted } => {
                format!("{}{text}", if *redacted { "hidden" } else { "reasoning " })
            }
            Content::ToolCall(call) => format!("call {} {} {}", call.id, call.name, call.arguments),
            Content::Refusal(text) => format!("refusal {text}"),
            Content::ProviderItem(item) => format!("item {} {}", item.kind, item.title),
            Content::ToolResult(_) | Content::Media(_) | Content::Unknown(_) => "other".to_owned(),
        };
        match &part.provider_metadata {
            Some(json) => {
                let metadata: Value = serde_json::from_str(json).expect("JSON");
                format!("{content} {}", metadata[super::KIND])
            }
            None => content,
        }
    };
    parts.iter().map(show).collect()
}
