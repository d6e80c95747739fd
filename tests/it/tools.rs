//! Tool calls of the host: limits of tool outputs, and results that are late, repeated, split between submissions, or
//! missing.

use std::time::Duration;

use crate::harness::{
    Host, Options,
    events::{
        Carrier, all, allowed, completed, content, extend, kinds, message_text, messages, outline, requested, results,
        turn_id, until,
    },
    host::{MODEL, answering, call, refusal, script, statuses, until as eventually},
    requests::{result, submit, text, tool, tools, turn},
};
use contextd::{
    context::truncate::MARKER,
    pb::{self, AnswerStatus, CompletionReason, ToolOutcome, event::Payload},
};
use serde_json::{Value, json};
use tonic::{Code, Streaming};

/// Reads a turn until its calls wait. Returns the events and the calls.
async fn waiting<T: Carrier>(stream: &mut Streaming<T>) -> (Vec<pb::Event>, Vec<String>) {
    let events = until(stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let calls = requested(&events);
    (events, calls)
}

fn two_calls() -> Options {
    answering(&[json!([call("look"), call("list")]), json!([{"text": "{{result:look}} and {{result:list}}"}])])
}

fn asks(session: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["look", "list"]), ..turn(session, MODEL, "Hello") }
}

fn steps_begun(events: &[pb::Event], step: i32) -> usize {
    let begins = |event: &&pb::Event| matches!(event.payload, Some(Payload::StepStarted(_))) && event.step == step;
    events.iter().filter(begins).count()
}

// --- Limits of tool outputs
// -------------------------------------------------------------------------------------

/// An output, and the text that is kept of it. `None` means all of it.
struct Output {
    tool: pb::Tool,
    output: String,
    kept: Option<String>,
}

fn kept(tool: pb::Tool, output: String, kept: &str) -> Output {
    Output { tool, output, kept: Some(kept.to_owned()) }
}

fn whole(tool: pb::Tool, output: String) -> Output {
    Output { tool, output, kept: None }
}

fn limited(name: &str, limits: pb::ToolOutputLimits) -> pb::Tool {
    pb::Tool { output_limits: Some(limits), ..tool(name) }
}

fn chars(most: i32) -> pb::ToolOutputLimits {
    pb::ToolOutputLimits { max_output_chars: most, ..pb::ToolOutputLimits::default() }
}

fn lines(number: usize, line: &str) -> String {
    vec![line; number].join("\n")
}

/// Returns the outputs of all tools in one batch. Compares the events, the stored results, the blobs, and the input of
/// the model.
async fn check_limits(policy: Option<pb::Policy>, outputs: Vec<Output>) {
    let names: Vec<Value> = outputs.iter().map(|output| call(&output.tool.name)).collect();
    let host = Host::scripted(&[json!(names), json!([{"text": "Done."}])]).await;
    let request = pb::ExecuteTurnRequest {
        tools: Some(pb::ToolSet {
            host_tools: outputs.iter().map(|output| output.tool.clone()).collect(),
            ..pb::ToolSet::default()
        }),
        session: Some(pb::Session { policy_overrides: policy, ..pb::Session::default() }),
        stream: Some(pb::StreamOptions { include_raw_tool_output: true, ..pb::StreamOptions::default() }),
        ..turn("s", MODEL, "Hello")
    };
    let mut stream = host.execute(request).await;
    let (_, calls) = waiting(&mut stream).await;
    for (call, output) in calls.iter().zip(&outputs) {
        assert_eq!(host.submit("s", vec![result(call, &output.output)]).await, [AnswerStatus::Accepted]);
    }
    let rest = all(&mut stream).await;
    let stored = host.messages("s").await;
    let stored: Vec<_> = stored[2].parts.iter().filter_map(|part| part.content.clone()).collect();
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    let given = &prompt.transcript.messages()[2].parts;
    assert_eq!((results(&rest).len(), stored.len(), given.len()), (outputs.len(), outputs.len(), outputs.len()));
    for (at, Output { tool, output, kept }) in outputs.iter().enumerate() {
        let name = &tool.name;
        let pb::part::Content::ToolResult(stored) = &stored[at] else { panic!("{name}: no result") };
        // Because of its size, the result may be cleared after the turn.
        let stored = &pb::ToolResult { prune_mark: None, ..stored.clone() };
        assert_eq!(&stored, &results(&rest)[at], "{name}: announced as stored");
        assert_eq!(stored.parts.len(), 1, "{name}");
        let raw: Vec<&str> = raw_parts(&rest)[at].iter().map(content).collect();
        assert!(raw == kept.iter().map(|_| output.as_str()).collect::<Vec<_>>(), "{name}: the whole of what was cut");
        let contextd::model::Content::ToolResult(given) = &given[at].part.content else { panic!("{name}: no result") };
        assert_eq!(
            given.texts().collect::<Vec<_>>(),
            [content(&stored.parts[0])],
            "{name}: the model is given what is stored"
        );
        let Some(kept) = kept else {
            assert!(content(&stored.parts[0]) == output, "{name}: not as it was");
            assert_eq!(stored.truncation, None, "{name}");
            continue;
        };
        assert!(content(&stored.parts[0]) == format!("{kept}{MARKER}"), "{name}: not what should be kept");
        let truncation = stored.truncation.clone().unwrap();
        assert!(!truncation.for_room, "{name}: there is room");
        let counts = (truncation.original_chars, truncation.kept_chars);
        let expected = (output.chars().count().try_into().unwrap(), kept.chars().count().try_into().unwrap());
        assert_eq!(counts, expected, "{name}");
        let blob = truncation.full_output.unwrap();
        assert_eq!(usize::try_from(blob.size_bytes).unwrap(), output.len(), "{name}");
        let whole = pb::GetBlobRequest { blob_id: blob.blob_id, ..pb::GetBlobRequest::default() };
        assert!(
            host.replica.blob(whole).await.1 == output.as_bytes(),
            "{name}: the blob does not hold the whole output"
        );
    }
}

