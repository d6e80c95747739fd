//! Turns that reach their timeout, and turns without readers.

use std::time::Duration;

use contextd::pb::{
    self, CancelCause, CancelOutcome, CompletionReason, ToolCallCancelReason, ToolOutcome, TurnState, event::Payload,
};
use serde_json::{Value, json};

use crate::harness::{
    Host, Options, as_worker,
    events::{
        all, cancelled, closed, completed, kinds, message_text, messages, outline, requested, turn_id, until,
        until_written,
    },
    host::{MODEL, answering, call, until as eventually},
    requests::{one_by_one, result, tools, turn},
    upstream::{Reply, Upstream, event},
};

fn wire(millis: u64) -> prost_types::Duration {
    Duration::from_millis(millis).try_into().unwrap()
}

fn asks(timeout: u64, grace: u64) -> pb::ExecuteTurnRequest {
    let limits = pb::TurnLimits {
        turn_timeout: Some(wire(timeout)),
        grace_period: Some(wire(grace)),
        ..pb::TurnLimits::default()
    };
    pb::ExecuteTurnRequest { limits: Some(limits), tools: tools(&["look", "list"]), ..turn("s", MODEL, "Go") }
}

/// The number of tools in each model call.
fn offered(host: &Host) -> Vec<usize> {
    host.replica.scripted.prompts().iter().map(|prompt| prompt.tools.len()).collect()
}

/// Waits until the turn has exceeded its timeout.
async fn past_its_time(host: &Host) {
    let sql = "select turn_deadline < now() from session_run where session_id = 's'";
    let client = host.database.client().await;
    eventually("the turn's time to be up", || async { client.query_one(sql, &[]).await.unwrap().get(0) }).await;
}

// --- Grace ---------------------------------------------------------------------------------------------------------

/// Row D29
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_past_its_time_may_conclude_in_one_step_without_tools() {
    let host =
        Host::scripted(&[json!([{"text": "Hm."}, call("look"), call("list")]), json!([{"text": "In short."}])]).await;
    let mut stream = host.execute(asks(600, 30_000)).await;
    let head = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let calls = requested(&head);
    host.submit("s", vec![result(&calls[0], "fine")]).await;
    let rest = all(&mut stream).await;
    let end = completed(&rest);
    assert_eq!((end.reason(), end.result.as_ref().unwrap().step_count), (CompletionReason::Deadline, 2));
    assert_eq!(message_text(messages(&rest).last().unwrap()), "In short.");
    assert_eq!(offered(&host), [2, 0], "the last step has no tools");
    let stored = host.messages("s").await;
    let Some(pb::part::Content::ToolResult(late)) = &stored[2].parts[1].content else { panic!("no result") };
    assert_eq!(late.outcome(), ToolOutcome::TimedOut);
    assert!(outline(&stored)[2].contains("\"fine\""), "the work done is kept: {:?}", outline(&stored));
    assert_eq!(completed(&host.ask("s", "Again").await).reason(), CompletionReason::Stop);
}

/// Row D29
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_progress_at_the_timeout_finishes_without_running_tools() {
    let host = Host::scripted(&[
        json!([{"text": "Working"}, {"wait_for": "late"}, call("look")]),
        json!([{"text": "In short."}, call("look")]),
        json!([{"text": "Never."}]),
    ])
    .await;
    let mut stream = host.execute(asks(400, 30_000)).await;
    let head = until_written(&mut stream, "Working").await;
    past_its_time(&host).await;
    host.release("late");
    let rest = all(&mut stream).await;
    assert_eq!(completed(&rest).reason(), CompletionReason::Deadline);
    let not_run = ("look".to_owned(), ToolCallCancelReason::TurnEnded);
    assert_eq!((requested(&head), requested(&rest), closed(&rest)), (vec![], vec![], vec![not_run.clone(), not_run]));
    assert_eq!(offered(&host), [2, 0], "one last step, and no other");
    let stored = outline(&host.messages("s").await);
    assert!(stored[1].starts_with("ASSISTANT: \"Working\"") && stored[3].starts_with("ASSISTANT: \"In short.\""));
}

/// Row D29
#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_streams_beyond_the_timeout_ends_its_turn_as_deadline() {
    let host = Host::scripted(&[json!([{"text": "Working"}, {"wait_for": "late"}, {"text": " on."}])]).await;
    let mut stream = host.execute(asks(400, 30_000)).await;
    until_written(&mut stream, "Working").await;
    past_its_time(&host).await;
    host.release("late");
    let rest = all(&mut stream).await;
    assert_eq!(completed(&rest).reason(), CompletionReason::Deadline);
    assert_eq!(message_text(messages(&rest).last().unwrap()), "Working on.");
}

