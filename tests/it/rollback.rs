//! CancelTurn with ROLLBACK: what a turn wrote becomes void, and the model sees the conversation as it was before the
//! turn.

use contextd::pb::{
    self, AnswerStatus, CancelMode, CancelOutcome, CompletionReason, MessageView, SessionState, TurnState,
    event::Payload,
};
use serde_json::json;

use crate::harness::{
    Host, Options,
    events::{all, cancelled, completed, kinds, outline, requested, turn_id, until, until_written},
    host::{MODEL, call},
    requests::{result, tools, turn},
};

/// Models that block in the middle of a response, that call tools, and that respond immediately.
fn options() -> Options {
    let script = json!({"steps": [
        {"when": {"user_contains": "slowly"}, "say": [{"text": "So far"}, {"wait_for": "go"}, {"text": " so good."}]},
        {"when": {"user_contains": "think"}, "say": [{"wait_for": "go"}]},
        {"when": {"user_contains": "fail"}, "say": [{"error": {"kind": "bad_request", "message": "No."}}]},
        {"when": {"user_contains": "tools", "call": 0}, "say": [{"text": "Hm."}, call("look"), call("list")]},
        {"when": {"user_contains": "tools", "call": 1}, "say": [call("look")]},
        {"say": [{"text": "Hello."}]},
    ]});
    Options::default().script("it", script.to_string())
}

fn asks(words: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["look", "list"]), ..turn("s", MODEL, words) }
}

fn wish(turn: &str) -> pb::CancelTurnRequest {
    pb::CancelTurnRequest {
        session_id: "s".to_owned(),
        turn_id: turn.to_owned(),
        mode: CancelMode::Rollback.into(),
        reason: "Never mind.".to_owned(),
        ..pb::CancelTurnRequest::default()
    }
}

async fn roll_back(host: &Host, turn: &str) -> pb::CancelTurnResponse {
    host.turns().cancel_turn(wish(turn)).await.unwrap().into_inner()
}

/// The counters and the size of the session's context.
async fn counted(host: &Host) -> String {
    let sql =
        "select (ctx_messages, ctx_overhead, ctx_tokens, ctx_parts)::text from session_run where session_id = 's'";
    host.database.client().await.query_one(sql, &[]).await.unwrap().get(0)
}

async fn seen_by_the_model(host: &Host) -> Vec<String> {
    outline(&host.listed("s", MessageView::Live, 0, false, 100).await)
}

/// Fails unless a turn that is rolled back leaves the model's view and the counters of the session unchanged.
async fn check(host: &Host, words: &str, act: impl AsyncFnOnce() -> (CancelOutcome, usize, usize)) {
    let before = seen_by_the_model(host).await;
    let size = counted(host).await;
    let mut stream = host.execute(asks(words)).await;
    let head = match words {
        "Speak slowly" => until_written(&mut stream, "So far").await,
        "Please think" => until(&mut stream, |payload| matches!(payload, Payload::Thinking(_))).await,
        _ => until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await,
    };
    let (outcome, voided, executed) = act().await;
    let answer = roll_back(host, "").await;
    assert_eq!((answer.turn.as_ref().unwrap().state(), answer.outcome()), (TurnState::Cancelled, outcome), "{words}");
    let rest = all(&mut stream).await;
    let end = cancelled(&rest);
    assert_eq!((end.mode(), end.outcome(), end.reason.as_str()), (CancelMode::Rollback, outcome, "Never mind."));
    assert_eq!((end.voided_message_ids.len(), end.executed_call_ids.len()), (voided, executed), "{words}");
    assert_eq!((seen_by_the_model(host).await, counted(host).await), (before, size), "{words}");
    let told = rest.last().unwrap().seq;
    let void: Vec<String> =
        host.messages("s").await.into_iter().filter(|it| it.voided_at_seq == told).map(|it| it.message_id).collect();
    assert_eq!(void, end.voided_message_ids, "what is void is what was told, in order");
    assert_eq!(host.session("s").await.state(), SessionState::Idle);
    let turn = turn_id(&head);
    let again = roll_back(host, &turn).await;
    assert_eq!(again, pb::CancelTurnResponse { outcome: CancelOutcome::None.into(), ..answer }, "once is enough");
    assert!(end.result.as_ref().unwrap().total_usage.is_some(), "usage stays counted");
}

