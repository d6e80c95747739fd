//! Tests SubmitToolResults.

use super::*;
use crate::model::{
    CallId, ToolOutcome,
    command::{Decision, SubmittedResult, Verdict},
};

fn result(call: &str, parts: Vec<pb::Part>) -> pb::ToolResult {
    pb::ToolResult { call_id: call.into(), parts, ..Default::default() }
}

fn submit(results: Vec<pb::ToolResult>) -> Result<Vec<SubmittedResult>, RequestError> {
    submit_all(results, vec![])
}

fn submit_all(
    results: Vec<pb::ToolResult>,
    approvals: Vec<pb::Approval>,
) -> Result<Vec<SubmittedResult>, RequestError> {
    let session_id = "s".into();
    let request_id = String::new();
    let request = pb::SubmitToolResultsRequest { session_id, request_id, results, approvals };
    decoded(request).map(|submit| submit.results)
}

#[test]
fn results_are_read_in_order() {
    let failed = pb::ToolResult {
        outcome: pb::ToolOutcome::Error.into(),
        tool_name: "any name at all".into(),
        truncation: Some(Default::default()),
        prune_mark: Some(Default::default()),
        display_text: "ours".to_owned(),
        ..result("b", vec![])
    };
    let results = submit(vec![result("a", vec![text("x\0"), text(""), text("y")]), failed]).unwrap();
    let expected = [
        SubmittedResult {
            call: CallId::new("a"),
            parts: vec!["x\u{FFFD}".into(), "y".into()],
            outcome: ToolOutcome::Success,
            sanitized: true,
            display_text: String::new(),
        },
        SubmittedResult {
            call: CallId::new("b"),
            parts: vec![],
            outcome: ToolOutcome::Error,
            sanitized: false,
            display_text: String::new(),
        },
    ];
    assert_eq!(results, expected);
}

#[test]
fn the_session_is_required() {
    let request = pb::SubmitToolResultsRequest { results: vec![result("a", vec![])], ..Default::default() };
    check(decoded(request), &[("session_id", Required)]);
}

#[test]
fn there_are_one_to_128_answers() {
    let results = |count: usize| (0..count).map(|i| result(&i.to_string(), vec![])).collect();
    check(submit(vec![]), &[("results", Required)]);
    check(submit(results(128)), &[]);
    check(submit(results(129)), &[("results", TooLarge)]);
}

#[test]
fn call_ids_are_bounded_single_lines() {
    check(submit(vec![result("toolu_01/ü", vec![])]), &[]);
    check(submit(vec![result(&"ü".repeat(256), vec![])]), &[]);
    check(submit(vec![result("", vec![])]), &[("results[0].call_id", Required)]);
    check(submit(vec![result(&"a".repeat(257), vec![])]), &[("results[0].call_id", TooLarge)]);
    check(submit(vec![result("a\0", vec![])]), &[("results[0].call_id", Invalid)]);
}

#[test]
fn a_request_answers_each_call_once() {
    let results = submit(vec![result("a", vec![]), result("b", vec![]), result("a", vec![])]);
    let Err(RequestError::Invalid(violations)) = &results else { panic!("is invalid") };
    assert!(violations.listed[0].description.contains("results[0]"));
    check(results, &[("results[2].call_id", Conflict)]);
    let approval = pb::Approval { call_id: "a".into(), decision: 1, ..Default::default() };
    check(submit_all(vec![result("a", vec![])], vec![approval]), &[("approvals[0].call_id", Conflict)]);
}

#[test]
fn a_tool_result_is_content_or_an_error() {
    let of = |outcome: i32| vec![pb::ToolResult { outcome, ..result("a", vec![]) }];
    check(submit(of(pb::ToolOutcome::Success.into())), &[]);
    for outcome in [pb::ToolOutcome::Denied, pb::ToolOutcome::TimedOut, pb::ToolOutcome::Cancelled] {
        check(submit(of(outcome.into())), &[("results[0].outcome", Unsupported)]);
    }
    check(submit(of(99)), &[("results[0].outcome", Unknown)]);
}

#[test]
fn a_result_is_text_of_at_most_three_mebibytes() {
    let mebibyte = "x".repeat(1024 * 1024);
    let two = mebibyte.repeat(2);
    check(submit(vec![result("a", vec![text(&two), text(&mebibyte)])]), &[]);
    check(submit(vec![result("a", vec![text(&two), text(&mebibyte), text("x")])]), &[("results[0].parts", TooLarge)]);
}

#[test]
fn a_result_holds_no_other_parts() {
    use pb::part::Content;
    check(submit(vec![result("a", vec![pb::Part::default()])]), &[("results[0].parts[0]", Invalid)]);
    let refusal = part(Content::Refusal("no".into()));
    check(submit(vec![result("a", vec![refusal])]), &[("results[0].parts[0].refusal", Unsupported)]);
    let decorated = pb::Part { citations: vec![Default::default()], provider_metadata_json: "{}".into(), ..text("x") };
    check(
        submit(vec![result("a", vec![decorated])]),
        &[("results[0].parts[0].citations", Unsupported), ("results[0].parts[0].provider_metadata_json", Unsupported)],
    );
}

#[test]
fn a_decision_is_read_with_what_belongs_to_it() {
    let decide = |approvals| {
        let request = pb::SubmitToolResultsRequest { session_id: "s".into(), approvals, ..Default::default() };
        decoded(request).map(|submit| submit.decisions)
    };
    let approval = |decision: pb::ApprovalDecision, edited: &str, reason: &str| pb::Approval {
        call_id: "a".into(),
        decision: decision.into(),
        edited_arguments_json: edited.into(),
        reason: reason.into(),
    };
    let approve = pb::ApprovalDecision::Approve;
    let deny = pb::ApprovalDecision::Deny;
    let table = [
        (approval(approve, "", ""), Verdict::Approve { edited: None }),
        (approval(approve, " {\"a\": 1.0} ", ""), Verdict::Approve { edited: Some(" {\"a\": 1.0} ".into()) }),
        (approval(deny, "", "no\0"), Verdict::Deny { sanitized: true, reason: "no\u{FFFD}".into() }),
    ];
    for (approval, verdict) in table {
        assert_eq!(decide(vec![approval]).unwrap(), [Decision { call: CallId::new("a"), verdict }]);
    }
    check(decide(vec![approval(deny, "{}", "")]), &[("approvals[0].edited_arguments_json", Conflict)]);
    check(decide(vec![approval(approve, "", "why")]), &[("approvals[0].reason", Conflict)]);
    check(decide(vec![approval(approve, "[]", "")]), &[("approvals[0].edited_arguments_json", NotJson)]);
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(256 * 1024));
    check(decide(vec![approval(approve, &long, "")]), &[("approvals[0].edited_arguments_json", TooLarge)]);
    check(decide(vec![approval(deny, "", &"x".repeat(16_385))]), &[("approvals[0].reason", TooLarge)]);
}

#[test]
fn all_violations_of_an_approval_are_reported() {
    let approval = pb::Approval { call_id: "a".into(), decision: 1, ..Default::default() };
    let edited_arguments_json = "[]".to_owned();
    let wrong = pb::Approval { call_id: String::new(), decision: 0, edited_arguments_json, reason: String::new() };
    check(
        submit_all(vec![], vec![wrong]),
        &[
            ("approvals[0].call_id", Required),
            ("approvals[0].decision", Required),
            ("approvals[0].edited_arguments_json", NotJson),
        ],
    );
    check(submit_all(vec![], vec![pb::Approval { decision: 9, ..approval }]), &[("approvals[0].decision", Unknown)]);
}
