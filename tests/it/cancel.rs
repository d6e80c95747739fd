//! CancelTurn: what is kept, what is closed, and the response.

use crate::harness::{
    Host, Options,
    events::{
        all, cancelled, closed, completed, content, kinds, messages, outline, requested, seqs, turn_id, until,
        until_written,
    },
    host::{MODEL, call, refusal, until as eventually},
    requests::{result, tools, turn},
};
use contextd::pb::{
    self, AnswerStatus, CancelCause, CancelOutcome, CompletionReason, FinishReason, SessionState, ToolCallCancelReason,
    ToolOutcome, TurnState, event::Payload,
};
use serde_json::json;
use tonic::Code;

/// Models that block in the middle of a response, that call tools, and that respond immediately.
fn options() -> Options {
    let script = json!({"steps": [
        {"when": {"user_contains": "slowly"}, "say": [{"text": "So far"}, {"wait_for": "go"}, {"text": " so good."}]},
        {"when": {"user_contains": "think"}, "say": [{"wait_for": "go"}, {"text": "Thought."}]},
        {"when": {"user_contains": "tools", "call": 0}, "say": [{"text": "Hm."}, call("look"), call("list")]},
        {"say": [{"text": "Hello."}]},
    ]});
    Options::default().script("it", script.to_string())
}

async fn host() -> Host {
    Host::with(options()).await
}

fn asks(session: &str, words: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["look", "list"]), ..turn(session, MODEL, words) }
}

async fn cancel_as(host: &Host, session: &str, turn: &str, request: &str) -> pb::CancelTurnResponse {
    let request = pb::CancelTurnRequest {
        session_id: session.to_owned(),
        turn_id: turn.to_owned(),
        request_id: request.to_owned(),
        reason: "Enough.".to_owned(),
        ..pb::CancelTurnRequest::default()
    };
    host.turns().cancel_turn(request).await.unwrap().into_inner()
}

fn state(response: &pb::CancelTurnResponse) -> (TurnState, CancelOutcome) {
    (response.turn.as_ref().unwrap().state(), response.outcome())
}