/// Rows D18 and I5
#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_back_turn_leaves_the_conversation_as_it_was() {
    let host = Host::with(options()).await;
    host.ask("s", "Hello").await;
    check(&host, "Speak slowly", async || (CancelOutcome::PartialAssistant, 2, 0)).await;
    check(&host, "Please think", async || (CancelOutcome::None, 1, 0)).await;
    check(&host, "Use tools", async || (CancelOutcome::ToolsInProgress, 3, 0)).await;
    check(&host, "Use tools", async || {
        let open = host.pending("s").await;
        host.submit("s", vec![result(&open[1], "fine")]).await;
        (CancelOutcome::ToolsInProgress, 3, 1)
    })
    .await;
    check(&host, "Use tools", async || {
        let open = host.pending("s").await;
        let mut watch = host.watch("s", "", host.session("s").await.last_seq).await;
        host.submit("s", open.iter().map(|call| result(call, "fine")).collect()).await;
        until(&mut watch, |payload| matches!(payload, Payload::ActionRequired(next) if next.result_call_ids != open))
            .await;
        (CancelOutcome::ToolsInProgress, 5, 2)
    })
    .await;
    let seen = host.ask("s", "Again").await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let given = host.replica.scripted.prompts().pop().unwrap();
    assert_eq!(given.transcript.messages().len(), 3, "the model is told of nothing that was taken back");
    assert_eq!(seen_by_the_model(&host).await.len(), 4);
}

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn a_late_result_of_a_rolled_back_turn_is_stale() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(asks("Use tools")).await;
    let calls = requested(&until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await);
    roll_back(&host, "").await;
    assert_eq!(host.submit("s", vec![result(&calls[0], "late")]).await, [AnswerStatus::Stale]);
    assert_eq!(seen_by_the_model(&host).await, Vec::<String>::new());
    let continues = pb::ExecuteTurnRequest { input: None, continue_transcript: true, ..asks("") };
    assert!(host.try_execute(continues).await.is_err(), "there is nothing to go on from");
    assert_eq!(completed(&host.ask("s", "Hello").await).reason(), CompletionReason::Stop);
}

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_of_a_turn_that_has_ended_changes_nothing() {
    let host = Host::with(options()).await;
    let completed_before = turn_id(&host.ask("s", "Hello").await);
    let failed_before = turn_id(&host.ask("s", "Please fail").await);
    let mut stream = host.execute(asks("Speak slowly")).await;
    let stopped_before = turn_id(&until_written(&mut stream, "So far").await);
    host.cancel("s", &stopped_before).await;
    all(&mut stream).await;
    let mut running = host.execute(asks("Speak slowly")).await;
    until_written(&mut running, "So far").await;

    let stored = async || {
        let messages = host.messages("s").await;
        (messages, counted(&host).await, host.database.row_counts().await)
    };
    let before = stored().await;
    for (turn, state) in [
        (completed_before, TurnState::Completed),
        (failed_before, TurnState::Failed),
        (stopped_before, TurnState::Cancelled),
    ] {
        let ended = host.turn("s", &turn).await;
        assert_eq!(ended.state(), state);
        let answer = roll_back(&host, &turn).await;
        assert_eq!(answer.outcome(), CancelOutcome::None, "{state:?}");
        assert_eq!(answer.turn, Some(ended));
        assert_eq!(stored().await, before, "{state:?}");
    }
    host.release("go");
    let rest = all(&mut running).await;
    assert_eq!(completed(&rest).reason(), CompletionReason::Stop, "the turn that runs is another one");
    assert_eq!(seen_by_the_model(&host).await.len(), 7);
}

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn any_replica_can_roll_back_a_turn_of_a_dead_one() {
    let host = Host::with(options()).await;
    let other = host.beside(options()).await;
    let mut stream = host.execute(asks("Speak slowly")).await;
    until_written(&mut stream, "So far").await;
    let answer = roll_back(&other, "").await;
    assert_eq!(answer.outcome(), CancelOutcome::PartialAssistant);
    let rest = all(&mut stream).await;
    assert_eq!(kinds(&rest), ["message_committed", "usage_recorded", "turn_cancelled"]);
    assert_eq!(seen_by_the_model(&other).await, Vec::<String>::new());

    let mut stream = host.execute(asks("Speak slowly")).await;
    until_written(&mut stream, "So far").await;
    host.simulate_crash().await;
    let answer = roll_back(&other, "").await;
    assert_eq!(answer.turn.unwrap().state(), TurnState::Cancelled);
    host.release("go");
    host.at_rest().await;
    assert_eq!(seen_by_the_model(&other).await, Vec::<String>::new());
    assert_eq!(cancelled(&other.events("s", "", 0, 100).await).mode(), CancelMode::Rollback);
}

