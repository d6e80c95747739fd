//! Tests of recorded and quoted errors of services, and of their classification.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::*;

/// Recorded errors whose kind does not follow from the status alone: a part of the message, and the
/// kind.
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
fn recorded_errors_of_every_service_are_classified() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/providers/errors.json");
    let entries: Vec<Value> = serde_json::from_slice(&fs::read(file).expect("the errors")).expect("JSON");
    assert_eq!(entries.len(), 103);
    for entry in &entries {
        let said = ReportedError::of_json(&entry["body"]);
        let status = entry["status"].as_u64().and_then(|status| u16::try_from(status).ok());
        let in_stream = entry["where"] == "in_stream" || status == Some(200);
        // Bodies of unknown status belong to rejected requests.
        let place =
            if in_stream { ErrorSource::Stream } else { ErrorSource::Body(status.or(said.status).unwrap_or(400)) };
        let fault = fault(place, &said);
        assert_eq!(fault.kind, expected(entry, &said.message), "{entry}");
        assert!(!fault.message.is_empty(), "{entry}");
    }
}

fn check(place: ErrorSource, body: &Value, kind: Kind, should_retry: Option<bool>) {
    let fault = fault(place, &ReportedError::of_json(body));
    assert_eq!((fault.kind, fault.should_retry), (kind, should_retry), "{place:?} {body}");
}

#[test]
fn http_status_decides_where_the_message_does_not() {
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
        check(ErrorSource::Body(status), &json!({"error": {"message": "Something."}}), kind, should_retry);
    }
}

#[test]
fn a_rate_limit_message_is_not_context_overflow() {
    let said = |message: &str| json!({"error": {"message": message}});
    let rates = "Rate limit reached for tokens per minute: too many tokens, please wait";
    check(ErrorSource::Body(400), &said(rates), Kind::BadRequest, None);
    check(ErrorSource::Body(429), &said("too many tokens"), Kind::RateLimited, None);
    check(ErrorSource::Stream, &said(rates), Kind::RateLimited, None);
    check(ErrorSource::Stream, &said("too many tokens"), Kind::TooLong, None);
    check(ErrorSource::Body(400), &said("too many tokens"), Kind::TooLong, None);
    check(ErrorSource::Body(500), &said("too many tokens"), Kind::Overloaded, None);
    let output = "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for x";
    check(ErrorSource::Body(400), &said(output), Kind::BadRequest, None);
    check(ErrorSource::Body(400), &said("max_completion_tokens is too large: 99"), Kind::BadRequest, None);
    let text = json!({"error": {"message": "Invalid 'x': string too long.", "code": "string_above_max_length"}});
    check(ErrorSource::Body(400), &text, Kind::BadRequest, None);
}

#[test]
fn a_request_size_error_is_context_overflow() {
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
            check(ErrorSource::Body(status), &said(words), Kind::TooLong, None);
        }
    }
    let typed =
        json!({"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}});
    check(ErrorSource::Body(413), &typed, Kind::TooLong, None);
    check(ErrorSource::Stream, &typed, Kind::TooLong, None);
    let page = ReportedError::of_body(b"<html><head><title>413 Request Entity Too Large</title></head></html>");
    assert_eq!(fault(ErrorSource::Body(413), &page).kind, Kind::TooLong);
    for words in ["The image is too large: at most 5 MB", "the value of `n` is too large"] {
        check(ErrorSource::Body(400), &said(words), Kind::BadRequest, None);
    }
}

#[test]
fn an_exhausted_quota_is_permanent() {
    let quota = json!({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}});
    check(ErrorSource::Body(429), &quota, Kind::RateLimited, Some(false));
    check(ErrorSource::Stream, &quota, Kind::RateLimited, Some(false));
}

#[test]
fn flagged_input_is_not_an_authentication_error() {
    let flagged =
        json!({"error": {"message": "Flagged", "code": 403, "metadata": {"reasons": ["x"], "flagged_input": "y"}}});
    check(ErrorSource::Body(403), &flagged, Kind::BadRequest, None);
}