/// Row D29
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_a_takeover_repeats_after_the_timeout_has_no_tools() {
    let options = || {
        answering(&[json!([{"text": "Working"}, {"wait_for": "late"}, call("look")]), json!([{"text": "In short."}])])
    };
    let gone = Host::with(options()).await;
    let other = gone.beside(options()).await;
    other.release("late");
    let mut stream = gone.execute(asks(400, 30_000)).await;
    let head = until_written(&mut stream, "Working").await;
    past_its_time(&gone).await;
    gone.simulate_crash().await;
    let mut watch = other.watch("s", &turn_id(&head), 0).await;
    let seen = all(&mut watch).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Deadline);
    assert_eq!((offered(&gone), offered(&other)), (vec![2], vec![0, 0]));
    assert_eq!(requested(&seen), [] as [String; 0]);
}

/// Row D29
#[tokio::test(flavor = "multi_thread")]
async fn a_rendered_prompt_of_the_grace_step_has_no_tools() {
    let host = Host::scripted(&[json!([call("look")]), json!([{"text": "In short"}, {"wait_for": "go"}])]).await;
    let mut stream = host.execute(asks(300, 30_000)).await;
    until_written(&mut stream, "In short").await;
    let shown = |format: pb::PromptFormat| {
        let contexts = host.contexts();
        let format = format.into();
        let request = pb::RenderContextRequest { session_id: "s".to_owned(), format, ..Default::default() };
        async move { contexts.clone().render_context(request).await.unwrap().into_inner().prompt.unwrap() }
    };
    let neutral = shown(pb::PromptFormat::Neutral).await;
    assert_eq!(neutral.tools.unwrap().host_tools, []);
    assert!(!shown(pb::PromptFormat::OpenaiChat).await.request_json.contains("\"tools\""));
    host.release("go");
    assert_eq!(completed(&all(&mut stream).await).reason(), CompletionReason::Deadline);
    assert_eq!(offered(&host), [2, 0]);
}

/// Row D29
#[tokio::test(flavor = "multi_thread")]
async fn grace_period_ends_and_keeps_the_partial_answer() {
    let host = Host::scripted(&[json!([call("look")]), json!([{"text": "In sh"}, {"wait_for": "never"}])]).await;
    let seen = host.run(asks(300, 700)).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Deadline);
    assert_eq!(message_text(messages(&seen).last().unwrap()), "In sh");
}

/// Row D29: calls that are requested one at a time are closed together.
#[tokio::test(flavor = "multi_thread")]
async fn sequential_calls_do_not_delay_the_grace_step() {
    let host =
        Host::scripted(&[json!([call("look"), call("list"), call("look")]), json!([{"text": "In short."}])]).await;
    let request = pb::ExecuteTurnRequest { session: one_by_one(), ..asks(400, 30_000) };
    let seen = host.run(request).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Deadline);
    assert_eq!(message_text(messages(&seen).last().unwrap()), "In short.");
    host.assert_counted("s").await;
}

// --- Without an owner
// ----------------------------------------------------------------------------------------------

/// Row D1
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_turn_times_out_on_any_replica() {
    let options = || answering(&[json!([{"text": "Hm."}, call("look")])]);
    let gone = Host::with(options()).await;
    let other = gone.beside(options()).await;
    let mut stream = gone.execute(asks(700, 0)).await;
    let head = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    gone.simulate_crash().await;
    let mut watch = other.watch("s", &turn_id(&head), 0).await;
    let seen = all(&mut watch).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Deadline);
    assert_eq!(closed(&seen), [("look".to_owned(), ToolCallCancelReason::TurnEnded)]);
}

// --- Every end
// -----------------------------------------------------------------------------------------------------

/// Row D19
#[tokio::test(flavor = "multi_thread")]
async fn every_ending_leaves_the_session_idle_and_clean() {
    let error = json!({"error": {"kind": "bad_request", "message": "No.", "status": 400}});
    let script = json!({"steps": [
        {"when": {"user_contains": "fail"}, "say": [{"text": "So far"}, error]},
        {"when": {"user_contains": "wait"}, "say": [{"text": "So far"}, {"wait_for": "never"}]},
        {"when": {"user_contains": "tools"}, "say": [{"text": "So far"}, call("look")]},
        {"say": [{"text": "So far so good."}]},
    ]});
    let host = Host::with(Options::default().script("it", script.to_string())).await;
    let table = [
        ("Finish", false, TurnState::Completed),
        ("Please fail", false, TurnState::Failed),
        ("Please wait", false, TurnState::Completed),
        ("Use tools", false, TurnState::Completed),
        ("Please wait", true, TurnState::Cancelled),
        ("Use tools", true, TurnState::Cancelled),
    ];
    for (words, cancel, state) in table {
        let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..asks(if cancel { 60_000 } else { 500 }, 0) };
        let input = turn("s", MODEL, words).input;
        let mut stream = host.execute(pb::ExecuteTurnRequest { input, ..request }).await;
        let mut head = until(&mut stream, |payload| matches!(payload, Payload::StepStarted(_))).await;
        if cancel {
            head.extend(until_written(&mut stream, "So far").await);
            host.cancel("s", "").await;
        }
        all(&mut stream).await;
        assert_eq!(host.turn("s", &turn_id(&head)).await.state(), state, "{words}");
        assert_eq!(host.session("s").await.state(), pb::SessionState::Idle, "{words}");
        host.assert_counted("s").await;
        host.at_rest().await;
        as_worker(host.replica.engine.live.sweep_chunks()).await.unwrap();
        let left = host.database.client().await.query("select from partial_chunks", &[]).await.unwrap().len();
        assert_eq!(left, 0, "{words}");
        assert_eq!(completed(&host.ask("s", "And on").await).reason(), CompletionReason::Stop, "{words}");
    }
}