/// Rows D18 and S3
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_partial_answer_is_kept_and_seen_by_the_next_turn() {
    let host = host().await;
    let mut stream = host.execute(asks("s", "Speak slowly")).await;
    until_written(&mut stream, "So far").await;
    let answer = cancel_as(&host, "s", "", "c1").await;
    assert_eq!(state(&answer), (TurnState::Cancelled, CancelOutcome::PartialAssistant));
    assert_eq!(answer.turn.unwrap().cancel_cause(), CancelCause::Requested);
    let rest = all(&mut stream).await;
    assert_eq!(kinds(&rest), ["message_committed", "usage_recorded", "turn_cancelled"]);
    let end = cancelled(&rest);
    assert_eq!(
        (end.cause(), end.outcome(), end.mode()),
        (CancelCause::Requested, CancelOutcome::PartialAssistant, pb::CancelMode::Stop)
    );
    assert_eq!(end.reason, "Enough.");
    let message = messages(&rest)[0];
    assert_eq!(message.response.as_ref().unwrap().finish_reason(), FinishReason::Cancelled);
    assert_eq!(end.result.as_ref().unwrap().final_message_id, message.message_id);
    assert_eq!(host.session("s").await.state(), SessionState::Idle);

    assert_eq!(completed(&host.ask("s", "Again").await).reason(), CompletionReason::Stop);
    let transcript = ["USER: \"Speak slowly\"", "ASSISTANT: \"So far\"", "USER: \"Again\"", "ASSISTANT: \"Hello.\""];
    assert_eq!(outline(&host.messages("s").await), transcript);
    let given = host.replica.scripted.prompts().pop().unwrap();
    assert_eq!(given.transcript.messages().len(), 3);
    let contextd::model::Content::Text(said) = &given.transcript.messages()[1].parts[0].part.content else {
        panic!("no text")
    };
    assert_eq!(said, "So far", "the model sees what it had said");
}

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_before_the_first_token_keeps_only_the_input() {
    let host = host().await;
    let mut stream = host.execute(asks("s", "Please think")).await;
    until(&mut stream, |payload| matches!(payload, Payload::Thinking(_))).await;
    assert_eq!(state(&host.cancel("s", "").await), (TurnState::Cancelled, CancelOutcome::None));
    let rest = all(&mut stream).await;
    assert_eq!(kinds(&rest), ["usage_recorded", "turn_cancelled"]);
    assert_eq!(outline(&host.messages("s").await), ["USER: \"Please think\""]);
}

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_closes_open_calls_and_keeps_submitted_results() {
    let host = host().await;
    let mut stream = host.execute(asks("s", "Use tools")).await;
    let calls = requested(&until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await);
    host.submit("s", vec![result(&calls[1], "fine")]).await;
    let answer = host.cancel("s", "").await;
    assert_eq!(state(&answer), (TurnState::Cancelled, CancelOutcome::ToolsInProgress));
    assert_eq!(answer.turn.unwrap().pending_calls, []);
    let rest = all(&mut stream).await;
    assert_eq!(kinds(&rest), ["tool_call_completed", "tool_call_cancelled", "message_committed", "turn_cancelled"]);
    assert_eq!(closed(&rest), [("look".to_owned(), ToolCallCancelReason::TurnCancelled)]);
    assert_eq!(cancelled(&rest).outcome(), CancelOutcome::ToolsInProgress);

    let stored = host.messages("s").await;
    let results: Vec<_> = stored[2]
        .parts
        .iter()
        .map(|part| match &part.content {
            Some(pb::part::Content::ToolResult(result)) => (result.call_id.clone(), result.outcome(), content(part)),
            other => panic!("no result: {other:?}"),
        })
        .collect();
    let words = "[The call was closed without a result: the turn ended first.]";
    assert_eq!(
        results,
        [(calls[0].clone(), ToolOutcome::Cancelled, words), (calls[1].clone(), ToolOutcome::Success, "fine"),]
    );
    let before = host.database.row_counts().await;
    assert_eq!(host.submit("s", vec![result(&calls[0], "late")]).await, [AnswerStatus::Stale]);
    assert_eq!(host.database.row_counts().await, before);
    assert_eq!(completed(&host.ask("s", "Again").await).reason(), CompletionReason::Stop);
    assert_eq!(host.messages("s").await.len(), 5);
}

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_of_an_idle_session_changes_nothing() {
    let host = host().await;
    let ended = host.ask("s", "Hello").await;
    let before = host.database.row_counts().await;
    let idle = host.cancel("s", "").await;
    assert_eq!((idle.turn.clone(), idle.outcome()), (None, CancelOutcome::None));
    let named = host.cancel("s", &turn_id(&ended)).await;
    assert_eq!(state(&named), (TurnState::Completed, CancelOutcome::None));
    assert_eq!(named.turn, Some(host.turn("s", &turn_id(&ended)).await));
    assert_eq!(host.database.row_counts().await, before);
    assert_eq!(seqs(&host.events("s", "", 0, 100).await), (1..=6).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_of_an_unknown_session_or_turn_is_refused() {
    let host = host().await;
    host.ask("s", "Hello").await;
    for (session, turn, reason) in [("other", "", "SESSION_NOT_FOUND"), ("s", "other", "TURN_NOT_FOUND")] {
        let request = pb::CancelTurnRequest {
            session_id: session.to_owned(),
            turn_id: turn.to_owned(),
            ..pb::CancelTurnRequest::default()
        };
        let refused = host.turns().cancel_turn(request).await.unwrap_err();
        assert_eq!(refusal(&refused, ""), (Code::NotFound, reason.to_owned(), String::new()));
    }
}

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn repeated_cancels_cancel_a_turn_once() {
    let host = host().await;
    for (session, words) in [("talk", "Speak slowly"), ("call", "Use tools")] {
        let mut stream = host.execute(asks(session, words)).await;
        let head = match session {
            "talk" => until_written(&mut stream, "So far").await,
            _ => until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await,
        };
        let turn = turn_id(&head);
        let (first, second) = tokio::join!(host.cancel(session, &turn), host.cancel(session, ""));
        assert_eq!(first.turn.as_ref().unwrap().state(), TurnState::Cancelled);
        assert!(second.turn.is_none_or(|turn| turn.state() == TurnState::Cancelled));
        let again = host.cancel(session, &turn).await;
        assert_eq!(again.turn, first.turn, "an ended turn stays as it is");
        assert_eq!(again.outcome(), CancelOutcome::None, "this request cancelled nothing");
        let rest = all(&mut stream).await;
        assert_eq!(kinds(&rest).iter().filter(|kind| **kind == "turn_cancelled").count(), 1);
    }
}

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_on_one_replica_stops_a_turn_on_another() {
    let host = host().await;
    let other = host.beside(options()).await;
    let mut stream = host.execute(asks("s", "Speak slowly")).await;
    until_written(&mut stream, "So far").await;
    assert_eq!(state(&other.cancel("s", "").await), (TurnState::Cancelled, CancelOutcome::PartialAssistant));
    all(&mut stream).await;
    assert_eq!(outline(&other.messages("s").await), ["USER: \"Speak slowly\"", "ASSISTANT: \"So far\""]);

    let mut stream = host.execute(asks("s", "Use tools")).await;
    until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    assert_eq!(state(&other.cancel("s", "").await), (TurnState::Cancelled, CancelOutcome::ToolsInProgress));
    assert_eq!(closed(&all(&mut stream).await).len(), 2);
}

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_a_dead_replica_can_be_cancelled() {
    let gone = Host::with(options()).await;
    let mut stream = gone.execute(asks("s", "Speak slowly")).await;
    until_written(&mut stream, "So far").await;
    gone.replica.stop_workers();
    let other = gone.beside(options()).await;
    let told = async {
        eventually("the wish to be recorded", || async {
            let client = gone.database.client().await;
            client.query_one("select cancel from session_run", &[]).await.unwrap().get::<_, i16>(0) == 1
        })
        .await;
        gone.simulate_crash().await;
    };
    let (answer, ()) = tokio::join!(other.cancel("s", ""), told);
    assert_eq!(state(&answer).0, TurnState::Cancelled);
    assert_eq!(other.session("s").await.state(), SessionState::Idle);
    gone.release("go");
    gone.at_rest().await;
    let last = other.events("s", "", 0, 100).await;
    assert_eq!(cancelled(&last).cause(), CancelCause::Requested);
    assert_eq!(outline(&other.messages("s").await), ["USER: \"Speak slowly\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_of_an_ended_turn_does_not_affect_the_running_one() {
    let host = host().await;
    let ended = turn_id(&host.ask("s", "Hello").await);
    let mut stream = host.execute(asks("s", "Speak slowly")).await;
    let head = until_written(&mut stream, "So far").await;
    assert_eq!(state(&host.cancel("s", &ended).await), (TurnState::Completed, CancelOutcome::None));
    host.release("go");
    let rest = all(&mut stream).await;
    assert_eq!(completed(&rest).reason(), CompletionReason::Stop);
    assert_eq!(outline(&host.messages("s").await)[3], "ASSISTANT: \"So far so good.\"");
    assert_eq!(host.replica.scripted.prompts().len(), 2, "the model was not called anew");
    assert_ne!(turn_id(&head), ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_cancel_returns_what_the_first_one_did() {
    let host = host().await;
    let mut stream = host.execute(asks("s", "Speak slowly")).await;
    until_written(&mut stream, "So far").await;
    let first = cancel_as(&host, "s", "", "c1").await;
    all(&mut stream).await;
    let mut next = host.execute(asks("s", "Speak slowly again")).await;
    until_written(&mut next, "So far").await;
    assert_eq!(cancel_as(&host, "s", "", "c1").await, first, "it is no cancel of the next turn");
    host.release("go");
    assert_eq!(completed(&all(&mut next).await).reason(), CompletionReason::Stop);

    let idle = cancel_as(&host, "s", "", "c2").await;
    assert_eq!(idle.turn, None);
    let request = pb::CancelTurnRequest {
        session_id: "s".to_owned(),
        request_id: "c1".to_owned(),
        reason: "Another reason.".to_owned(),
        ..pb::CancelTurnRequest::default()
    };
    let refused = host.turns().cancel_turn(request).await.unwrap_err();
    assert_eq!(refusal(&refused, "request_id"), (Code::InvalidArgument, "IDEMPOTENCY_MISMATCH".into(), "c1".into()));
}

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_of_a_turn_that_was_cancelled_before_does_nothing_and_says_so() {
    let host = host().await;
    let mut stream = host.execute(asks("s", "Speak slowly")).await;
    let turn = turn_id(&until_written(&mut stream, "So far").await);
    let first = cancel_as(&host, "s", &turn, "c1").await;
    assert_eq!(state(&first), (TurnState::Cancelled, CancelOutcome::PartialAssistant));
    assert_eq!(cancel_as(&host, "s", &turn, "c1").await, first, "the same request has the same answer");
    let before = host.database.row_counts().await;
    let messages = host.messages("s").await;
    let rollback = pb::CancelTurnRequest {
        session_id: "s".to_owned(),
        turn_id: turn.clone(),
        mode: pb::CancelMode::Rollback.into(),
        ..pb::CancelTurnRequest::default()
    };
    let late = host.turns().cancel_turn(rollback).await.unwrap().into_inner();
    assert_eq!(state(&late), (TurnState::Cancelled, CancelOutcome::None), "it rolled nothing back");
    let later = cancel_as(&host, "s", &turn, "c2").await;
    assert_eq!(state(&later), (TurnState::Cancelled, CancelOutcome::None));
    assert_eq!(cancel_as(&host, "s", &turn, "c2").await, later);
    assert_eq!(host.messages("s").await, messages);
    let after = host.database.row_counts().await;
    assert!(before.iter().zip(&after).all(|(before, after)| before == after || before.0 == "idempotency"));
}