#[test]
fn an_empty_400_or_413_response_is_context_overflow() {
    for (status, kind) in [(400, Kind::TooLong), (413, Kind::TooLong), (401, Kind::Auth), (500, Kind::Overloaded)] {
        let fault = fault(ErrorSource::Body(status), &ReportedError::of_body(b""));
        assert_eq!(fault.kind, kind, "{status}");
        assert!(fault.message.contains(&status.to_string()), "{}", fault.message);
    }
}

/// Messages that resemble those for a prompt that is too long.
const NEAR_MISSES: &[&str] = &[
    // Parameters.
    "max_tokens 16384 exceeds the limit of 8192",
    "`max_tokens`: 16384 exceeds the limit of 8192",
    "max_tokens (16384) exceeds the limit of 8192 tokens",
    "max_output_tokens exceeds the limit of 65536",
    "max_tokens must be less than or equal to `8192`",
    "max_tokens is too large: 16384. This model supports at most 8192 completion tokens, whereas you provided 16384.",
    "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for claude-3",
    "Output token limit exceeded: at most 4096",
    "temperature 3 exceeds the limit of 2",
    "thinking budget of 40000 exceeds the limit of 32768",
    "the number of stop sequences exceeds the limit of 4",
    "n 9 exceeds the limit of 8",
    "logit_bias exceeds the limit of 300 entries",
    "Invalid 'messages[0].name': string too long. Expected a string with maximum length 64",
    // Images and files.
    "number of images exceeds the limit of 20",
    "count of images 21 exceeds the limit of 20",
    "The image exceeds the limit of 8000 pixels",
    "image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
    "messages.0.content.1.image.source.base64: image content is too large",
    "At most 1 image(s) may be provided in one prompt.",
    "Model supports at most 1 image per prompt.",
    "PDF is too large: at most 100 pages",
    "audio file is too large",
    // Tools.
    "number of tools exceeds the limit of 128",
    "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 130 instead.",
    "tool name length limit exceeded",
    "The schema is too large",
    "function description exceeds the limit of 1024",
    // Messages.
    "number of messages exceeds the limit of 2048",
];

/// Messages about rate limits, which mention tokens too.
const RATES: &[&str] = &[
    "requests per second exceeds the limit of 10",
    "Daily token limit exceeded",
    "You reached your monthly token limit",
    "TPM limit exceeded: too many tokens",
    "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
    "Too many tokens per hour",
];

/// Messages about a prompt that is too long.
const TOO_LONG: &[&str] = &[
    "prompt token count of 138898 exceeds the limit of 64000",
    "Prompt token count of 138898 exceeds the limit of 64000.",
    "input length 138898 exceeds the limit of 64000 tokens",
    "prompt is too long: 208310 tokens > 200000 maximum",
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens (129000 in the messages, 1000 in the functions). Please reduce the length of the messages or functions.",
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (5000 in the messages, 4000 in the completion).",
    "input length and `max_tokens` exceed context limit: 143653 + 64000 > 200000, decrease input length or `max_tokens` and try again",
    "the request exceeds the available context size (4096 tokens), try increasing it",
    "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "Your input with its images exceeds the context window of this model.",
    "'max_tokens' or 'max_completion_tokens' is too large: 4000. This model's maximum context length is 4096 tokens and your request has 200 input tokens (4000 > 4096 - 200).",
    "too many tokens",
    "Input token limit exceeded",
];

