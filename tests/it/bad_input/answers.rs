//! Mistakes in responses to tool calls, and turns without input or anything else to start with.

use contextd::pb::{self, FieldReason as F};
use tonic::Code;

use super::{
    rows::{KIB, MIB, Row, invalid, refused},
    scene::Scene,
};
use crate::harness::requests::{result, text};

pub(super) fn decisions(s: &Scene) -> Vec<Row> {
    let decide = |decision: pb::ApprovalDecision, edited: &str, reason: &str| {
        let edited_arguments_json = edited.into();
        let reason = reason.into();
        let approval =
            pb::Approval { call_id: s.open.clone(), decision: decision.into(), edited_arguments_json, reason };
        s.submit(|it| it.approvals = vec![approval])
    };
    let approve = pb::ApprovalDecision::Approve;
    let deny = pb::ApprovalDecision::Deny;
    let named = |call: &str| pb::Approval { call_id: call.into(), decision: approve.into(), ..Default::default() };
    let edited = "approvals[0].edited_arguments_json";
    let reason = "approvals[0].reason";
    vec![
        invalid("arguments that are a list", decide(approve, "[]", ""), &[(edited, F::NotJson)]),
        invalid("arguments that are cut off", decide(approve, "{\"a\":", ""), &[(edited, F::NotJson)]),
        invalid(
            "arguments over 256 KiB",
            decide(approve, &format!("{{\"a\":\"{}\"}}", "x".repeat(256 * KIB)), ""),
            &[(edited, F::TooLarge)],
        ),
        invalid("arguments of a denied call", decide(deny, "{}", ""), &[(edited, F::Conflict)]),
        invalid("a reason to approve", decide(approve, "", "it is fine"), &[(reason, F::Conflict)]),
        invalid("a reason too long", decide(deny, "", &"x".repeat(16_385)), &[(reason, F::TooLarge)]),
        invalid(
            "an approval of a call nobody made",
            s.submit(|it| it.approvals = vec![named("never")]),
            &[("approvals[0].call_id", F::Unknown)],
        ),
        invalid(
            "an approval of another session's call",
            s.submit(|it| it.approvals = vec![named(&s.elsewhere)]),
            &[("approvals[0].call_id", F::Unknown)],
        ),
        invalid(
            "a result and an approval of calls nobody made",
            s.submit(|it| (it.results, it.approvals) = (vec![result("never", "")], vec![named("ever")])),
            &[("results[0].call_id", F::Unknown), ("approvals[0].call_id", F::Unknown)],
        ),
        invalid(
            "one call approved twice",
            s.submit(|it| it.approvals = vec![named(&s.open), named(&s.open)]),
            &[("approvals[1].call_id", F::Conflict)],
        ),
        invalid(
            "a decision that is not known",
            s.submit(|it| it.approvals = vec![pb::Approval { decision: 99, ..named(&s.open) }]),
            &[("approvals[0].decision", F::Unknown)],
        ),
    ]
}

pub(super) fn answers(s: &Scene) -> Vec<Row> {
    let approval =
        |call: &str| pb::Approval { call_id: call.into(), edited_arguments_json: "no".into(), ..Default::default() };
    vec![
        invalid("no answer", s.submit(|_| ()), &[("results", F::Required)]),
        invalid(
            "129 answers",
            s.submit(|it| it.results = (0..129).map(|i| result(&i.to_string(), "")).collect()),
            &[("results", F::TooLarge)],
        ),
        invalid("a call nobody made", s.answers(&["never"]), &[("results[0].call_id", F::Unknown)]),
        invalid("a call of another session", s.answers(&[&s.elsewhere]), &[("results[0].call_id", F::Unknown)]),
        invalid("a call and one nobody made", s.answers(&[&s.open, "never"]), &[("results[1].call_id", F::Unknown)]),
        invalid("one call twice", s.answers(&[&s.open, &s.open]), &[("results[1].call_id", F::Conflict)]),
        invalid(
            "a result and an approval",
            s.submit(|it| {
                (it.results, it.approvals) = (
                    vec![result(&s.open, "fine")],
                    vec![pb::Approval { decision: 1, call_id: s.open.clone(), ..Default::default() }],
                )
            }),
            &[("approvals[0].call_id", F::Conflict)],
        ),
        invalid(
            "an approval of nothing",
            s.submit(|it| it.approvals = vec![approval("")]),
            &[
                ("approvals[0].call_id", F::Required),
                ("approvals[0].decision", F::Required),
                ("approvals[0].edited_arguments_json", F::NotJson),
            ],
        ),
        invalid(
            "an outcome that is not the host's",
            s.answer(|it| it.set_outcome(pb::ToolOutcome::TimedOut)),
            &[("results[0].outcome", F::Unsupported)],
        ),
        invalid("an outcome that is not known", s.answer(|it| it.outcome = 99), &[("results[0].outcome", F::Unknown)]),
        invalid(
            "a result's part without content",
            s.answer(|it| it.parts = vec![pb::Part::default()]),
            &[("results[0].parts[0]", F::Invalid)],
        ),
        invalid(
            "a result over 3 MiB",
            s.answer(|it| it.parts = vec![text(&"x".repeat(MIB + MIB / 2 + 1)); 2]),
            &[("results[0].parts", F::TooLarge)],
        ),
    ]
}

pub(super) fn starts(s: &Scene) -> Vec<Row> {
    vec![
        refused("nothing to run", s.execute(|it| it.input = None), Code::FailedPrecondition, "NO_INPUT"),
        refused(
            "nothing to run in a session that talked",
            s.execute(|it| (it.session_id, it.input) = ("talked".into(), None)),
            Code::FailedPrecondition,
            "NO_INPUT",
        ),
        refused(
            "a transcript that ends in the model's own words",
            s.execute(|it| (it.session_id, it.input, it.continue_transcript) = ("talked".into(), None, true)),
            Code::FailedPrecondition,
            "NO_INPUT",
        ),
        refused(
            "the transcript of a session that is not there",
            s.execute(|it| (it.input, it.continue_transcript) = (None, true)),
            Code::FailedPrecondition,
            "NO_INPUT",
        ),
    ]
}