/// The raw parts of each result, in order.
fn raw_parts(events: &[pb::Event]) -> Vec<&[pb::Part]> {
    let parts = events.iter().filter_map(|event| match &event.payload {
        Some(Payload::ToolCallCompleted(completed)) => Some(completed.raw_parts.as_slice()),
        _ => None,
    });
    parts.collect()
}

/// Rows D6 and D25
#[tokio::test(flavor = "multi_thread")]
async fn the_whole_output_comes_with_its_event_where_the_stream_asks_for_it() {
    let host = Host::scripted(&[json!([call("look")]), json!([{"text": "Done."}])]).await;
    let request = pb::ExecuteTurnRequest {
        tools: Some(pb::ToolSet { host_tools: vec![limited("look", chars(10))], ..pb::ToolSet::default() }),
        ..turn("s", MODEL, "Hello")
    };
    // The end of the preview splits a character of two bytes.
    let output = format!("x{}", "é".repeat(200_000));
    let plain = host.run_with(request, |call| result(&call.call_id, &output)).await;
    assert_eq!(raw_parts(&plain), [&[] as &[pb::Part]]);
    let stream = Some(pb::StreamOptions { include_raw_tool_output: true, ..pb::StreamOptions::default() });
    let watch =
        pb::WatchEventsRequest { session_id: "s".to_owned(), turn_id: turn_id(&plain), stream, ..Default::default() };
    let raw = all(&mut host.turns().watch_events(watch).await.unwrap().into_inner()).await;
    let [[part]] = raw_parts(&raw)[..] else { panic!("not one part") };
    assert_eq!(content(part), format!("x{}", "é".repeat(2_047)), "too large for an event: its first 4 KiB");
    let whole = part.preview_of.clone().unwrap();
    assert_eq!(whole.size_bytes, 400_001);
    let whole = pb::GetBlobRequest { blob_id: whole.blob_id, ..pb::GetBlobRequest::default() };
    assert!(host.replica.blob(whole).await.1 == output.as_bytes(), "the blob does not hold the whole output");
}

/// Row D6
#[tokio::test(flavor = "multi_thread")]
async fn tool_output_is_truncated_at_its_limit_and_kept_whole() {
    assert_eq!(MARKER, "\n\n[Output truncated - exceeded maximum length]");
    check_limits(
        None,
        vec![whole(tool("exact"), "é".repeat(120_000)), kept(tool("above"), "é".repeat(120_001), &"é".repeat(120_000))],
    )
    .await;
}

/// Row D6
#[tokio::test(flavor = "multi_thread")]
async fn bash_read_and_grep_have_limits_of_their_own() {
    let long = "x".repeat(2_000);
    check_limits(None, vec![whole(tool("bash"), "b".repeat(30_000))]).await;
    check_limits(None, vec![kept(tool("bash"), "b".repeat(30_001), &"b".repeat(30_000))]).await;
    check_limits(None, vec![whole(tool("read"), lines(2_000, "line"))]).await;
    check_limits(None, vec![kept(tool("read"), lines(2_001, "line"), &lines(2_000, "line"))]).await;
    check_limits(None, vec![whole(tool("read"), lines(3, &long))]).await;
    check_limits(None, vec![kept(tool("read"), lines(3, &format!("{long}y")), &lines(3, &long))]).await;
    check_limits(None, vec![whole(tool("grep"), lines(1_000, "a.rs:1: match"))]).await;
    check_limits(None, vec![kept(tool("grep"), lines(1_001, "a.rs:1: match"), &lines(1_000, "a.rs:1: match"))]).await;
}

