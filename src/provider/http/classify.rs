//! Classifies the errors of services: what kind of failure one is, and whether repeating may help.

use std::sync::LazyLock;

use regex::{RegexSet, RegexSetBuilder};

use super::{Fault, overflow, said::Said, wait};
use crate::provider::error::Kind;

#[cfg(test)]
mod tests;

/// Where an error was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In place of an answer, with this status.
    Body(u16),
    /// In the stream of an answer that began well.
    Stream,
}

/// Codes that say what is wrong whatever the status is, with whether repeating may help where the
/// kind does not tell.
const CODES: &[(&str, Kind, Option<bool>)] = &[
    ("insufficient_quota", Kind::RateLimited, Some(false)),
    (
        "exceeded_current_quota_error",
        Kind::RateLimited,
        Some(false),
    ), // Moonshot: used up, or suspended
    ("1113", Kind::RateLimited, Some(false)), // Z.ai: no balance
    ("usage_not_included", Kind::RateLimited, Some(false)), // ChatGPT: not in the plan
    ("usage_limit_reached", Kind::RateLimited, Some(false)), // ChatGPT: the plan is used up
    ("invalid_api_key", Kind::Auth, None),
    ("authentication_error", Kind::Auth, None),
    ("API_KEY_INVALID", Kind::Auth, None),
    // The model wrote a call that the service could not read; it may do better the next time.
    ("tool_use_failed", Kind::Broken, None),
    ("rate_limit_exceeded", Kind::RateLimited, None),
    ("rate_limit_error", Kind::RateLimited, None),
    ("overloaded_error", Kind::Overloaded, None),
    ("server_is_overloaded", Kind::Overloaded, None),
    ("slow_down", Kind::Overloaded, None),
    ("timeout_error", Kind::Timeout, None),
];

/// Codes that tell something only where there is no status.
const VAGUE_CODES: &[(&str, Kind)] = &[
    ("server_error", Kind::Overloaded),
    ("api_error", Kind::Overloaded),
    ("invalid_request_error", Kind::BadRequest),
    ("permission_error", Kind::Auth),
    // In a response that failed, what the model was given is at fault.
    ("invalid_prompt", Kind::BadRequest),
    ("bio_policy", Kind::BadRequest),
    ("cyber_policy", Kind::BadRequest),
    ("invalid_image", Kind::BadRequest),
    ("invalid_image_format", Kind::BadRequest),
    ("invalid_base64_image", Kind::BadRequest),
    ("invalid_image_url", Kind::BadRequest),
    ("image_too_large", Kind::BadRequest),
    ("image_too_small", Kind::BadRequest),
    ("image_parse_error", Kind::BadRequest),
    ("image_content_policy_violation", Kind::BadRequest),
    ("invalid_image_mode", Kind::BadRequest),
    ("image_file_too_large", Kind::BadRequest),
    ("unsupported_image_media_type", Kind::BadRequest),
    ("empty_image_file", Kind::BadRequest),
    ("image_file_not_found", Kind::BadRequest),
    ("vector_store_timeout", Kind::Timeout),
];

/// Codes of a prompt that is too long.
const TOO_LONG_CODES: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size_error",
    "model_max_prompt_tokens_exceeded", // Copilot
    "request_too_large",
    "1261", // Z.ai
];

/// Words with which llama.cpp answers 500 to what will never work.
const PERMANENT: &[&str] = &[
    "--jinja",
    "mmproj",
    "roles must alternate",
    "cannot use both json_schema and grammar",
    "json schema conversion failed",
    "failed to parse grammar",
];

/// Words of an account that no service answers before its owner does something.
const CLOSED_ACCOUNT: &[&str] = &[
    "(?:account|organization).{0,100} (?:is|has been|was) (?:suspended|deactivated|disabled)",
    "reached your specified api usage limits", // Anthropic
    "extra usage is required",                 // Anthropic
    "prepa(?:id|yment) credits?.{0,40}(?:depleted|exhausted|used up|gone)", // Gemini
    "insufficient (?:account )?(?:balance|credits?|funds)",
    "credit balance is too low",
];

/// Words of services that answer 400 to a wrong key.
const WRONG_KEY: &[&str] = &[
    "(?:incorrect|invalid) api[ _-]?key",
    "api key (?:is )?(?:not valid|invalid)",
];

