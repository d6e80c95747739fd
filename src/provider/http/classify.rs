//! Classifies the errors of services: the kind of failure, and whether a retry may succeed.

use std::sync::LazyLock;

use regex::RegexSet;
use serde_json::{json, value::RawValue};

use super::{Fault, lenient, overflow, reported_error::ReportedError, retry_after};
use crate::provider::error::Kind;

#[cfg(test)]
mod tests;

/// Where an error was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorSource {
    /// In the body of an error response with this status.
    Body(u16),
    /// In the event stream of a response that started normally.
    Stream,
}

/// Error codes that determine the kind regardless of the status. The third column states whether a
/// retry may succeed, where this differs from the default of the kind.
const CODES: &[(&str, Kind, Option<bool>)] = &[
    ("insufficient_quota", Kind::RateLimited, Some(false)),
    ("exceeded_current_quota_error", Kind::RateLimited, Some(false)), // Moonshot: used up, or suspended
    ("1113", Kind::RateLimited, Some(false)),                         // Z.ai: no balance
    ("usage_not_included", Kind::RateLimited, Some(false)),           // ChatGPT: not in the plan
    ("usage_limit_reached", Kind::RateLimited, Some(false)),          // ChatGPT: the plan is used up
    ("invalid_api_key", Kind::Auth, None),
    ("authentication_error", Kind::Auth, None),
    ("API_KEY_INVALID", Kind::Auth, None),
    // The model wrote a call that the service could not parse. The next attempt may succeed.
    ("tool_use_failed", Kind::Broken, None),
    ("rate_limit_exceeded", Kind::RateLimited, None),
    ("rate_limit_error", Kind::RateLimited, None),
    ("overloaded_error", Kind::Overloaded, None),
    ("server_is_overloaded", Kind::Overloaded, None),
    ("slow_down", Kind::Overloaded, None),
    ("timeout_error", Kind::Timeout, None),
];

/// Error codes that are used only if there is no status.
const VAGUE_CODES: &[(&str, Kind)] = &[
    ("server_error", Kind::Overloaded),
    ("api_error", Kind::Overloaded),
    ("invalid_request_error", Kind::BadRequest),
    ("permission_error", Kind::Auth),
    // In a failed response, these indicate that the input is at fault.
    ("invalid_prompt", Kind::BadRequest),
    ("bio_policy", Kind::BadRequest),
    ("cyber_policy", Kind::BadRequest),
    ("vector_store_timeout", Kind::Timeout),
];

/// Error codes for an image that the service cannot use.
pub const IMAGE_CODES: &[&str] = &[
    "invalid_image",
    "invalid_image_format",
    "invalid_base64_image",
    "invalid_image_url",
    "image_too_large",
    "image_too_small",
    "image_parse_error",
    "image_content_policy_violation",
    "invalid_image_mode",
    "image_file_too_large",
    "unsupported_image_media_type",
    "empty_image_file",
    "image_file_not_found",
];

/// Error codes for a prompt that is too long.
const TOO_LONG_CODES: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size_error",
    "model_max_prompt_tokens_exceeded", // Copilot
    "request_too_large",
    "1261", // Z.ai
];

/// Phrases in errors of llama.cpp with status 500 that a retry cannot resolve.
const PERMANENT: &[&str] = &[
    "--jinja",
    "mmproj",
    "roles must alternate",
    "cannot use both json_schema and grammar",
    "json schema conversion failed",
    "failed to parse grammar",
];

/// Phrases for an account that is blocked until its owner acts.
const CLOSED_ACCOUNT: &[&str] = &[
    "(?:account|organization).{0,100} (?:is|has been|was) (?:suspended|deactivated|disabled)",
    "reached your specified api usage limits", // Anthropic
    "extra usage is required",                 // Anthropic
    "prepa(?:id|yment) credits?.{0,40}(?:depleted|exhausted|used up|gone)", // Gemini
    "insufficient (?:account )?(?:balance|credits?|funds)",
    "credit balance is too low",
];

/// Phrases of services that respond with 400 to an invalid key.
const WRONG_KEY: &[&str] = &["(?:incorrect|invalid) api[ _-]?key", "api key (?:is )?(?:not valid|invalid)"];

/// The fault for an error that arrived as an event of a stream.
pub fn event_fault(data: &str) -> Fault {
    let said = ReportedError::of_body(data.as_bytes());
    fault(ErrorSource::Stream, &said)
}