/// Row D6
#[tokio::test(flavor = "multi_thread")]
async fn tool_limits_override_session_limits_which_override_server_limits() {
    let policy = pb::Policy {
        tools: Some(pb::ToolPolicy {
            default_output_limits: Some(chars(10)),
            output_limits: [("bash".to_owned(), chars(20))].into(),
            ..pb::ToolPolicy::default()
        }),
        ..pb::Policy::default()
    };
    check_limits(
        Some(policy),
        vec![
            kept(tool("other"), "o".repeat(11), &"o".repeat(10)),
            kept(tool("bash"), "b".repeat(21), &"b".repeat(20)),
            kept(limited("own", chars(5)), "abcdefg".to_owned(), "abcde"),
            whole(limited("more", chars(200_000)), "m".repeat(130_000)),
        ],
    )
    .await;
    let both = pb::ToolOutputLimits { keep: pb::KeepPart::HeadAndTail.into(), ..chars(4) };
    let host = Host::scripted(&[json!([call("ends")]), json!([{"text": "Done."}])]).await;
    let ends = pb::ToolSet { host_tools: vec![limited("ends", both)], ..pb::ToolSet::default() };
    let request = pb::ExecuteTurnRequest { tools: Some(ends), ..turn("s", MODEL, "Hello") };
    let seen = host.run_with(request, |call| result(&call.call_id, "ABcdefYZ")).await;
    assert_eq!(content(&results(&seen)[0].parts[0]), format!("AB{MARKER}\n\nYZ"));
}

