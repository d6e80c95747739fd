//! Errors of services, recorded and quoted, with what is done about each.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::*;

/// Recorded errors that are not what their status alone says: a part of the message, and the kind.
const SPECIAL: &[(&str, Kind)] = &[
    ("You exceeded your current quota, please check your plan and billing", Kind::RateLimited),
    ("You exceeded your current quota, please check your plan.", Kind::RateLimited),
    ("API key not valid", Kind::Auth),
    ("Incorrect API key provided. You can obtain", Kind::Auth),
    ("tools param requires --jinja flag", Kind::BadRequest),
    ("image input is not supported", Kind::BadRequest),
    ("Cannot use both json_schema and grammar", Kind::BadRequest),
    ("exceeds the available context size", Kind::TooLong),
    ("Tool call validation failed", Kind::Broken),
    ("Tool choice is required, but model did not call a tool", Kind::Broken),
];

fn expected(entry: &Value, message: &str) -> Kind {
    if let Some((_, kind)) = SPECIAL.iter().find(|(part, _)| message.contains(part)) {
        return *kind;
    }
    match (entry["kind"].as_str(), entry["status"].as_u64()) {
        (Some("overflow"), _) => Kind::TooLong,
        (Some("replay"), _) => Kind::BadRequest,
        (_, Some(401 | 403)) => Kind::Auth,
        (_, Some(429)) => Kind::RateLimited,
        (_, Some(500..)) => Kind::Overloaded,
        _ => Kind::BadRequest,
    }
}

#[test]
fn errors_of_all_services_are_taken_for_what_they_are() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/providers/errors.json");
    let entries: Vec<Value> = serde_json::from_slice(&fs::read(file).expect("the errors")).expect("JSON");
    assert_eq!(entries.len(), 103);
    for entry in &entries {
        let said = Said::of_json(&entry["body"]);
        let status = entry["status"].as_u64().and_then(|status| u16::try_from(status).ok());
        let in_stream = entry["where"] == "in_stream" || status == Some(200);
        // Bodies of unknown status are of requests that were refused.
        let place = if in_stream { Place::Stream } else { Place::Body(status.or(said.status).unwrap_or(400)) };
        let fault = fault(place, &said);
        assert_eq!(fault.kind, expected(entry, &said.message), "{entry}");
        assert!(!fault.message.is_empty(), "{entry}");
    }
}

fn check(place: Place, body: &Value, kind: Kind, should_retry: Option<bool>) {
    let fault = fault(place, &Said::of_json(body));
    assert_eq!((fault.kind, fault.should_retry), (kind, should_retry), "{place:?} {body}");
}

#[test]
fn a_status_says_what_it_is_where_words_say_nothing() {
    let table = [
        (300, Kind::Broken, Some(false)),
        (307, Kind::Broken, Some(false)),
        (400, Kind::BadRequest, None),
        (401, Kind::Auth, None),
        (402, Kind::RateLimited, Some(false)),
        (403, Kind::Auth, None),
        (404, Kind::BadRequest, None),
        (408, Kind::Timeout, None),
        (409, Kind::Overloaded, None),
        (413, Kind::TooLong, None),
        (422, Kind::BadRequest, None),
        (429, Kind::RateLimited, None),
        (500, Kind::Overloaded, None),
        (502, Kind::Overloaded, None),
        (503, Kind::Overloaded, None),
        (504, Kind::Timeout, None),
        (524, Kind::Timeout, None),
        (529, Kind::Overloaded, None),
        (204, Kind::Broken, None),
    ];
    for (status, kind, should_retry) in table {
        check(Place::Body(status), &json!({"error": {"message": "Something."}}), kind, should_retry);
    }
}

#[test]
fn words_about_rates_are_not_about_lengths() {
    let said = |message: &str| json!({"error": {"message": message}});
    let rates = "Rate limit reached for tokens per minute: too many tokens, please wait";
    check(Place::Body(400), &said(rates), Kind::BadRequest, None);
    check(Place::Body(429), &said("too many tokens"), Kind::RateLimited, None);
    check(Place::Stream, &said(rates), Kind::RateLimited, None);
    check(Place::Stream, &said("too many tokens"), Kind::TooLong, None);
    check(Place::Body(400), &said("too many tokens"), Kind::TooLong, None);
    check(Place::Body(500), &said("too many tokens"), Kind::Overloaded, None);
    let output = "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for x";
    check(Place::Body(400), &said(output), Kind::BadRequest, None);
    check(Place::Body(400), &said("max_completion_tokens is too large: 99"), Kind::BadRequest, None);
    let text = json!({"error": {"message": "Invalid 'x': string too long.", "code": "string_above_max_length"}});
    check(Place::Body(400), &text, Kind::BadRequest, None);
}

#[test]
fn a_limit_in_bytes_is_a_prompt_that_is_too_long_however_it_is_said() {
    let said = |message: &str| json!({"error": {"message": message}});
    let words = [
        "http: request body too large",
        "Request payload size exceeds the limit: 20971520 bytes.",
        "Request size is too large. Request size is 6.1 MB. Max size is 5 MB",
        "request entity too large",
        "Payload Too Large",
        "Failed to buffer the request body: length limit exceeded",
    ];
    for words in words {
        for status in [400, 413, 422] {
            check(Place::Body(status), &said(words), Kind::TooLong, None);
        }
    }
    let typed =
        json!({"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}});
    check(Place::Body(413), &typed, Kind::TooLong, None);
    check(Place::Stream, &typed, Kind::TooLong, None);
    let page = Said::of_body(b"<html><head><title>413 Request Entity Too Large</title></head></html>");
    assert_eq!(fault(Place::Body(413), &page).kind, Kind::TooLong);
    for words in ["The image is too large: at most 5 MB", "the value of `n` is too large"] {
        check(Place::Body(400), &said(words), Kind::BadRequest, None);
    }
}

#[test]
fn a_quota_that_is_used_up_is_not_asked_again() {
    let quota = json!({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}});
    check(Place::Body(429), &quota, Kind::RateLimited, Some(false));
    check(Place::Stream, &quota, Kind::RateLimited, Some(false));
}

#[test]
fn input_that_was_flagged_is_not_a_wrong_key() {
    let flagged =
        json!({"error": {"message": "Flagged", "code": 403, "metadata": {"reasons": ["x"], "flagged_input": "y"}}});
    check(Place::Body(403), &flagged, Kind::BadRequest, None);
}

#[test]
fn a_refusal_without_a_word_is_a_prompt_that_is_too_long() {
    for (status, kind) in [(400, Kind::TooLong), (413, Kind::TooLong), (401, Kind::Auth), (500, Kind::Overloaded)] {
        let fault = fault(Place::Body(status), &Said::of_body(b""));
        assert_eq!(fault.kind, kind, "{status}");
        assert!(fault.message.contains(&status.to_string()), "{}", fault.message);
    }
}
