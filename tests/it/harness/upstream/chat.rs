//! Responses of Chat Completions, event by event.

use serde_json::{Value, json};

/// The end marker of a stream.
pub(super) const DONE: &[u8; 14] = b"data: [DONE]\n\n";

/// The events of a response with a delta for each of `words` and usage at its end.
pub fn said(words: &[&str]) -> Vec<u8> {
    let mut body: Vec<u8> = words.iter().flat_map(|word| event(&json!({"content": word}))).collect();
    body.extend(finished("stop"));
    body
}

/// One event with this delta.
pub fn event(delta: &Value) -> Vec<u8> {
    let chunk = json!({"id": "chatcmpl-1", "model": "gpt-4o-2024", "choices": [{"index": 0, "delta": delta}]});
    format!("data: {chunk}\n\n").into_bytes()
}

/// The end of a response: finish reason, usage and the end marker.
pub fn finished(reason: &str) -> Vec<u8> {
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": null});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}});
    let mut body = format!("data: {end}\n\ndata: {usage}\n\n").into_bytes();
    body.extend(DONE);
    body
}