// --- Submissions
// ---------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn results_come_in_parts_and_in_any_order() {
    let host = Host::with(two_calls()).await;
    let mut stream = host.execute(asks("s")).await;
    let (head, calls) = waiting(&mut stream).await;
    let pending: Vec<String> =
        host.turn("s", &turn_id(&head)).await.pending_calls.into_iter().filter_map(|p| Some(p.call?.call_id)).collect();
    assert_eq!(pending, calls);

    let first = host.try_submit(submit("s", vec![result(&calls[1], "list")])).await.unwrap();
    assert_eq!((statuses(&first), &first.pending_call_ids), (vec![AnswerStatus::Accepted], &vec![calls[0].clone()]));
    let stored = host.turn("s", &turn_id(&head)).await;
    assert_eq!(stored.state(), pb::TurnState::AwaitingTools);
    assert_eq!(stored.pending_calls.len(), 1);
    assert_eq!(host.messages("s").await.len(), 2, "results are a message once all are there");

    let second = host.try_submit(submit("s", vec![result(&calls[0], "look")])).await.unwrap();
    assert_eq!((statuses(&second), second.pending_call_ids), (vec![AnswerStatus::Accepted], vec![]));
    let rest = all(&mut stream).await;
    assert_eq!(message_text(messages(&rest)[1]), "look and list");
    assert_eq!(outline(&host.messages("s").await)[2], "TOOL: result look \"look\", result list \"list\"");
    assert_eq!(
        kinds(&rest),
        [
            "tool_call_completed",
            "tool_call_completed",
            "message_committed",
            "step_started",
            "message_committed",
            "usage_recorded",
            "turn_completed",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_answered_once_and_later_results_are_duplicates() {
    let host = Host::with(two_calls()).await;
    let mut stream = host.execute(asks("s")).await;
    let (_, calls) = waiting(&mut stream).await;
    let first = result(&calls[0], "first");
    let other = result(&calls[0], "another");
    let failed = pb::ToolResult { outcome: ToolOutcome::Error.into(), ..first.clone() };
    let table = [
        (first.clone(), AnswerStatus::Accepted),
        (first.clone(), AnswerStatus::Duplicate),
        (other.clone(), AnswerStatus::Stale),
        (failed, AnswerStatus::Stale),
    ];
    for (answer, status) in table {
        assert_eq!(host.submit("s", vec![answer]).await, [status]);
    }
    let mixed = host.submit("s", vec![other.clone(), result(&calls[1], "second")]).await;
    assert_eq!(mixed, [AnswerStatus::Stale, AnswerStatus::Accepted], "one stale answer does not hold up the others");
    assert_eq!(message_text(messages(&all(&mut stream).await)[1]), "first and second");
    let ended = host.database.row_counts().await;
    assert_eq!(host.submit("s", vec![first]).await, [AnswerStatus::Duplicate]);
    assert_eq!(host.submit("s", vec![other]).await, [AnswerStatus::Stale]);
    assert_eq!(host.database.row_counts().await, ended, "answers after the end change nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_submission_is_accepted_again_and_another_under_its_id_is_refused() {
    let host = Host::with(two_calls()).await;
    let mut stream = host.execute(asks("s")).await;
    let (_, calls) = waiting(&mut stream).await;
    let with_id = |results| pb::SubmitToolResultsRequest { request_id: "r1".to_owned(), ..submit("s", results) };
    let request = with_id(vec![result(&calls[0], "first")]);
    for _ in 0..2 {
        let answer = host.try_submit(request.clone()).await.unwrap();
        assert_eq!(
            (statuses(&answer), answer.pending_call_ids),
            (vec![AnswerStatus::Accepted], vec![calls[1].clone()])
        );
    }
    let before = host.database.row_counts().await;
    let refused = host.try_submit(with_id(vec![result(&calls[1], "second")])).await.unwrap_err();
    let expected = (Code::InvalidArgument, "IDEMPOTENCY_MISMATCH".to_owned(), "r1".to_owned());
    assert_eq!(refusal(&refused, "request_id"), expected);
    assert_eq!(host.database.row_counts().await, before);
    host.submit("s", vec![result(&calls[1], "second")]).await;
    all(&mut stream).await;
    let after_the_end = host.try_submit(request).await.unwrap();
    assert_eq!(statuses(&after_the_end), [AnswerStatus::Accepted]);
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_identical_submissions_at_once_resume_the_turn_once() {
    let host = Host::with(two_calls()).await;
    for round in 0..5 {
        let session = format!("s{round}");
        let mut stream = host.execute(asks(&session)).await;
        let (head, calls) = waiting(&mut stream).await;
        let request = submit(&session, vec![result(&calls[0], "a"), result(&calls[1], "b")]);
        let mut submitters = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let mut turns = host.replica.turns().await;
            let request = request.clone();
            submitters.spawn(async move { turns.submit_tool_results(request).await.unwrap().into_inner() });
        }
        let receipts: Vec<_> = submitters.join_all().await.iter().flat_map(statuses).collect();
        let of = |status| receipts.iter().filter(|receipt| **receipt == status).count();
        assert_eq!((of(AnswerStatus::Accepted), of(AnswerStatus::Duplicate)), (2, 14));
        let seen = [head, all(&mut stream).await].concat();
        assert_eq!((steps_begun(&seen, 2), steps_begun(&seen, 3)), (1, 0));
        assert_eq!(results(&seen).len(), 2);
        assert_eq!(host.messages(&session).await.len(), 4);
    }
    assert_eq!(host.replica.scripted.prompts().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_go_to_any_replica() {
    let host = Host::with(two_calls()).await;
    let other = host.beside(two_calls()).await;
    let mut stream = host.execute(asks("s")).await;
    let (_, calls) = waiting(&mut stream).await;
    assert_eq!(other.submit("s", vec![result(&calls[0], "a")]).await, [AnswerStatus::Accepted]);
    assert_eq!(host.submit("s", vec![result(&calls[0], "a")]).await, [AnswerStatus::Duplicate]);
    assert_eq!(other.submit("s", vec![result(&calls[1], "b")]).await, [AnswerStatus::Accepted]);
    let rest = all(&mut stream).await;
    assert_eq!(message_text(messages(&rest)[1]), "a and b");
    let prompts = |host: &Host| host.replica.scripted.prompts().len();
    assert_eq!((prompts(&host), prompts(&other)), (1, 1), "who takes the last answer goes on with the turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_several_parts_and_an_empty_one_are_both_results() {
    let host = Host::with(two_calls()).await;
    let mut stream = host.execute(asks("s")).await;
    let (_, calls) = waiting(&mut stream).await;
    let several = pb::ToolResult { parts: vec![text("one"), text("two")], ..result(&calls[0], "") };
    let nothing = pb::ToolResult { parts: Vec::new(), ..result(&calls[1], "") };
    assert_eq!(host.submit("s", vec![several, nothing]).await, [AnswerStatus::Accepted; 2]);
    let rest = all(&mut stream).await;
    let parts = |at: usize| results(&rest)[at].parts.iter().map(content).collect::<Vec<_>>();
    assert_eq!((parts(0), parts(1)), (vec!["one", "two"], vec![]));
    assert_eq!(completed(&rest).reason(), CompletionReason::Stop);
}

// --- Results that never come
// ---------------------------------------------------------------------------------------

fn impatient(name: &str, millis: u64) -> pb::Tool {
    pb::Tool { timeout: Some(Duration::from_millis(millis).try_into().unwrap()), ..tool(name) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_past_its_timeout_gets_an_error_result_and_the_turn_goes_on() {
    let host = Host::with(two_calls()).await;
    let toolset =
        pb::ToolSet { host_tools: vec![impatient("look", 200), impatient("list", 250)], ..pb::ToolSet::default() };
    let mut stream = host.execute(pb::ExecuteTurnRequest { tools: Some(toolset), ..asks("s") }).await;
    let (_, calls) = waiting(&mut stream).await;
    let rest = all(&mut stream).await;
    let outcomes: Vec<_> = results(&rest).iter().map(|result| (result.call_id.as_str(), result.outcome())).collect();
    assert_eq!(outcomes, [(calls[0].as_str(), ToolOutcome::TimedOut), (calls[1].as_str(), ToolOutcome::TimedOut)]);
    assert_eq!(completed(&rest).reason(), CompletionReason::Stop);
    assert_eq!(message_text(messages(&rest)[1]), "[No result came in time.] and [No result came in time.]");
    assert_eq!(host.submit("s", vec![result(&calls[0], "late")]).await, [AnswerStatus::Stale]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_that_times_out_leaves_the_others_their_results() {
    let host = Host::with(two_calls()).await;
    let toolset = pb::ToolSet { host_tools: vec![impatient("look", 200), tool("list")], ..pb::ToolSet::default() };
    for (session, late) in [("before", false), ("after", true)] {
        let request = pb::ExecuteTurnRequest { tools: Some(toolset.clone()), ..asks(session) };
        let mut stream = host.execute(request).await;
        let (head, calls) = waiting(&mut stream).await;
        if late {
            let over = until(&mut stream, |payload| matches!(payload, Payload::ToolCallCompleted(_))).await;
            assert_eq!(results(&over)[0].outcome(), ToolOutcome::TimedOut);
            let stored = host.turn(session, &turn_id(&head)).await;
            assert_eq!((stored.state(), stored.pending_calls.len()), (pb::TurnState::AwaitingTools, 1));
            assert_eq!(host.submit(session, vec![result(&calls[0], "late")]).await, [AnswerStatus::Stale]);
        }
        assert_eq!(host.submit(session, vec![result(&calls[1], "fine")]).await, [AnswerStatus::Accepted]);
        let rest = all(&mut stream).await;
        assert_eq!(completed(&rest).reason(), CompletionReason::Stop);
        assert_eq!(
            outline(&host.messages(session).await)[2..],
            [
                "TOOL: result look \"[No result came in time.]\", result list \"fine\"",
                "ASSISTANT: \"[No result came in time.] and fine\"",
            ]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_reports_its_deadline() {
    let host = Host::with(two_calls()).await;
    let toolset = pb::ToolSet { host_tools: vec![impatient("look", 60_000), tool("list")], ..pb::ToolSet::default() };
    let limits =
        pb::TurnLimits { tool_timeout: Some(Duration::from_secs(90).try_into().unwrap()), ..pb::TurnLimits::default() };
    let request = pb::ExecuteTurnRequest { tools: Some(toolset), limits: Some(limits), ..asks("s") };
    let mut stream = host.execute(request).await;
    let (head, calls) = waiting(&mut stream).await;
    assert_eq!(allowed(&head), [60, 90].map(Duration::from_secs), "the tool's own timeout, else the turn's");
    host.submit("s", vec![result(&calls[0], "a"), result(&calls[1], "b")]).await;
    all(&mut stream).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_to_a_call_of_an_earlier_step_is_stale() {
    let host = Host::with(
        Options::default()
            .script("it", script(&[json!([call("look")]), json!([{"text": "Wait."}, {"wait_for": "go"}])])),
    )
    .await;
    let mut stream = host.execute(asks("s")).await;
    let (_, calls) = waiting(&mut stream).await;
    host.submit("s", vec![result(&calls[0], "a")]).await;
    let mut written = Default::default();
    let begun = until(&mut stream, |payload| matches!(payload, Payload::TextDelta(_))).await;
    extend(&mut written, &begun);
    assert_eq!(host.submit("s", vec![result(&calls[0], "b")]).await, [AnswerStatus::Stale]);
    assert_eq!(host.submit("s", vec![result(&calls[0], "a")]).await, [AnswerStatus::Duplicate]);
    host.release("go");
    assert_eq!(completed(&all(&mut stream).await).reason(), CompletionReason::Stop);
    eventually("the lease to be given back", || async { host.replica.engine.capacity.leases.count() == 0 }).await;
}