/// A model that reports the sizes of its prompts, and calls `look` if the input mentions tools.
fn reporting() -> Options {
    let used =
        |reason: &str, input: u32| json!({"finish": {"reason": reason, "usage": {"input": input, "output": 100}}});
    let script = json!({"steps": [
        {"when": {"user_contains": "tools"}, "say": [call("look"), used("tool_calls", 9_000)]},
        {"say": [{"text": "Hello."}, used("stop", 5_000)]},
    ]});
    Options::default().script("it", script.to_string())
}

async fn used(host: &Host) -> (i32, pb::TokenBasis) {
    let used = host.stats("s").await.used.unwrap();
    (used.tokens, used.basis())
}

/// Rolls back a turn with two calls, after the given closure has run.
async fn looks_twice_in_vain(host: &Host, meanwhile: impl AsyncFnOnce()) {
    let mut stream = host.execute(turn("s", "", "Use tools")).await;
    let wants = |payload: &Payload| matches!(payload, Payload::ActionRequired(_));
    until(&mut stream, wants).await;
    host.submit("s", vec![result(&host.pending("s").await[0], &"fine ".repeat(2_000))]).await;
    until(&mut stream, wants).await;
    assert_eq!(used(host).await.0, 9_100, "the turn was measured too");
    meanwhile().await;
    roll_back(host, "").await;
}

/// Rows D18, A3 and A7
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_restores_the_anchor_of_the_same_prompt() {
    use pb::TokenBasis::{Actual, Heuristic};
    let host = Host::with(reporting()).await;
    host.create(pb::Session {
        session_id: "s".to_owned(),
        model: MODEL.to_owned(),
        tools: tools(&["look"]),
        ..pb::Session::default()
    })
    .await;
    host.run(turn("s", "", "Hello")).await;
    assert_eq!(used(&host).await, (5_100, Actual));
    looks_twice_in_vain(&host, async || {}).await;
    assert_eq!(used(&host).await, (5_100, Actual));
    assert_eq!(host.stats("s").await.last_estimate.unwrap().actual_tokens, 5_000);
    looks_twice_in_vain(&host, async || {}).await;
    assert_eq!(used(&host).await, (5_100, Actual), "and again");

    let compact = async || {
        let request = pb::CompactRequest {
            session_id: "s".to_owned(),
            strategy: pb::CompactionStrategy::MiddleRemoval.into(),
            target_tokens: 5_000,
            wait: true,
            ..Default::default()
        };
        let made = host.contexts().compact(request).await.unwrap().into_inner().compaction.unwrap();
        assert_eq!(made.state(), pb::CompactionState::Applied, "{:?}", made.failure);
    };
    looks_twice_in_vain(&host, compact).await;
    assert_eq!(used(&host).await, (5_100, Actual), "a compaction of the turn went back with it");

    host.append("s", crate::harness::transcripts::one_turn("c1", 500)).await;
    host.run(turn("s", "", "Hello again")).await;
    assert_eq!(used(&host).await, (5_100, Actual));
    let prune = async || {
        let request = pb::PruneToolOutputsRequest {
            session_id: "s".to_owned(),
            minimum_tokens: Some(0),
            protect_tokens: Some(0),
            ..Default::default()
        };
        let report = host.contexts().prune_tool_outputs(request).await.unwrap().into_inner().report.unwrap();
        assert!(report.call_ids.contains(&"c1".to_owned()));
    };
    looks_twice_in_vain(&host, prune).await;
    let (tokens, basis) = used(&host).await;
    assert!(tokens < 1_000 && basis == Heuristic, "it is another prompt: {tokens} {basis:?}");
}