/// The fault that an error stands for.
pub fn fault(place: Place, said: &Said) -> Fault {
    let (kind, should_retry) = kind(place, said);
    let message = if said.message.is_empty() {
        wordless(place, kind)
    } else {
        said.message.clone()
    };
    Fault {
        kind,
        message,
        code: said.code(),
        retry_after: said.retry_after.or_else(|| wait::in_words(&said.message)),
        should_retry,
    }
}

fn kind(place: Place, said: &Said) -> (Kind, Option<bool>) {
    let status = match place {
        Place::Body(status) => Some(status),
        Place::Stream => said.status,
    };
    if is_too_long(place, status, said) {
        return (Kind::TooLong, None);
    }
    if overflow::beyond_rates(&said.message) || said.used_up {
        return (Kind::RateLimited, Some(false));
    }
    if let Some((_, kind, retry)) = CODES.iter().find(|(code, ..)| said.has_code(code)) {
        return (*kind, *retry);
    }
    let words = &said.message;
    match status {
        Some(400 | 402 | 403 | 429) | None if matches_any(&CLOSED_ACCOUNTS, words) => {
            (Kind::RateLimited, Some(false))
        }
        Some(400) if matches_any(&WRONG_KEYS, words) => (Kind::Auth, None),
        Some(403) if said.flagged => (Kind::BadRequest, None),
        Some(401 | 403) => (Kind::Auth, None),
        // The account has no credit left: nothing that waiting mends.
        Some(402) => (Kind::RateLimited, Some(false)),
        Some(408 | 504 | 522 | 524) => (Kind::Timeout, None),
        // Another request holds what this one needs.
        Some(409) => (Kind::Overloaded, None),
        Some(429) => (Kind::RateLimited, None),
        Some(300..=399) => (Kind::Broken, Some(false)),
        Some(400..=499) => (Kind::BadRequest, None),
        Some(500..=599) if matches_any(&NEVER_WORKS, words) => (Kind::BadRequest, None),
        Some(500..=599) => (Kind::Overloaded, None),
        Some(_) => (Kind::Broken, None),
        None if overflow::about_rates(words) => (Kind::RateLimited, None),
        None => {
            let vague = VAGUE_CODES.iter().find(|(code, _)| said.has_code(code));
            (vague.map_or(Kind::Broken, |(_, kind)| *kind), None)
        }
    }
}

/// Whether the prompt is too long: what is about rates goes first, then codes, then words where
/// they can be trusted.
fn is_too_long(place: Place, status: Option<u16>, said: &Said) -> bool {
    if status == Some(429) || overflow::about_rates(&said.message) {
        return false;
    }
    let by_words = place == Place::Stream || matches!(status, Some(400 | 413 | 422));
    said.counts_too_many
        || TOO_LONG_CODES.iter().any(|code| said.has_code(code))
        || status == Some(413)
        // Cerebras and Mistral refuse a long prompt with an empty body.
        || (status == Some(400) && said.empty)
        || (by_words && overflow::too_long(&said.message))
}

/// What is said where the service says nothing.
fn wordless(place: Place, kind: Kind) -> String {
    match (place, kind) {
        (Place::Body(status), Kind::TooLong) => {
            format!("it returned {status} with an empty body: the prompt is too long")
        }
        (Place::Body(status @ 300..=399), _) => {
            format!("it answered {status}, a redirect, which is not followed")
        }
        (Place::Body(status), _) => format!("it returned {status} with an empty body"),
        (Place::Stream, _) => "it broke the answer off with an error".to_owned(),
    }
}

static NEVER_WORKS: LazyLock<RegexSet> = LazyLock::new(|| set(PERMANENT));
static CLOSED_ACCOUNTS: LazyLock<RegexSet> = LazyLock::new(|| set(CLOSED_ACCOUNT));
static WRONG_KEYS: LazyLock<RegexSet> = LazyLock::new(|| set(WRONG_KEY));

fn matches_any(set: &RegexSet, words: &str) -> bool {
    set.is_match(words)
}

fn set(patterns: &[&str]) -> RegexSet {
    RegexSetBuilder::new(patterns)
        .case_insensitive(true)
        .build()
        .expect("the patterns are constants, and tested")
}
