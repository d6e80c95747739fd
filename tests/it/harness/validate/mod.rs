//! Validates requests as the real APIs do, with their error messages: pure functions of the body of a request. The test
//! upstream calls them before it responds.

pub mod anthropic;
pub mod chat;
pub mod gemini;
pub mod responses;
pub mod rows;

use serde_json::{Value, json};

use rows::Refusal;

/// The protocol of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Chat,
    Anthropic,
    Responses,
    Gemini,
}

impl Api {
    /// The protocol of the model calls on that path. Returns `None` if the path accepts anything.
    pub fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        [
            ("/chat/completions", Self::Chat),
            ("/messages", Self::Anthropic),
            ("/responses", Self::Responses),
            (":streamGenerateContent", Self::Gemini),
        ]
        .into_iter()
        .find(|(end, _)| path.ends_with(end))
        .map(|(_, api)| api)
    }

    /// The body of the error for a refused request.
    pub fn error(self, message: &str) -> Value {
        match self {
            Self::Chat | Self::Responses => json!({"error": {
                "message": message, "type": "invalid_request_error", "param": null, "code": null,
            }}),
            Self::Anthropic => json!({
                "type": "error",
                "error": {"type": "invalid_request_error", "message": message},
                "request_id": "req_refused",
            }),
            Self::Gemini => json!({"error": {
                "code": 400, "message": message, "status": "INVALID_ARGUMENT",
            }}),
        }
    }

    /// Why the API refuses the request. Returns `None` if it accepts it. `issued` contains what the service sent before
    /// (signatures, encrypted reasoning) and accepts again. `service` is the name of a dialect, whose specific rules
    /// apply too.
    pub fn refusal(self, service: &str, path: &str, body: &Value, issued: &str) -> Option<Refusal> {
        match self {
            Self::Chat => chat::refusal(service, body),
            Self::Anthropic => anthropic::refusal(body, issued),
            Self::Responses => responses::refusal(body, issued),
            Self::Gemini => gemini::refusal(gemini::model_of(path), body, issued),
        }
    }
}

/// The result of a check.
type Checked = Result<(), Refusal>;

/// Refuses the request unless the condition holds.
fn ensure(holds: bool, refusal: impl FnOnce() -> Refusal) -> Checked {
    if holds { Ok(()) } else { Err(refusal()) }
}

/// The items of an array; empty for any other value.
fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The text of a string; empty for any other value.
fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether a name has 1 to `most` characters: ASCII letters and digits, or one of `others`.
fn is_name(name: &str, most: usize, others: &[char]) -> bool {
    (1..=most).contains(&name.len())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || others.contains(&character))
}

/// The first word that occurred before.
fn repeated<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = std::collections::BTreeSet::new();
    words.into_iter().find(|word| !seen.insert(*word))
}

/// Whether an OpenAI model reasons, and therefore accepts no temperature.
fn reasons(model: &str) -> bool {
    ["o1", "o3", "o4", "gpt-5", "gpt-6"].iter().any(|start| model.starts_with(start)) && !model.contains("chat")
}

#[test]
fn the_path_tells_the_protocol() {
    for (path, api) in [
        ("/v1/chat/completions", Some(Api::Chat)),
        ("/v1/messages", Some(Api::Anthropic)),
        ("/v1/messages/count_tokens", None),
        ("/v1/responses", Some(Api::Responses)),
        ("/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse", Some(Api::Gemini)),
        ("/v1/tokenize", None),
    ] {
        assert_eq!(Api::of(path), api, "{path}");
    }
}