// --- No readers
// --------------------------------------------------------------------------------------------------

fn read_by_somebody(first: Value) -> (Options, pb::ExecuteTurnRequest) {
    let request = pb::ExecuteTurnRequest {
        cancel_after_disconnect: Some(wire(1_000)),
        tools: tools(&["look"]),
        ..turn("s", MODEL, "Go")
    };
    (answering(&[first]), request)
}

async fn ends_as(host: &Host, turn: &str, state: TurnState) -> pb::Turn {
    eventually("the turn to end", || async { host.turn("s", turn).await.state() == state }).await;
    host.turn("s", turn).await
}

/// Row D19
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_readers_is_cancelled_if_it_requested_that() {
    for (first, outcome) in [
        (json!([{"text": "So far"}, {"wait_for": "never"}]), CancelOutcome::PartialAssistant),
        (json!([{"text": "So far"}, call("look")]), CancelOutcome::ToolsInProgress),
    ] {
        let (options, request) = read_by_somebody(first);
        let host = Host::with(options).await;
        let mut stream = host.execute(request).await;
        let head = until_written(&mut stream, "So far").await;
        drop(stream);
        let turn = ends_as(&host, &turn_id(&head), TurnState::Cancelled).await;
        assert_eq!(turn.cancel_cause(), CancelCause::Disconnected);
        let events = host.events("s", "", 0, 100).await;
        assert_eq!((cancelled(&events).cause(), cancelled(&events).outcome()), (CancelCause::Disconnected, outcome));
        let left =
            || async { host.database.client().await.query("select from attendance", &[]).await.unwrap().is_empty() };
        eventually("it to be forgotten", left).await;
    }
}

/// Row D19
#[tokio::test(flavor = "multi_thread")]
async fn a_remote_or_returning_reader_keeps_a_turn_alive() {
    let first = json!([{"text": "So far"}, {"wait_for": "go"}]);
    let (options, request) = read_by_somebody(first.clone());
    let host = Host::with(options).await;
    let other = host.beside(read_by_somebody(first).0).await;
    let mut stream = host.execute(request).await;
    let head = until_written(&mut stream, "So far").await;
    let mut watch = other.watch("s", &turn_id(&head), 0).await;
    drop(stream);
    let client = host.database.client().await;
    let renewed =
        "select seen_until > (select started_at + interval '2.5 s' from turns where session_id = 's') from attendance";
    eventually("more time than that to pass", || async { client.query_one(renewed, &[]).await.unwrap().get(0) }).await;
    assert_eq!(host.turn("s", &turn_id(&head)).await.state(), TurnState::Running);
    host.release("go");
    let seen = all(&mut watch).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
}

/// Row D19: I8.
#[tokio::test(flavor = "multi_thread")]
async fn a_disconnect_cancels_nothing_unless_requested() {
    let first = json!([{"text": "So far"}, {"wait_for": "go"}, {"text": " so good."}]);
    let (options, request) = read_by_somebody(first);
    let requested = pb::ExecuteTurnRequest { session_id: "requested".to_owned(), ..request };
    let host = Host::with(options).await;
    let mut stream = host.execute(turn("s", MODEL, "Go")).await;
    let head = until_written(&mut stream, "So far").await;
    let mut other = host.execute(requested).await;
    let other_head = until_written(&mut other, "So far").await;
    drop((stream, other));
    // By then both turns have been without readers for long enough.
    eventually("the turn that requested it to be cancelled", || async {
        let turn = host.turn("requested", &turn_id(&other_head)).await;
        turn.state() == TurnState::Cancelled
    })
    .await;
    let id = turn_id(&head);
    assert_eq!(host.turn("s", &id).await.state(), TurnState::Running);
    host.release("go");
    ends_as(&host, &id, TurnState::Completed).await;
    assert_eq!(message_text(&host.messages("s").await[1]), "So far so good.");
}

// --- Connections to the service
// -----------------------------------------------------------------------------------------

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_closes_the_connection_to_the_model_service() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::events(event(&json!({"content": "So far"}))).stall());
    let host = Host::with(upstream.options("openai")).await;
    let mut stream = host.execute(turn("s", "main/gpt-4o", "Go")).await;
    until_written(&mut stream, "So far").await;
    let answer = host.cancel("s", "").await;
    assert_eq!(answer.outcome(), CancelOutcome::PartialAssistant);
    upstream.left(1).await;
    assert_eq!(kinds(&all(&mut stream).await), ["message_committed", "usage_recorded", "turn_cancelled"]);
}
