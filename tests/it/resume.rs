//! Streams that are interrupted and resumed, and turns whose replica has died.

use std::time::Duration;

use crate::harness::{
    Host, Options, as_worker,
    events::{
        Carrier, TWO_TOOLS, all, completed, durable, failed, kind, kinds, message_text, messages, next, outline,
        requested, seqs, turn_id, until, until_written,
    },
    host::{MODEL, answering, call},
    requests::{result, tools, turn},
};
use contextd::pb::{self, AnswerStatus, CompletionReason, FailureReason, RecoveryCause, event::Payload};
use serde_json::{Value, json};
use tonic::Streaming;

const LEASE: Duration = Duration::from_secs(1);

fn two_tools() -> Options {
    answering(&[
        json!([{"reasoning": "Hm."}, {"text": "Let me look."}, call("look"), call("list")]),
        json!([{"text": "It is fine."}]),
    ])
}

fn asks(session: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["look", "list"]), ..turn(session, MODEL, "Hello") }
}

/// Reads up to `most` events and submits results when calls require them. Returns whether the stream ended.
async fn read<T: Carrier>(
    host: &Host,
    session: &str,
    stream: &mut Streaming<T>,
    most: usize,
    seen: &mut Vec<pb::Event>,
) -> bool {
    for _ in 0..most {
        let Some(event) = next(stream).await.unwrap() else {
            return true;
        };
        let action = kind(&event) == "action_required" && !seen.iter().any(|event| kind(event) == "action_required");
        seen.push(event);
        if action {
            let results = requested(seen).iter().map(|call| result(call, "fine")).collect();
            assert_eq!(host.submit(session, results).await, [AnswerStatus::Accepted; 2]);
        }
    }
    false
}

fn last_seq(seen: &[pb::Event]) -> i64 {
    seqs(seen).last().copied().unwrap_or_default()
}

/// Fails unless every durable event was received once and in order, and equals the stored event.
async fn assert_whole(host: &Host, session: &str, seen: &[pb::Event], cut: usize) {
    assert_eq!(seqs(seen), (1..=15).collect::<Vec<_>>(), "cut behind {cut}");
    assert_eq!(kinds(seen), TWO_TOOLS, "cut behind {cut}");
    let stored = host.events(session, "", 0, 100).await;
    assert_eq!(stored.len(), seen.iter().filter(|event| event.seq > 0).count(), "cut behind {cut}");
    for (seen, stored) in durable(seen).iter().zip(&stored) {
        assert_eq!((&seen.payload, &seen.turn_id, seen.step), (&stored.payload, &stored.turn_id, stored.step));
    }
}

