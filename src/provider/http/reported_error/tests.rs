//! Tests of error bodies in the structures that services use.

use serde_json::json;

use super::*;

fn check(body: &str, message: &str, code: &str, status: Option<u16>) {
    let said = ReportedError::of_body(body.as_bytes());
    assert_eq!((said.message.as_str(), said.code().as_str(), said.status), (message, code, status), "{body}");
}

#[test]
fn every_shape_of_an_error_body_is_read() {
    let table = [
        (json!({"error": {"message": "No.", "type": "t", "param": null, "code": "c"}}), "No.", "c", None),
        (json!({"error": {"message": "No.", "type": "t", "code": null}}), "No.", "t", None),
        (json!({"error": {"message": "No.", "code": 429}}), "No.", "429", Some(429)),
        (json!({"error": {"message": "No.", "code": 400, "type": "t"}}), "No.", "t", Some(400)),
        (
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "No."}}),
            "No.",
            "overloaded_error",
            None,
        ),
        (json!({"error": {"code": 503, "message": "No.", "status": "UNAVAILABLE"}}), "No.", "UNAVAILABLE", Some(503)),
        (json!([{"error": {"code": 503, "message": "No.", "status": "UNAVAILABLE"}}]), "No.", "UNAVAILABLE", Some(503)),
        (json!({"error": "No."}), "No.", "", None),
        (json!({"code": "invalid-argument", "error": "No."}), "No.", "invalid-argument", None),
        (
            json!({"object": "error", "message": "No.", "type": "t", "code": "3051", "raw_status_code": 400}),
            "No.",
            "t",
            Some(400),
        ),
        (json!({"detail": "No."}), "No.", "", None),
        (json!({"detail": [{"loc": ["body"], "msg": "No.", "type": "missing"}]}), "No.", "missing", None),
        (json!({"message": "No."}), "No.", "", None),
        (json!({"message": "No.", "code": "tool_use_failed", "status_code": 400}), "No.", "tool_use_failed", Some(400)),
        (json!({"error": null, "message": "No."}), "No.", "", None),
        (json!({"error": {}}), "", "", None),
        (json!({"error": 7}), "", "", None),
        (json!("No."), "", "", None),
        (json!(null), "", "", None),
    ];
    for (body, message, code, status) in table {
        check(&body.to_string(), message, code, status);
    }
}

#[test]
fn an_error_body_that_is_not_json_becomes_one_short_line() {
    check("", "", "", None);
    check("upstream connect\n  error", "upstream connect error", "", None);
    check("<html><head><title>502 Bad Gateway</title></head>", "an HTML page titled 502 Bad Gateway", "", None);
    check("<!DOCTYPE html><p>secret", "an HTML page", "", None);
    let long = ReportedError::of_body("☂".repeat(10_000).as_bytes());
    assert_eq!(long.message.chars().count(), MAX_MESSAGE_CHARS + 1);
    assert!(ReportedError::of_body(b" \n").empty);
}

#[test]
fn an_upstream_message_of_a_gateway_is_kept() {
    let raw = json!({"error": {"message": "Slow down."}}).to_string();
    let body = json!({"error": {"message": "Provider returned error", "code": 429, "metadata": {
        "raw": raw, "retry_after_seconds": 3.5, "error_type": "rate_limit"}}});
    let said = ReportedError::of_json(&body);
    assert_eq!(said.message, "Provider returned error: Slow down.");
    assert_eq!((said.retry_after, said.code().as_str()), (Some(Duration::from_millis(3_500)), "rate_limit"));
    let flagged = json!({"error": {"message": "Flagged", "code": 403, "metadata": {"reasons": ["violence"]}}});
    assert!(ReportedError::of_json(&flagged).flagged);
}

#[test]
fn counts_and_delays_in_the_body_are_read() {
    let body = json!({"error": {"code": 400, "message": "m", "type": "t", "n_ctx": 512, "n_prompt_tokens": 2009}});
    assert!(ReportedError::of_json(&body).counts_too_many);
    let details = json!({"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED", "details": [
        {"@type": "x", "reason": "QUOTA"}, {"retryDelay": "34.4s"}]}});
    let said = ReportedError::of_json(&details);
    assert_eq!(said.retry_after, Some(Duration::from_millis(34_400)));
    assert!(said.has_code("QUOTA"));
}
