//! What happens after a turn: whether a queued message starts the next turn, interrupts the current one, or remains
//! queued.

use contextd::pb::{self, event::Payload};
use serde_json::json;
use tonic::Streaming;

use crate::harness::{
    Host, Options, as_worker,
    events::{
        TEST_TIMEOUT, all, cancelled, completed, kinds, message_text, messages, next, seqs, turn_id, turn_state, until,
        until_action, until_written,
    },
    host::{MODEL, call, until as eventually},
    requests::{enqueue, result, tools, turn},
};

/// A model that blocks until `go` is released or calls `look`, if the input says so.
fn options() -> Options {
    let steps = json!({"steps": [
        {"when": {"user_contains": "wait"}, "say": [{"text": "Well, "}, {"wait_for": "go"}, {"text": "done."}]},
        {"when": {"user_contains": "look", "call": 0}, "say": [call("look")]},
        {"when": {"user_contains": "fail"}, "say": [{"wait_for": "go"}, {"error": {"kind": "auth", "message": "no"}}]},
        {"when": {"otherwise": true}, "say": [{"text": "Fine: {{user}}"}]}
    ]});
    Options::default().script("it", steps.to_string()).script("other", steps.to_string())
}

fn asks(session: &str, words: &str) -> pb::ExecuteTurnRequest {
    let own = pb::Session { model: MODEL.to_owned(), tools: tools(&["look"]), ..pb::Session::default() };
    pb::ExecuteTurnRequest { session: Some(own), ..turn(session, "", words) }
}

fn starts(session: &str, words: &str) -> pb::EnqueueMessageRequest {
    pb::EnqueueMessageRequest { on_idle: pb::IdleAction::StartTurn.into(), ..enqueue(session, words) }
}

fn later(request: pb::EnqueueMessageRequest) -> pb::EnqueueMessageRequest {
    pb::EnqueueMessageRequest { delivery: pb::Delivery::WhenIdle.into(), ..request }
}

fn interrupts(session: &str, words: &str) -> pb::EnqueueMessageRequest {
    pb::EnqueueMessageRequest { delivery: pb::Delivery::Interrupt.into(), ..enqueue(session, words) }
}

fn queue_too(session: &str, words: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { busy_policy: pb::BusyPolicy::Enqueue.into(), ..asks(session, words) }
}

fn id(response: &pb::EnqueueMessageResponse) -> String {
    response.queued_message.as_ref().unwrap().queued_message_id.clone()
}

async fn waiting(host: &Host, session: &str) -> Streaming<pb::ExecuteTurnResponse> {
    let mut stream = host.execute(asks(session, "Please wait.")).await;
    until_written(&mut stream, "Well, ").await;
    stream
}

/// All events of a session, once this many turns have ended.
async fn story(host: &Host, session: &str, turns: usize) -> Vec<pb::Event> {
    let ended = |events: &[pb::Event]| {
        kinds(events)
            .into_iter()
            .filter(|kind| ["turn_completed", "turn_cancelled", "turn_failed"].contains(kind))
            .count()
    };
    eventually("the turns to end", || async { ended(&host.events(session, "", 0, 100).await) == turns }).await;
    host.events(session, "", 0, 100).await
}