// --- Streams
// -------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_stream_can_be_resumed_at_every_event() {
    let host = Host::with(two_tools()).await;
    for cut in 0.. {
        let session = format!("s{cut}");
        let request = asks(&session);
        let mut seen = Vec::new();
        let mut stream = host.execute(request.clone()).await;
        let ended = read(&host, &session, &mut stream, cut, &mut seen).await;
        drop(stream);
        let behind = seqs(&seen).len();
        let mut again = host.execute(pb::ExecuteTurnRequest { after_seq: last_seq(&seen), ..request }).await;
        assert!(read(&host, &session, &mut again, usize::MAX, &mut seen).await);
        assert_whole(&host, &session, &seen, cut).await;
        if ended {
            assert_eq!(behind, 15);
            assert!(cut > 15, "fewer cuts than messages: {cut}");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_can_be_resumed_at_every_event() {
    let host = Host::with(two_tools()).await;
    for cut in 0.. {
        let session = format!("s{cut}");
        let mut stream = host.execute(asks(&session)).await;
        let first = next(&mut stream).await.unwrap().unwrap();
        drop(stream);
        let mut seen = Vec::new();
        let mut watch = host.watch(&session, &first.turn_id, 0).await;
        let ended = read(&host, &session, &mut watch, cut, &mut seen).await;
        drop(watch);
        let mut again = host.watch(&session, &first.turn_id, last_seq(&seen)).await;
        assert!(read(&host, &session, &mut again, usize::MAX, &mut seen).await);
        assert_whole(&host, &session, &seen, cut).await;
        if ended {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_turn_can_be_read_from_every_event() {
    let host = Host::with(two_tools()).await;
    let request = asks("s");
    let seen = host.run_with(request.clone(), |call| result(&call.call_id, "fine")).await;
    let turn = turn_id(&seen);
    let next_turn = host.run_with(asks("s"), |call| result(&call.call_id, "fine")).await;
    assert_eq!(seqs(&next_turn), (16..=30).collect::<Vec<_>>());
    for after in 0..=15 {
        let rest: Vec<i64> = (after + 1..=15).collect();
        let executed = host.run(pb::ExecuteTurnRequest { after_seq: after, ..request.clone() }).await;
        assert_eq!(seqs(&executed), rest, "ExecuteTurn after {after}");
        let watched = all(&mut host.watch("s", &turn, after).await).await;
        assert_eq!(seqs(&watched), rest, "WatchEvents after {after}");
        assert!(durable(&watched).iter().all(|event| event.replay));
        for page_size in 1..=4 {
            let listed = host.events("s", &turn, after, page_size).await;
            assert_eq!(seqs(&listed), rest, "ListEvents after {after}, pages of {page_size}");
        }
    }
    for page_size in 1..=4 {
        let both: Vec<i64> = (1..=30).collect();
        assert_eq!(seqs(&host.events("s", "", 0, page_size).await), both);
        let second = host.events("s", &turn_id(&next_turn), 0, page_size).await;
        assert_eq!(seqs(&second), (16..=30).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_watch_continues_with_the_next_turn() {
    let host = Host::scripted(&[json!([{"text": "Hello."}])]).await;
    host.ask("s", "One").await;
    let mut watch = host.watch("s", "", 3).await;
    until(&mut watch, |payload| matches!(payload, Payload::Sync(_))).await;
    host.ask("s", "Two").await;
    let live = until(&mut watch, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    assert_eq!(seqs(&live), (7..=12).collect::<Vec<_>>());
    assert!(durable(&live).iter().all(|event| !event.replay));
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_calls_are_sent_to_a_reconnecting_client() {
    let host = Host::with(two_tools()).await;
    let request = asks("s");
    let mut stream = host.execute(request.clone()).await;
    let seen = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let calls = requested(&seen);
    drop(stream);
    host.submit("s", vec![result(&calls[0], "fine")]).await;
    let mut again = host.execute(pb::ExecuteTurnRequest { after_seq: last_seq(&seen), ..request }).await;
    let head = until(&mut again, |payload| matches!(payload, Payload::Sync(_))).await;
    let Some(Payload::Sync(sync)) = &head.last().unwrap().payload else { unreachable!() };
    let pending: Vec<_> = sync.pending_calls.iter().map(|pending| &pending.call.as_ref().unwrap().call_id).collect();
    assert_eq!(pending, [&calls[1]]);
    assert_eq!((sync.state(), sync.last_seq, &sync.open_message), (pb::SessionState::AwaitingTools, 9, &None));
    host.submit("s", vec![result(&calls[1], "fine")]).await;
    assert_eq!(completed(&all(&mut again).await).reason(), CompletionReason::Stop);
}

/// Row F10
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_followed_from_another_replica() {
    let host = Host::with(two_tools()).await;
    let other = host.beside(two_tools()).await;
    let mut stream = host.execute(asks("s")).await;
    let first = next(&mut stream).await.unwrap().unwrap();
    let mut watch = other.watch("s", &first.turn_id, 0).await;
    let mut seen = Vec::new();
    assert!(read(&other, "s", &mut watch, usize::MAX, &mut seen).await);
    assert_eq!(kinds(&seen), TWO_TOOLS);
}

// --- Replicas
// ------------------------------------------------------------------------------------------------------

/// A replica whose model writes its name, blocks, and ends.
fn speaking(name: &str, signal: &str) -> Options {
    let answer = json!([{"text": name}, {"wait_for": signal}, {"text": " ends."}]);
    Options { lease: LEASE, ..answering(&[answer]) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_an_unresponsive_replica_is_taken_over_and_completed_once() {
    let silent = Host::with(speaking("A", "go")).await;
    let heir = silent.beside(speaking("B", "go")).await;
    let mut own = silent.execute(turn("s", MODEL, "Hello")).await;
    let head = until_written(&mut own, "A").await;
    let Some(Payload::TextDelta(voided)) = head.iter().rev().find_map(|event| event.payload.clone()) else {
        panic!("no text")
    };
    silent.simulate_crash().await;

    let mut watch = heir.watch("s", &turn_id(&head), 0).await;
    let taken = until_written(&mut watch, "B").await;
    let recovered = taken.iter().find(|event| kind(event) == "turn_recovered").unwrap();
    assert_eq!((recovered.seq, recovered.step, recovered.attempt), (4, 1, 2));
    let Some(Payload::TurnRecovered(recovery)) = &recovered.payload else { unreachable!() };
    assert_eq!((recovery.cause(), recovery.takeovers), (RecoveryCause::LeaseExpired, 1));
    assert_eq!(recovery.voided_message_id, voided.message_id);
    heir.release("go");
    let rest = all(&mut watch).await;
    assert_eq!(completed(&rest).reason(), CompletionReason::Stop);
    assert!(durable(&rest).iter().all(|event| event.attempt == 2));
    assert_eq!(message_text(messages(&rest)[0]), "B ends.");
    assert_ne!(messages(&rest)[0].message_id, voided.message_id);
    let seen = [taken, rest].concat();
    let expected =
        ["turn_started", "message_committed", "step_started", "turn_recovered", "message_committed", "usage_recorded"];
    assert_eq!(kinds(&seen), [&expected[..], &["turn_completed"]].concat());

    let before = silent.database.row_counts().await;
    assert_eq!(silent.replica.engine.capacity.leases.count(), 1, "the silent one knows nothing yet");
    silent.release("go");
    silent.at_rest().await;
    assert_eq!(silent.database.row_counts().await, before, "a late write changes nothing");
    assert_eq!(outline(&heir.messages("s").await), ["USER: \"Hello\"", "ASSISTANT: \"B ends.\""]);
    assert_eq!(seqs(&heir.events("s", "", 0, 100).await), (1..=7).collect::<Vec<_>>());
}

/// Row F3
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lost_its_lease_stops_calling_the_model() {
    let options =
        Options { lease: LEASE, workers: false, ..answering(&[json!([{"text": "A"}, {"wait_for": "never"}])]) };
    let slow = Host::with(options).await;
    let mut own = slow.execute(turn("s", MODEL, "Hello")).await;
    let head = until_written(&mut own, "A").await;
    let heir = slow.beside(speaking("B", "go")).await;
    let mut watch = heir.watch("s", &turn_id(&head), 0).await;
    until_written(&mut watch, "B").await;
    assert_eq!(slow.replica.engine.capacity.leases.count(), 1);
    as_worker(slow.replica.engine.poll_cancels()).await.unwrap();
    slow.at_rest().await;
    heir.release("go");
    assert_eq!(completed(&all(&mut watch).await).reason(), CompletionReason::Stop);
    assert_eq!(outline(&heir.messages("s").await), ["USER: \"Hello\"", "ASSISTANT: \"B ends.\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_takes_over_its_own_turn_stops_the_first_attempt() {
    let options = Options { workers: false, ..speaking("A", "go") };
    let host = Host::with(options).await;
    let mut stream = host.execute(turn("s", MODEL, "Hello")).await;
    let head = until_written(&mut stream, "A").await;
    host.database.owner_died("session_id = 's'").await;
    as_worker(host.replica.engine.take_over()).await.unwrap();
    let taken = until(&mut stream, |payload| matches!(payload, Payload::TextDelta(_))).await;
    assert_eq!(kinds(&taken), ["turn_recovered"]);
    let Some(Payload::TextDelta(delta)) = &taken.last().unwrap().payload else { unreachable!() };
    assert_eq!((delta.byte_offset, delta.text.as_str()), (0, "A"));
    let late = until(&mut host.watch("s", "", 4).await, |payload| matches!(payload, Payload::Sync(_))).await;
    let Some(Payload::Sync(sync)) = &late.last().unwrap().payload else { unreachable!() };
    let open = sync.open_message.as_ref().unwrap();
    assert_eq!(
        (&open.message_id, message_text(open)),
        (&delta.message_id, "A".to_owned()),
        "the second attempt's message"
    );
    host.release("go");
    let rest = all(&mut stream).await;
    assert_eq!(completed(&rest).reason(), CompletionReason::Stop);
    assert_eq!(seqs(&[head, taken, rest].concat()), (1..=7).collect::<Vec<_>>());
    assert_eq!(outline(&host.messages("s").await), ["USER: \"Hello\"", "ASSISTANT: \"A ends.\""]);
    host.at_rest().await;
}

/// Row F29
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_with_too_many_owners_is_failed() {
    let first = Host::with(speaking("A", "never")).await;
    let second = first.beside(Options { max_takeovers: 1, ..speaking("B", "never") }).await;
    let mut stream = first.execute(turn("s", MODEL, "Hello")).await;
    let head = until_written(&mut stream, "A").await;
    first.simulate_crash().await;
    let mut watch = second.watch("s", &turn_id(&head), 0).await;
    until_written(&mut watch, "B").await;
    second.simulate_crash().await;

    let third = first.beside(Options { max_takeovers: 1, ..speaking("C", "never") }).await;
    let seen = all(&mut third.watch("s", &turn_id(&head), 0).await).await;
    let failure = failed(&seen).failure.clone().unwrap();
    assert_eq!(
        (failure.reason(), failure.phase(), failure.recoverable),
        (FailureReason::Poisoned, pb::FailurePhase::Unspecified, true)
    );
    let attempts: Vec<i32> =
        seen.iter().filter(|event| kind(event) == "turn_recovered").map(|event| event.attempt).collect();
    assert_eq!(attempts, [2, 3]);
    assert_eq!(third.replica.scripted.prompts().len(), 0);
    assert_eq!(third.session("s").await.state(), pb::SessionState::Idle);
    assert_eq!(outline(&third.messages("s").await), ["USER: \"Hello\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_turn_survives_its_replica() {
    let script: [Value; 2] = [json!([call("look")]), json!([{"text": "So: {{result:look}}"}])];
    let first = Host::with(answering(&script)).await;
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Hello") };
    let mut stream = first.execute(request).await;
    let seen = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    first.replica.stop_workers();
    let second = first.beside(answering(&script)).await;
    drop(stream);
    assert_eq!(second.submit("s", vec![result(&requested(&seen)[0], "fine")]).await, [AnswerStatus::Accepted]);
    let rest = all(&mut second.watch("s", &turn_id(&seen), last_seq(&seen)).await).await;
    assert_eq!(message_text(messages(&rest)[1]), "So: fine");
    assert!(!kinds(&rest).contains(&"turn_recovered"), "a turn that waited was never orphaned");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_shuts_down_hands_its_turn_over_at_once() {
    let leaving = Host::with(answering(&[json!([{"text": "A"}, {"wait_for": "never"}])])).await;
    let heir = leaving.beside(answering(&[json!([{"text": "B ends."}])])).await;
    let mut own = leaving.execute(turn("s", MODEL, "Hello")).await;
    let head = until_written(&mut own, "A").await;
    leaving.replica.drain(Duration::from_millis(100)).await;
    let seen = all(&mut heir.watch("s", &turn_id(&head), 0).await).await;
    let recovered = seen.iter().find_map(|event| match &event.payload {
        Some(Payload::TurnRecovered(recovered)) => Some((recovered.cause(), recovered.takeovers)),
        _ => None,
    });
    assert_eq!(recovered, Some((RecoveryCause::HandedOver, 0)));
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    assert_eq!(outline(&heir.messages("s").await), ["USER: \"Hello\"", "ASSISTANT: \"B ends.\""]);
}
