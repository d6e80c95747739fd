//! Mistakes in requests about transcripts: appended messages, the seq of a fork, and the seq of a list.

use contextd::pb::{self, FieldReason as F, PromptFormat, part::Content};
use prost_types::{Duration, Timestamp};
use tonic::Code;

use super::{
    rows::{Row, invalid, refused},
    scene::Scene,
};
use crate::harness::{
    requests::{result, text},
    transcripts::{calls, message, results, says},
};

const MIB: usize = 1_024 * 1_024;

fn part(content: Content) -> pb::Part {
    pb::Part { content: Some(content), ..pb::Part::default() }
}

fn user() -> pb::InputMessage {
    says(pb::Role::User, "Hello")
}

/// Messages that are not well-formed on their own.
fn messages(s: &Scene) -> Vec<Row> {
    let at = |it: pb::InputMessage| s.append_all(vec![it]);
    vec![
        invalid("nothing to append", s.append_all(vec![]), &[("messages", F::Required)]),
        invalid("1,001 messages", s.append_all(vec![user(); 1_001]), &[("messages", F::TooLarge)]),
        invalid("an append to no session", s.append(|it| it.session_id.clear()), &[("session_id", F::Required)]),
        invalid("a negative version", s.append(|it| it.context_version = -1), &[("context_version", F::OutOfRange)]),
        invalid("an empty message", at(message(pb::Role::User, vec![])), &[("messages[0].parts", F::Required)]),
        invalid(
            "an appended message of 257 parts",
            at(message(pb::Role::Assistant, vec![text("a"); 257])),
            &[("messages[0].parts", F::TooLarge)],
        ),
        invalid(
            "a role that nobody has",
            at(pb::InputMessage { role: 99, ..user() }),
            &[("messages[0].role", F::Unknown)],
        ),
        invalid(
            "a user with an answer's call",
            at(pb::InputMessage { response: Some(Default::default()), ..user() }),
            &[("messages[0].response", F::Unsupported)],
        ),
        invalid(
            "a user who calls a tool",
            at(pb::InputMessage { role: pb::Role::User.into(), ..calls(&["n"]) }),
            &[("messages[0].parts[0].tool_call", F::Unsupported)],
        ),
        invalid(
            "an assistant who answers itself",
            at(pb::InputMessage { role: pb::Role::Assistant.into(), ..results(&["n"]) }),
            &[("messages[0].parts[0].tool_result", F::Unsupported)],
        ),
        invalid(
            "a tool that talks",
            at(says(pb::Role::Tool, "Hello")),
            &[("messages[0].parts[0].text", F::Unsupported)],
        ),
    ]
}

fn parts(s: &Scene) -> Vec<Row> {
    let at = |it: pb::InputMessage| s.append_all(vec![it]);
    let call = |change: fn(&mut pb::ToolCall)| {
        let mut call = pb::ToolCall { call_id: "n".into(), tool_name: "look".into(), ..Default::default() };
        change(&mut call);
        s.append_answer(part(Content::ToolCall(call)))
    };
    let denied = pb::ToolResult { outcome: pb::ToolOutcome::Denied.into(), ..result("c", "no") };
    vec![
        invalid(
            "an appended part without content",
            s.append_answer(pb::Part::default()),
            &[("messages[0].parts[0]", F::Invalid)],
        ),
        invalid("an empty answer", s.append_answer(text("")), &[("messages[0].parts[0].text", F::Required)]),
        invalid(
            "an answer over 1 MiB",
            s.append_answer(text(&"x".repeat(MIB + 1))),
            &[("messages[0].parts[0].text", F::TooLarge)],
        ),
        invalid(
            "a summary of the host's",
            s.append_answer(part(Content::CompactionMarker(Default::default()))),
            &[("messages[0].parts[0].compaction_marker", F::Unsupported)],
        ),
        invalid(
            "metadata that is not JSON, appended",
            s.append_answer(pb::Part { provider_metadata_json: "{".into(), ..text("a") }),
            &[("messages[0].parts[0].provider_metadata_json", F::NotJson)],
        ),
        invalid(
            "a call without an id",
            call(|it| it.call_id.clear()),
            &[("messages[0].parts[0].tool_call.call_id", F::Required)],
        ),
        invalid(
            "a call of no tool",
            call(|it| it.tool_name.clear()),
            &[("messages[0].parts[0].tool_call.tool_name", F::Required)],
        ),
        invalid(
            "a call of a tool that no provider takes",
            call(|it| it.tool_name = "a.b".into()),
            &[("messages[0].parts[0].tool_call.tool_name", F::Invalid)],
        ),
        invalid(
            "a result that only the server gives",
            at(message(pb::Role::Tool, vec![part(Content::ToolResult(denied))])),
            &[("messages[0].parts[0].tool_result.outcome", F::Unsupported)],
        ),
        invalid(
            "words of the year 10,000",
            at(pb::InputMessage { create_time: Some(Timestamp { seconds: 253_402_300_800, nanos: 0 }), ..user() }),
            &[("messages[0].create_time", F::Invalid)],
        ),
    ]
}