/// The text of all messages, in order.
fn words(events: &[pb::Event]) -> Vec<String> {
    messages(events).into_iter().map(message_text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_an_idle_session_waits_or_starts_a_turn() {
    let host = Host::with(options()).await;
    host.run(asks("s", "Hello")).await;
    let held = host.enqueue(enqueue("s", "one")).await;
    assert_eq!((held.session_state(), held.turn_id.as_str()), (pb::SessionState::Idle, ""));
    let request = starts("s", "two");
    let started = host.enqueue(request.clone()).await;
    assert_eq!(started.session_state(), pb::SessionState::Running);
    let events = story(&host, "s", 2).await;
    let own: Vec<pb::Event> = events.into_iter().filter(|event| event.turn_id == started.turn_id).collect();
    let Some(Payload::TurnStarted(begun)) = &own[0].payload else { panic!("no start") };
    assert_eq!(
        (&begun.request_id, &begun.input_message_id, &begun.tool_names),
        (&request.request_id, &String::new(), &vec!["look".to_owned()])
    );
    assert_eq!(words(&own)[0], "First: one\n\nAlso: two");
    assert_eq!(host.turn("s", &started.turn_id).await.request_id, request.request_id);
}

/// Row D19: a message for after the turn starts the next turn in the transaction that ends the turn, and that turn
/// applies all pending messages.
#[tokio::test(flavor = "multi_thread")]
async fn messages_for_after_the_turn_start_the_next_turn_in_the_same_transaction() {
    let host = Host::with(options()).await;
    let mut stream = waiting(&host, "s").await;
    let held = id(&host.enqueue(later(enqueue("s", "held"))).await);
    let first = id(&host.enqueue(later(starts("s", "first"))).await);
    host.release("go");
    let ended = all(&mut stream).await;
    assert_eq!(completed(&ended).result.as_ref().unwrap().queued_message_ids, [held.clone(), first]);
    let events = story(&host, "s", 2).await;
    assert_eq!(words(&events)[2], "First: held\n\nAlso: first");
    assert_followed_at_once(&host, &events).await;
}

/// Fails unless the first turn of `s` ended in the transaction that started the next one.
async fn assert_followed_at_once(host: &Host, events: &[pb::Event]) {
    let sql = "select count(distinct xmin::text) from events where session_id = 's' and seq between $1 and $1 + 1";
    let end = events.iter().find(|event| matches!(event.payload, Some(Payload::TurnCompleted(_)))).unwrap().seq;
    let client = host.database.client().await;
    let transactions: i64 = client.query_one(sql, &[&end]).await.unwrap().get(0);
    assert_eq!(transactions, 1, "the end and the start of the next turn");
}

/// Row D19
#[tokio::test(flavor = "multi_thread")]
async fn queued_messages_stay_after_a_cancel_or_a_failure() {
    let host = Host::with(options()).await;
    let stream = waiting(&host, "cancelled").await;
    let stays = id(&host.enqueue(starts("cancelled", "stays")).await);
    host.cancel("cancelled", "").await;
    drop(stream);
    let mut stream = host.execute(asks("failed", "Please fail.")).await;
    until(&mut stream, |it| matches!(it, Payload::Thinking(_))).await;
    let stays_too = id(&host.enqueue(starts("failed", "stays")).await);
    host.release("go");
    all(&mut stream).await;
    for (session, message) in [("cancelled", &stays), ("failed", &stays_too)] {
        let events = story(&host, session, 1).await;
        let listed = match &events.last().unwrap().payload {
            Some(Payload::TurnCancelled(it)) => it.result.clone(),
            Some(Payload::TurnFailed(it)) => it.result.clone(),
            other => panic!("an unexpected end: {other:?}"),
        };
        assert_eq!(listed.unwrap().queued_message_ids.as_slice(), std::slice::from_ref(message));
        as_worker(host.replica.engine.start_waiting_turns()).await.unwrap();
        assert_eq!(host.session(session).await.state(), pb::SessionState::Idle);
        let events = host.run(asks(session, "Go on.")).await;
        assert_eq!(words(&events)[1], "stays", "the next turn takes it");
    }
}

/// Row D19
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_at_its_step_limit_is_followed_by_the_turn_of_queued_messages() {
    let limits = pb::TurnLimits { max_steps: 1, ..pb::TurnLimits::default() };
    is_followed(limits, true, pb::CompletionReason::MaxSteps).await;
}

/// Row D19
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_at_its_token_budget_is_followed_by_the_turn_of_queued_messages() {
    let limits = pb::TurnLimits { max_total_tokens: 1, ..pb::TurnLimits::default() };
    is_followed(limits, true, pb::CompletionReason::Budget).await;
}

/// Row D19
#[tokio::test(flavor = "multi_thread")]
async fn after_its_deadline_a_turn_is_followed_by_what_asked_for_one() {
    let brief = prost_types::Duration { seconds: 2, nanos: 0 };
    let limits = pb::TurnLimits { turn_timeout: Some(brief), ..pb::TurnLimits::default() };
    is_followed(limits, false, pb::CompletionReason::Deadline).await;
}

/// Runs a turn with these limits that calls a tool while messages are pending, one of which starts a turn. Fails unless
/// it ends for this reason once the call has its result or the timeout is reached.
async fn is_followed(limits: pb::TurnLimits, answers: bool, reason: pb::CompletionReason) {
    let host = Host::with(options()).await;
    let mut stream = host.execute(pb::ExecuteTurnRequest { limits: Some(limits), ..asks("s", "Please look.") }).await;
    let (_, [calls, _]) = until_action(&mut stream).await;
    host.enqueue(enqueue("s", "held")).await;
    host.enqueue(starts("s", "starts")).await;
    if answers {
        host.submit("s", vec![result(&calls[0], "a cat")]).await;
    }
    assert_eq!(completed(&all(&mut stream).await).reason(), reason);
    let events = story(&host, "s", 2).await;
    assert_eq!(words(&events).iter().rev().nth(1).unwrap(), "First: held\n\nAlso: starts");
    assert_followed_at_once(&host, &events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupting_message_keeps_the_partial_answer_and_starts_a_turn() {
    let host = Host::with(options()).await;
    let mut stream = waiting(&host, "s").await;
    let held = id(&host.enqueue(later(enqueue("s", "held"))).await);
    let request = interrupts("s", "Stop");
    let answer = host.enqueue(request.clone()).await;
    assert_eq!(answer.session_state(), pb::SessionState::Running);
    let ended = all(&mut stream).await;
    let end = cancelled(&ended);
    assert_eq!((end.cause(), end.outcome()), (pb::CancelCause::Interrupted, pb::CancelOutcome::PartialAssistant));
    assert_eq!(end.result.as_ref().unwrap().queued_message_ids, [held, id(&answer)]);
    let events = story(&host, "s", 2).await;
    assert_eq!(words(&events)[1..3], ["Well, ", "First: held\n\nAlso: Stop"]);
    let end = ended.last().unwrap().seq;
    let sql = "select count(distinct xmin::text) from events where session_id = 's' and seq between $1 and $1 + 1";
    let transactions: i64 = host.database.client().await.query_one(sql, &[&end]).await.unwrap().get(0);
    assert_eq!(transactions, 1, "the end and the start of the next turn");
    // The same request again interrupts nothing.
    let _running = waiting(&host, "s").await;
    assert_eq!(host.enqueue(request).await.queued_message.unwrap().state(), pb::QueuedMessageState::Applied);
    assert_eq!(host.session("s").await.state(), pb::SessionState::Running);
    host.release("go");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_for_tools_is_interrupted_on_any_replica() {
    let host = Host::with(options()).await;
    let other = host.beside(options()).await;
    let mut stream = host.execute(asks("s", "Please look.")).await;
    until_action(&mut stream).await;
    other.enqueue(interrupts("s", "Stop")).await;
    let ended = all(&mut stream).await;
    assert_eq!(cancelled(&ended).cause(), pb::CancelCause::Interrupted);
    assert!(kinds(&ended).contains(&"tool_call_cancelled"));
    let events = story(&other, "s", 2).await;
    assert_eq!(words(&events).last().unwrap(), "Fine: Stop");
    // A turn that runs on the other replica.
    let mut stream = waiting(&host, "t").await;
    other.enqueue(interrupts("t", "Stop")).await;
    assert_eq!(cancelled(&all(&mut stream).await).cause(), pb::CancelCause::Interrupted);
    story(&other, "t", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_in_an_idle_session_starts_a_turn_and_cancels_nothing() {
    let host = Host::with(options()).await;
    host.run(asks("s", "Hello")).await;
    host.enqueue(interrupts("s", "Go")).await;
    let events = story(&host, "s", 2).await;
    assert_eq!(words(&events).last().unwrap(), "Fine: Go");
    assert!(!kinds(&events).contains(&"turn_cancelled"));
}

/// Row D9: sending to a busy session queues the message.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_queued_during_another_follows_the_turn_that_applies_its_input() {
    let host = Host::with(options()).await;
    let mut stream = waiting(&host, "s").await;
    let limits = pb::TurnLimits { max_steps: 3, ..pb::TurnLimits::default() };
    let request =
        pb::ExecuteTurnRequest { limits: Some(limits), model: "scripted/other".to_owned(), ..queue_too("s", "More.") };
    let mut second = host.execute(request.clone()).await;
    let event = next(&mut second).await.unwrap().unwrap();
    let Some(Payload::Admitted(admitted)) = event.payload else { panic!("not admitted") };
    assert_eq!((admitted.admission(), admitted.position), (pb::Admission::Queued, 1));
    assert_eq!(admitted.ignored_fields, ["limits.max_steps", "model"]);
    let running = host.session("s").await.current_turn_id;
    assert_eq!((event.turn_id, running.is_empty()), (running, false));
    let mut again = host.execute(request.clone()).await;
    let attached = next(&mut again).await.unwrap().unwrap();
    assert!(matches!(&attached.payload, Some(Payload::Admitted(it)) if it.admission() == pb::Admission::Attached));
    assert_eq!(host.queued("s").await.len(), 1, "the repetition queues nothing");
    host.release("go");
    let first = all(&mut stream).await;
    let own = all(&mut second).await;
    let same = all(&mut again).await;
    assert_eq!(turn_state(&mut second).await, "COMPLETED");
    assert_eq!(own.last().unwrap().seq, first.last().unwrap().seq, "the running turn took it");
    assert_eq!(same.last().unwrap().seq, first.last().unwrap().seq);
    assert_eq!(completed(&own).result.as_ref().unwrap().step_count, 2);
    let after = all(&mut host.execute(request).await).await;
    assert!(kinds(&after).contains(&"messages_applied"));
    assert_eq!(after.last().unwrap().seq, first.last().unwrap().seq);
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_input_of_a_cancelled_turn_gets_its_own_turn_and_parameters() {
    let host = Host::with(options()).await;
    let _stream = waiting(&host, "s").await;
    let request = pb::ExecuteTurnRequest {
        model: "scripted/other".to_owned(),
        tools: tools(&["feel"]),
        ..queue_too("s", "More.")
    };
    let mut second = host.execute(request.clone()).await;
    next(&mut second).await.unwrap();
    let first = host.cancel("s", "").await.turn.unwrap().turn_id;
    let own = all(&mut second).await;
    assert_eq!(kinds(&own).iter().filter(|kind| kind.starts_with("turn_c")).count(), 2, "two ends: {:?}", kinds(&own));
    assert_eq!(turn_state(&mut second).await, "COMPLETED");
    let last = host.turn("s", &own.last().unwrap().turn_id).await;
    assert_eq!((last.model.as_str(), &last.request_id), ("scripted/other", &request.request_id));
    assert_ne!(last.turn_id, first);
    let Some(Payload::TurnStarted(begun)) = own.iter().find_map(|event| match &event.payload {
        Some(Payload::TurnStarted(_)) => event.payload.clone(),
        _ => None,
    }) else {
        panic!("no start")
    };
    assert_eq!((begun.tool_names, begun.request_id), (vec!["feel".to_owned()], request.request_id.clone()));
    let again = all(&mut host.execute(request.clone()).await).await;
    assert!(kinds(&again).contains(&"turn_started"), "from the first event of the request: {:?}", kinds(&again));
    let rest = all(&mut host.execute(pb::ExecuteTurnRequest { after_seq: seqs(&own)[0], ..request }).await).await;
    assert_eq!(seqs(&rest), seqs(&own)[1..], "behind what was handled, the end of the earlier turn included");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_request_may_interrupt_the_running_turn() {
    let host = Host::with(options()).await;
    let mut stream = waiting(&host, "s").await;
    let request = pb::ExecuteTurnRequest { busy_policy: pb::BusyPolicy::Interrupt.into(), ..asks("s", "Stop.") };
    let own = host.run(request).await;
    assert_eq!(cancelled(&all(&mut stream).await).cause(), pb::CancelCause::Interrupted);
    assert_eq!(completed(&own).reason(), pb::CompletionReason::Stop);
    assert_eq!(words(&own).last().unwrap(), "Fine: Stop.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_queued_input_is_withdrawn() {
    let host = Host::with(options()).await;
    let _stream = waiting(&host, "s").await;
    let request = queue_too("s", "More.");
    let mut second = host.execute(request.clone()).await;
    next(&mut second).await.unwrap();
    assert_eq!(host.clear("s").await.len(), 1);
    let seen = all(&mut second).await;
    assert_eq!(kinds(&seen), ["queued_message_cancelled"]);
    let again = all(&mut host.execute(request.clone()).await).await;
    assert_eq!(kinds(&again), ["queued_message_cancelled"]);
    let last = again.iter().map(|event| event.seq).max().unwrap();
    let none = all(&mut host.execute(pb::ExecuteTurnRequest { after_seq: last, ..request }).await).await;
    assert_eq!(kinds(&none), Vec::<&str>::new());
    host.release("go");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_session_refuses_a_turn_without_input() {
    let host = Host::with(options()).await;
    let stream = waiting(&host, "s").await;
    let status = host.try_execute(pb::ExecuteTurnRequest { input: None, ..queue_too("s", "") }).await.unwrap_err();
    assert_eq!(crate::harness::host::refusal(&status, "").1, "TURN_IN_PROGRESS");
    drop(stream);
    host.release("go");
}

/// A turn that was not started, because its replica stopped or the session had open appended calls, is started by the
/// worker that finds the message.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_its_turn_is_found_by_the_worker() {
    let host = Host::with(options()).await;
    host.run(asks("s", "Hello")).await;
    host.enqueue(enqueue("s", "Go")).await;
    let sql = "update queue set starts_turn = true where session_id = 's'";
    host.database.client().await.execute(sql, &[]).await.unwrap();
    let events = story(&host, "s", 2).await;
    assert_eq!(words(&events).last().unwrap(), "Fine: Go");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_session_drops_its_queued_messages() {
    let host = Host::with(options()).await;
    let mut stream = waiting(&host, "s").await;
    let mut second = host.execute(queue_too("s", "More.")).await;
    next(&mut second).await.unwrap();
    let request = pb::DeleteSessionRequest { session_id: "s".to_owned(), ..pb::DeleteSessionRequest::default() };
    host.sessions().delete_session(request).await.unwrap();
    let mut seen = Vec::new();
    while let Ok(Some(event)) = next(&mut second).await {
        seen.push(event);
    }
    assert_eq!(kinds(&seen), ["queued_message_dropped", "turn_cancelled"]);
    while let Ok(Some(_)) = next(&mut stream).await {}
    let _ = turn_id(&seen);
    host.release("go");
}

/// Two replicas that poll once in ten minutes.
async fn seldom() -> (Host, Host) {
    let ten_minutes = std::time::Duration::from_mins(10);
    let options = || Options { poll: ten_minutes, lease: ten_minutes * 3, ..options() };
    let host = Host::with(options()).await;
    let other = host.beside(options()).await;
    (host, other)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_on_another_replica_is_notified_at_once() {
    let (host, other) = seldom().await;
    let mut stream = waiting(&host, "s").await;
    let request = pb::CancelTurnRequest { session_id: "s".to_owned(), ..pb::CancelTurnRequest::default() };
    let mut turns = other.turns();
    let answer = tokio::time::timeout(TEST_TIMEOUT, turns.cancel_turn(request)).await.expect("it is not heard");
    let answer = answer.unwrap().into_inner();
    assert_eq!(answer.turn.unwrap().state(), pb::TurnState::Cancelled);
    assert_eq!(cancelled(&all(&mut stream).await).cause(), pb::CancelCause::Requested);
}

/// Row F27
#[tokio::test(flavor = "multi_thread")]
async fn a_handed_over_turn_is_taken_at_once() {
    let (host, other) = seldom().await;
    let _stream = waiting(&host, "s").await;
    let mut watch = other.watch("s", "", 0).await;
    until(&mut watch, |it| matches!(it, Payload::Sync(_))).await;
    host.replica.drain(std::time::Duration::ZERO).await;
    let taken = until(&mut watch, |it| matches!(it, Payload::TurnRecovered(_)));
    tokio::time::timeout(TEST_TIMEOUT, taken).await.expect("it is not heard");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_by_another_replica_are_notified_at_once() {
    let (host, other) = seldom().await;
    let mut stream = waiting(&host, "s").await;
    let mut watch = other.watch("s", "", 0).await;
    until(&mut watch, |it| matches!(it, Payload::Sync(_))).await;
    other.enqueue(interrupts("s", "Stop")).await;
    assert_eq!(cancelled(&all(&mut stream).await).cause(), pb::CancelCause::Interrupted);
    until(&mut watch, |it| matches!(it, Payload::TurnCompleted(_))).await;
}
