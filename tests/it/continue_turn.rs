//! Turns without input, which continue the existing transcript.

use contextd::pb::{self, CompletionReason, FailureReason, TurnState, event::Payload};
use serde_json::json;
use tonic::Code;

use crate::harness::{
    Host, Options,
    events::{all, completed, kinds, message_text, messages, outline, until, until_action, until_written},
    host::{MODEL, answering, call, refusal, until as eventually},
    requests::{result, tools, turn},
};

/// A turn without input in this session.
fn go_on(session: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { input: None, session: None, continue_transcript: true, ..turn(session, MODEL, "") }
}

/// A model that fails once, then responds.
fn failing_once() -> Options {
    let error = json!({"error": {"kind": "bad_request", "message": "no", "times": 1}});
    Options::default().script("it", json!({"steps": [{"say": [error, {"text": "Hello."}]}]}).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failure_a_turn_without_input_answers_what_was_asked() {
    let host = Host::with(failing_once()).await;
    let failed = host.ask("s", "Say hello").await;
    assert!(matches!(failed.last().unwrap().payload, Some(Payload::TurnFailed(_))));
    let seen = host.run(go_on("s")).await;
    assert_eq!(kinds(&seen), ["turn_started", "step_started", "message_committed", "usage_recorded", "turn_completed"]);
    let Some(Payload::TurnStarted(started)) = &seen[1].payload else { panic!("{:?}", seen[1]) };
    assert_eq!(started.input_message_id, "");
    assert_eq!(seen.iter().map(|event| event.step).max(), Some(1));
    assert_eq!(outline(&host.messages("s").await), ["USER: \"Say hello\"", "ASSISTANT: \"Hello.\""]);
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    assert_eq!(prompt.transcript.messages().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_unread_results_a_turn_without_input_calls_the_model_at_once() {
    let host = Host::scripted(&[json!([call("look")]), json!([{"text": "{{result:look}}"}])]).await;
    let limits = Some(pb::TurnLimits { max_steps: 1, ..pb::TurnLimits::default() });
    let first = pb::ExecuteTurnRequest { limits, tools: tools(&["look"]), ..turn("s", MODEL, "Look") };
    let stopped = host.run_with(first, |call| result(&call.call_id, "a cat")).await;
    assert_eq!(completed(&stopped).reason(), CompletionReason::MaxSteps);
    let seen = host.run(go_on("s")).await;
    assert_eq!(completed(&seen).result.as_ref().unwrap().step_count, 1, "no step is skipped");
    assert_eq!(message_text(messages(&seen)[0]), "a cat");
    let transcript = ["USER: \"Look\"", "ASSISTANT: call look", "TOOL: result look \"a cat\"", "ASSISTANT: \"a cat\""];
    assert_eq!(outline(&host.messages("s").await), transcript);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_cancel_while_tools_ran_a_turn_without_input_sees_a_closed_transcript() {
    let host = Host::scripted(&[json!([call("look"), call("list")]), json!([{"text": "Well."}])]).await;
    let first = pb::ExecuteTurnRequest { tools: tools(&["look", "list"]), ..turn("s", MODEL, "Look") };
    let mut stream = host.execute(first).await;
    until_action(&mut stream).await;
    host.cancel("s", "").await;
    all(&mut stream).await;
    let seen = host.run(go_on("s")).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    assert_eq!(prompt.transcript.messages().len(), 3, "input, calls, results");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_input_continues_after_a_poisoned_turn() {
    let slow = |words: &str| {
        let say = json!([{"text": words}, {"wait_for": "go"}]);
        Options { max_takeovers: 0, ..Options::default().script("it", json!({"steps": [{"say": say}]}).to_string()) }
    };
    let gone = Host::with(slow("So far")).await;
    let mut stream = gone.execute(turn("s", MODEL, "Hello")).await;
    until_written(&mut stream, "So far").await;
    gone.simulate_crash().await;
    let other = gone.beside(slow("Hello.")).await;
    let ended = || async { other.session("s").await.state() == pb::SessionState::Idle };
    eventually("the turn to be given up", ended).await;
    let told = other.events("s", "", 0, 100).await;
    let Some(Payload::TurnFailed(failed)) = &told.last().unwrap().payload else { panic!("{:?}", kinds(&told)) };
    assert_eq!(failed.failure.as_ref().unwrap().reason(), FailureReason::Poisoned);
    other.release("go");
    assert_eq!(completed(&other.run(go_on("s")).await).reason(), CompletionReason::Stop);
    assert_eq!(outline(&other.messages("s").await), ["USER: \"Hello\"", "ASSISTANT: \"Hello.\""]);
    gone.release("go");
    gone.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_input_is_refused_after_a_complete_answer() {
    let host = Host::with(failing_once()).await;
    host.ask("s", "Hello").await;
    host.run(go_on("s")).await;
    let before = host.database.row_counts().await;
    for request in [go_on("s"), pb::ExecuteTurnRequest { continue_transcript: false, ..go_on("s") }] {
        let refused = host.try_execute(request).await.unwrap_err();
        let expected = (Code::FailedPrecondition, "NO_INPUT".to_owned(), String::new());
        assert_eq!(refusal(&refused, ""), expected);
    }
    let refused = host.try_execute(go_on("none")).await.unwrap_err();
    assert_eq!(refusal(&refused, ""), (Code::NotFound, "SESSION_NOT_FOUND".to_owned(), String::new()));
    assert_eq!(host.database.row_counts().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_attaches_to_its_turn_even_after_the_end() {
    let host = Host::with(failing_once()).await;
    host.ask("s", "Hello").await;
    let request = go_on("s");
    let first = host.run(request.clone()).await;
    let again = host.run(request).await;
    let Some(Payload::Admitted(admitted)) = &again[0].payload else { panic!("{:?}", again[0]) };
    assert_eq!((admitted.admission(), kinds(&again)), (pb::Admission::Attached, kinds(&first)));
    assert_eq!(host.messages("s").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_continuations_on_two_replicas_one_runs() {
    let options = || {
        let error = json!({"error": {"kind": "bad_request", "message": "no"}});
        let steps = json!([{"when": {"user_contains": "fail"}, "say": [error]}, {"say": [{"text": "Hello."}]}]);
        let answers = json!({"steps": [{"say": [{"text": "Hello."}]}]});
        Options::default().script("it", json!({"steps": steps}).to_string()).script("well", answers.to_string())
    };
    let host = Host::with(options()).await;
    let other = host.beside(options()).await;
    for round in 0..10 {
        let session = format!("s{round}");
        host.ask(&session, "Please fail").await;
        let request = || pb::ExecuteTurnRequest { model: "scripted/well".to_owned(), ..go_on(&session) };
        let (one, two) = tokio::join!(host.try_execute(request()), other.try_execute(request()));
        let mut begun = 0;
        for answer in [one, two] {
            match answer {
                Ok(mut stream) => {
                    begun += 1;
                    assert_eq!(completed(&all(&mut stream).await).reason(), CompletionReason::Stop);
                }
                Err(status) => {
                    let reason = refusal(&status, "").1;
                    assert!(["TURN_IN_PROGRESS", "NO_INPUT"].contains(&reason.as_str()), "{status:?}");
                }
            }
        }
        assert_eq!(begun, 1);
        assert_eq!(outline(&host.messages(&session).await), ["USER: \"Please fail\"", "ASSISTANT: \"Hello.\""]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_turn_cannot_be_continued() {
    let host = Host::with(answering(&[json!([call("look")])])).await;
    let mut stream = host.execute(pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Look") }).await;
    until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let refused = host.try_execute(go_on("s")).await.unwrap_err();
    assert_eq!(refusal(&refused, "").1, "TURN_IN_PROGRESS");
    assert_eq!(host.cancel("s", "").await.turn.unwrap().state(), TurnState::Cancelled);
}