fn responses_and_forms(s: &Scene) -> Vec<Row> {
    let at = |it: pb::InputMessage| s.append_all(vec![it]);
    let responding = |response| pb::InputMessage { response: Some(response), ..says(pb::Role::Assistant, "Fine.") };
    let usage = pb::Usage { input_tokens: -1, provider_usage_json: "no".into(), ..Default::default() };
    let failure = pb::Failure { provider_status: 600, categories: vec![Default::default()], ..Default::default() };
    let wrong = pb::ModelResponse {
        model: "a\nb".into(),
        finish_reason: 99,
        usage: Some(usage),
        failure: Some(failure),
        elapsed: Some(Duration { seconds: -1, nanos: 0 }),
        ..Default::default()
    };
    vec![
        invalid(
            "an answer's call with mistakes in it",
            at(responding(wrong)),
            &[
                ("messages[0].response.model", F::Invalid),
                ("messages[0].response.finish_reason", F::Unknown),
                ("messages[0].response.usage.input_tokens", F::OutOfRange),
                ("messages[0].response.usage.provider_usage_json", F::NotJson),
                ("messages[0].response.failure.reason", F::Required),
                ("messages[0].response.failure.provider_status", F::OutOfRange),
                ("messages[0].response.failure.categories", F::Unsupported),
                ("messages[0].response.elapsed", F::OutOfRange),
            ],
        ),
        invalid(
            "messages in two forms",
            s.append(|it| (it.messages_json, it.messages_format) = ("[]".into(), PromptFormat::OpenaiChat.into())),
            &[("messages_json", F::Conflict)],
        ),
        invalid(
            "JSON of no shape",
            s.append(|it| (it.messages, it.messages_json) = (vec![], "[]".into())),
            &[("messages_format", F::Required)],
        ),
        invalid(
            "JSON of our own shape",
            s.append(|it| {
                (it.messages, it.messages_json, it.messages_format) =
                    (vec![], "[]".into(), PromptFormat::Native.into());
            }),
            &[("messages_format", F::Unsupported)],
        ),
        invalid(
            "a shape that is not known",
            s.append(|it| it.messages_format = 99),
            &[("messages_format", F::Unknown)],
        ),
    ]
}

/// Messages that cannot follow the existing transcript.
fn misfits(s: &Scene) -> Vec<Row> {
    let imported = |messages| s.append(move |it| (it.session_id, it.messages) = ("imported".into(), messages));
    let open = "TRANSCRIPT_OPEN";
    let precondition = Code::FailedPrecondition;
    vec![
        invalid(
            "an orphaned result",
            s.append_all(vec![user(), results(&["nobody"])]),
            &[("messages[1].parts[0].tool_result.call_id", F::Unknown)],
        ),
        invalid(
            "a result of a call that has one",
            imported(vec![results(&["c2"])]),
            &[("messages[0].parts[0].tool_result.call_id", F::Conflict)],
        ),
        invalid(
            "two results of a call",
            s.append_all(vec![calls(&["n"]), results(&["n", "n"])]),
            &[("messages[1].parts[1].tool_result.call_id", F::Conflict)],
        ),
        invalid(
            "a call that nobody answers before the next message",
            s.append_all(vec![calls(&["n"]), user(), results(&["n"])]),
            &[
                ("messages[0].parts[0].tool_call", F::Invalid),
                ("messages[2].parts[0].tool_result.call_id", F::Conflict),
            ],
        ),
        invalid(
            "a call's id that is taken",
            imported(vec![results(&["c1"]), calls(&["c2"])]),
            &[("messages[1].parts[0].tool_call.call_id", F::Conflict)],
        ),
        invalid(
            "a submission to a call that was appended",
            s.submit(|it| (it.session_id, it.results) = ("imported".into(), vec![result("c1", "seen")])),
            &[("results[0].call_id", F::Unsupported)],
        ),
        refused("words behind open calls", imported(vec![user()]), precondition, open).with("call_ids", "c1"),
        refused("a turn behind open calls", s.execute(|it| it.session_id = "imported".into()), precondition, open)
            .with("call_ids", "c1"),
        refused("a fork of open calls", s.fork(|it| it.session_id = "imported".into()), precondition, open)
            .with("call_ids", "c1"),
        refused(
            "a fork between a call and its result",
            s.fork(|it| (it.session_id, it.at_seq) = ("imported".into(), 2)),
            precondition,
            open,
        )
        .with("call_ids", "c1,c2"),
        refused("a fork of a waiting turn", s.fork(|it| it.session_id = "waits".into()), precondition, open)
            .with("call_ids", &s.calls),
        refused(
            "an append to a running session",
            s.append(|it| it.session_id = "waits".into()),
            precondition,
            "TURN_IN_PROGRESS",
        )
        .with("turn_id", &s.waiting)
        .with("last_seq", s.waiting_seq),
        refused("a stale version", s.append(|it| it.context_version = 1), Code::Aborted, "CONTEXT_CHANGED")
            .with("context_version", s.version),
    ]
}

fn others(s: &Scene) -> Vec<Row> {
    let ahead = |what, call| {
        refused(what, call, Code::InvalidArgument, "CURSOR_AHEAD")
            .with("last_seq", s.last_seq)
            .field("at_seq", F::OutOfRange)
    };
    let chosen = |id: &'static str| s.fork(move |it| it.new_session_id = id.into());
    vec![
        invalid("a fork of nothing", s.fork(|it| it.session_id.clear()), &[("session_id", F::Required)]),
        invalid("a fork before the beginning", s.fork(|it| it.at_seq = -1), &[("at_seq", F::OutOfRange)]),
        invalid("a fork by a name that none can have", chosen("a b"), &[("new_session_id", F::Invalid)]),
        ahead("a fork ahead of its session", s.fork(|it| it.at_seq = s.last_seq + 1)),
        ahead("messages ahead of their session", s.list_messages(|it| it.at_seq = s.last_seq + 1)),
        ahead("an export ahead of its session", s.export(|it| it.at_seq = s.last_seq + 1)),
        refused("a fork by a name that is taken", chosen("waits"), Code::AlreadyExists, "SESSION_ALREADY_EXISTS"),
    ]
}

pub(super) fn table(s: &Scene) -> Vec<Row> {
    [messages, parts, responses_and_forms, misfits, others].into_iter().flat_map(|table| table(s)).collect()
}