#[test]
fn limits_of_parameters_images_tools_and_rates_are_not_context_overflow() {
    let said = |words: &str| json!({"error": {"message": words}});
    for words in NEAR_MISSES {
        for status in [400, 422] {
            check(ErrorSource::Body(status), &said(words), Kind::BadRequest, None);
        }
        check(ErrorSource::Stream, &said(words), Kind::Broken, None);
    }
    for words in RATES {
        check(ErrorSource::Body(400), &said(words), Kind::BadRequest, None);
        check(ErrorSource::Body(429), &said(words), Kind::RateLimited, None);
        check(ErrorSource::Stream, &said(words), Kind::RateLimited, None);
    }
    for words in TOO_LONG {
        for place in [ErrorSource::Body(400), ErrorSource::Body(413), ErrorSource::Body(422), ErrorSource::Stream] {
            check(place, &said(words), Kind::TooLong, None);
        }
    }
    let code = json!({"error": {"message": "No.", "code": "model_max_prompt_tokens_exceeded"}});
    check(ErrorSource::Body(400), &code, Kind::TooLong, None);
}

#[test]
fn permanent_errors_are_recognized_whatever_their_status() {
    let error =
        |message: &str, kind: &str, code: Value| json!({"error": {"message": message, "type": kind, "code": code}});
    let groq = "Request too large for model `llama` in organization `org` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your message size and try again.";
    let openai = "Request too large for gpt-4o in organization org on tokens per min (TPM): Limit 30000, Requested 40000. The input or output tokens must be reduced in order to run successfully.";
    let limited = json!("rate_limit_exceeded");
    for (status, body) in [
        (413, error(groq, "tokens", limited.clone())),
        (429, error(openai, "tokens", limited.clone())),
        (
            429,
            error(
                "Your account org-1<ak-1> is suspended, please check your plan and billing details",
                "exceeded_current_quota_error",
                Value::Null,
            ),
        ),
        (429, error("Your account org-1 is suspended due to insufficient balance", "", Value::Null)),
        (403, error("Your account has been deactivated", "", Value::Null)),
        (429, error("Insufficient balance or no resource package. Please recharge.", "", json!("1113"))),
        (400, error("Your credit balance is too low to access the API.", "invalid_request_error", Value::Null)),
        (402, error("Insufficient Balance", "unknown_error", json!("invalid_request_error"))),
    ] {
        check(ErrorSource::Body(status), &body, Kind::RateLimited, Some(false));
        check(ErrorSource::Stream, &body, Kind::RateLimited, Some(false));
    }
    // A limit that was reached temporarily.
    let reached = "Rate limit reached for gpt-4o in organization org on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.";
    check(ErrorSource::Body(429), &error(reached, "tokens", limited), Kind::RateLimited, None);
    let gemini = "You exceeded your current quota, please check your plan and billing details.";
    check(ErrorSource::Body(429), &error(gemini, "", Value::Null), Kind::RateLimited, None);
    for (quota, retry) in [
        ("GenerateRequestsPerDayPerProjectPerModel-FreeTier", Some(false)),
        ("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", None),
    ] {
        let body = json!({"error": {"code": 429, "message": gemini, "status": "RESOURCE_EXHAUSTED", "details": [
            {"violations": [{"quotaId": quota}]}, {"retryDelay": "34.4s"}]}});
        check(ErrorSource::Body(429), &body, Kind::RateLimited, retry);
    }
    for words in [
        "JSON schema conversion failed: Unrecognized schema: {}",
        "Failed to initialize samplers: failed to parse grammar",
        "After the optional system message, conversation roles must alternate user/assistant",
    ] {
        check(ErrorSource::Body(500), &error(words, "server_error", json!(500)), Kind::BadRequest, None);
    }
}

#[test]
fn an_upstream_error_of_a_gateway_is_classified_as_text_or_json() {
    let raw =
        json!({"error": {"message": "prompt is too long: 9 tokens > 8 maximum", "code": "context_length_exceeded"}});
    for raw in [raw.clone(), json!(raw.to_string()), json!("prompt is too long"), json!([raw])] {
        let body = json!({"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}});
        check(ErrorSource::Body(400), &body, Kind::TooLong, None);
        check(ErrorSource::Stream, &body, Kind::TooLong, None);
    }
}