/// The fault for the error object within an event of a stream.
pub fn error_fault(error: &RawValue) -> Fault {
    let error = lenient::value(error.get()).unwrap_or_default();
    let said = ReportedError::of_json(&json!({ "error": error }));
    fault(ErrorSource::Stream, &said)
}

/// Converts an error to a fault.
pub fn fault(place: ErrorSource, said: &ReportedError) -> Fault {
    let (kind, should_retry) = kind(place, said);
    let message = if said.message.is_empty() { default_message(place, kind) } else { said.message.clone() };
    Fault {
        kind,
        message,
        code: said.code(),
        retry_after: said.retry_after.or_else(|| retry_after::delay_in_message(&said.message)),
        should_retry,
    }
}

fn kind(place: ErrorSource, said: &ReportedError) -> (Kind, Option<bool>) {
    let status = match place {
        ErrorSource::Body(status) => Some(status),
        ErrorSource::Stream => said.status,
    };
    if is_too_long(place, status, said) {
        return (Kind::TooLong, None);
    }
    if overflow::exceeds_rate_limit(&said.message) || said.quota_exhausted {
        return (Kind::RateLimited, Some(false));
    }
    if let Some((_, kind, retry)) = CODES.iter().find(|(code, ..)| said.has_code(code)) {
        return (*kind, *retry);
    }
    let words = &said.message;
    match status {
        Some(400 | 402 | 403 | 429) | None if CLOSED_ACCOUNTS.is_match(words) => (Kind::RateLimited, Some(false)),
        Some(400) if WRONG_KEYS.is_match(words) => (Kind::Auth, None),
        Some(403) if said.flagged => (Kind::BadRequest, None),
        Some(401 | 403) => (Kind::Auth, None),
        // The account has no credit left, which waiting does not resolve.
        Some(402) => (Kind::RateLimited, Some(false)),
        Some(408 | 504 | 522 | 524) => (Kind::Timeout, None),
        // Another request holds a resource that this one needs.
        Some(409) => (Kind::Overloaded, None),
        Some(429) => (Kind::RateLimited, None),
        Some(300..=399) => (Kind::Broken, Some(false)),
        Some(400..=499) => (Kind::BadRequest, None),
        Some(500..=599) if PERMANENT_SET.is_match(words) => (Kind::BadRequest, None),
        Some(500..=599) => (Kind::Overloaded, None),
        Some(_) => (Kind::Broken, None),
        None if overflow::is_rate_limit(words) => (Kind::RateLimited, None),
        None => {
            let images = IMAGE_CODES.iter().map(|code| (*code, Kind::BadRequest));
            let vague = VAGUE_CODES.iter().copied().chain(images).find(|(code, _)| said.has_code(code));
            (vague.map_or(Kind::Broken, |(_, kind)| kind), None)
        }
    }
}

/// Whether the prompt is too long. Rate limits take precedence, then error codes, then the message
/// where it is reliable.
fn is_too_long(place: ErrorSource, status: Option<u16>, said: &ReportedError) -> bool {
    if status == Some(429) || overflow::is_rate_limit(&said.message) {
        return false;
    }
    let by_words = place == ErrorSource::Stream || matches!(status, Some(400 | 413 | 422));
    said.counts_too_many
        || TOO_LONG_CODES.iter().any(|code| said.has_code(code))
        || status == Some(413)
        // Cerebras and Mistral reject a long prompt with an empty body.
        || (status == Some(400) && said.empty)
        || (by_words && overflow::is_prompt_too_long(&said.message))
}

/// The message for an error without one.
fn default_message(place: ErrorSource, kind: Kind) -> String {
    match (place, kind) {
        (ErrorSource::Body(status), Kind::TooLong) => {
            format!("it returned {status} with an empty body: the prompt is too long")
        }
        (ErrorSource::Body(status @ 300..=399), _) => {
            format!("it returned {status}, a redirect, which is not followed")
        }
        (ErrorSource::Body(status), _) => format!("it returned {status} with an empty body"),
        (ErrorSource::Stream, _) => "it aborted the response with an error".to_owned(),
    }
}

static PERMANENT_SET: LazyLock<RegexSet> = LazyLock::new(|| overflow::set(PERMANENT));
static CLOSED_ACCOUNTS: LazyLock<RegexSet> = LazyLock::new(|| overflow::set(CLOSED_ACCOUNT));
static WRONG_KEYS: LazyLock<RegexSet> = LazyLock::new(|| overflow::set(WRONG_KEY));
