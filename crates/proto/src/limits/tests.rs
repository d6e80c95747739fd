//! The generated checks of requests, and the limits that they are made of.

use super::*;
use crate as pb;

/// The violations, as `path: reason`.
#[derive(Default)]
struct Found(Vec<String>);

impl Report for Found {
    fn invalid(&mut self, at: Path<'_>, reason: FieldReason, _: String) {
        self.0.push(format!("{at}: {reason:?}"));
    }
}

#[track_caller]
fn check(request: &impl Limited, expected: &[&str]) {
    let mut found = Found::default();
    request.check(Path::request(), &mut found);
    assert_eq!(found.0, expected);
}

#[track_caller]
fn check_form(form: Form, text: &str, is_allowed: bool) {
    assert_eq!(form.allows(text), is_allowed, "{text:?}");
}

#[test]
fn text_limits_count_scalar_values_or_bytes() {
    let limit = |size| TextLimit { required: false, size, form: Form::Any };
    assert!(limit(Size::Characters(2)).fits("üü"));
    assert!(!limit(Size::Characters(2)).fits("üüü"));
    assert!(limit(Size::Bytes(4)).fits("üü"));
    assert!(!limit(Size::Bytes(3)).fits("üü"));
}

#[test]
fn each_form_of_text_has_its_characters() {
    check_form(Form::Id, "aZ9._:-", true);
    check_form(Form::Name, "aZ9_-", true);
    check_form(Form::Tenant, "a9._-", true);
    for text in ["a b", "ü", "a/", "a\n", "@"] {
        check_form(Form::Id, text, false);
    }
    check_form(Form::Name, "a.b", false);
    check_form(Form::Tenant, "A", false);
    check_form(Form::Line, "a ü", true);
    check_form(Form::Line, "a\tb", false);
    check_form(Form::Any, "\0", true);
}

#[test]
fn every_kind_of_field_is_checked_at_its_path() {
    check(
        &pb::ExecuteTurnRequest {
            session_id: "a b".to_owned(),
            request_id: "x".repeat(129),
            after_seq: -1,
            input: Some(pb::InputMessage {
                role: 99,
                metadata: [(String::new(), "v".to_owned())].into(),
                ..Default::default()
            }),
            limits: Some(pb::TurnLimits { max_steps: 1_001, ..Default::default() }),
            generation: Some(pb::Generation {
                temperature: Some(f64::NAN),
                seed: Some(-5),
                stop_sequences: vec!["a".to_owned(), String::new()],
                ..Default::default()
            }),
            cancel_after_disconnect: Some(prost_types::Duration { seconds: 0, nanos: 1 }),
            ..Default::default()
        },
        &[
            "session_id: Invalid",
            "request_id: TooLarge",
            "after_seq: OutOfRange",
            "input.role: Unknown",
            "input.parts: Required",
            "input.metadata[\"\"]: Required",
            "limits.max_steps: OutOfRange",
            "generation.temperature: OutOfRange",
            "generation.stop_sequences[1]: Required",
            "cancel_after_disconnect: OutOfRange",
        ],
    );
    check(&pb::EnqueueMessageRequest::default(), &["session_id: Required", "message: Required"]);
}

#[test]
fn elements_after_the_maximum_are_reported_with_their_list() {
    let request = pb::CountTokensRequest { messages: vec![pb::InputMessage::default(); 1_001], ..Default::default() };
    let mut found = Found::default();
    request.check(Path::request(), &mut found);
    assert_eq!(found.0.len(), 1_001);
    assert_eq!(found.0[0], "messages: TooLarge");
    assert_eq!(found.0[1_000], "messages[999].parts: Required");
}

#[test]
fn only_fields_that_the_server_sets_are_cleared() {
    let media = pb::Media { filename: "a.png".to_owned(), width: 5, ..Default::default() };
    let part = |media| pb::Part { content: Some(pb::part::Content::Media(media)), ..Default::default() };
    let message = |media| pb::InputMessage { parts: vec![part(media)], ..Default::default() };
    let mut sent = message(media.clone());
    sent.parts[0].sanitized = true;
    sent.clear_output_only();
    assert_eq!(sent, message(pb::Media { width: 0, ..media }));
}
