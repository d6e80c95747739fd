//! Recorded responses, as they were received.

use std::{fs, path::Path};

use serde_json::Value;

use super::chat;

/// A body from `tests/fixtures/providers`. Payloads without framing are framed as in their protocol.
pub fn recorded(file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/providers").join(file);
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if !file.ends_with(".chunks.txt") {
        return bytes;
    }
    let lines = String::from_utf8(bytes).unwrap();
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    let mut body: Vec<u8> = lines.clone().flat_map(event).collect();
    if lines.clone().any(|line| parsed(line)["choices"].is_array()) {
        body.extend(chat::DONE);
    }
    body
}

/// The event of a payload, named by the payload's type if it has one.
fn event(line: &str) -> Vec<u8> {
    let payload = parsed(line);
    let name = payload["type"].as_str();
    let name = name.map(|name| format!("event: {name}\n"));
    format!("{}data: {line}\n\n", name.unwrap_or_default()).into_bytes()
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}
