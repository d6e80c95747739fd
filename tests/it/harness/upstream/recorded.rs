//! Recorded answers as they came over the wire.

use std::{fs, path::Path};

use serde_json::Value;

use super::chat;

/// A body from `tests/fixtures/providers`; payloads without framing get that of their protocol.
pub fn recorded(file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/providers")
        .join(file);
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if !file.ends_with(".chunks.txt") {
        return bytes;
    }
    let lines = String::from_utf8(bytes).unwrap();
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    match file.split('/').next().unwrap_or_default() {
        "anthropic" | "azure" | "chatgpt" | "openai-responses" => lines.flat_map(named).collect(),
        "gemini" | "gemini-vertex" => lines.flat_map(framed).collect(),
        _ => lines
            .flat_map(framed)
            .chain(chat::DONE.iter().copied())
            .collect(),
    }
}

fn framed(line: &str) -> Vec<u8> {
    format!("data: {line}\n\n").into_bytes()
}

/// The event of a payload whose type is its name.
fn named(line: &str) -> Vec<u8> {
    let payload: Value = serde_json::from_str(line).unwrap();
    let kind = payload["type"].as_str().unwrap_or_default();
    format!("event: {kind}\ndata: {line}\n\n").into_bytes()
}
