//! UpdateSession and DeleteSession concurrent with a running turn, on two replicas. The events are checked against the
//! requests, regardless of the implementation.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use contextd::pb::{self, event::Payload};
use prost_types::FieldMask;
use serde_json::{Value, json};
use tonic::{Code, Status, Streaming};

use crate::harness::{
    Host, Options,
    events::{kind, kinds, message_text, messages, next, seqs},
    host::{call, refusal},
    requests::{result, submit, tools, turn},
};

/// Number of steps of a turn. Low, because each step repeats the text of all earlier ones.
const STEPS: usize = 6;

/// Two models that echo their prompt and call a tool in every step but the last, alternating between an existing and a
/// nonexistent tool.
fn options() -> Options {
    let say = |step| match step {
        STEPS => json!([{"echo_prompt": true}]),
        step if step % 2 == 0 => json!([{"echo_prompt": true}, call("probe"), call("probe")]),
        _ => json!([{"echo_prompt": true}, call("nothing")]),
    };
    let steps: Vec<Value> = (0..=STEPS).map(|step| json!({"when": {"call": step}, "say": say(step)})).collect();
    let script = json!({ "steps": steps }).to_string();
    Options::default().script("one", script.clone()).script("two", script)
}

async fn pair() -> (Host, Host) {
    let host = Host::with(options()).await;
    let other = host.beside(options()).await;
    (host, other)
}

/// Pseudorandom numbers, the same in every run of a round.
struct Numbers(AtomicU64);

impl Numbers {
    fn of(round: u64) -> Self {
        Self(AtomicU64::new(round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    fn below(&self, end: u64) -> u64 {
        let mut x = self.0.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.store(x, Ordering::Relaxed);
        x % end
    }

    async fn pause(&self, most_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.below(most_ms))).await;
    }
}

fn asks(session: &str) -> pb::ExecuteTurnRequest {
    let config = pb::Session { model: "scripted/one".to_owned(), tools: tools(&["probe"]), ..pb::Session::default() };
    pb::ExecuteTurnRequest { session: Some(config), ..turn(session, "", "Go") }
}

/// Reads a turn to its end. Submits a result for each requested call immediately, through a random replica.
async fn run(
    stream: &mut Streaming<pb::ExecuteTurnResponse>,
    replicas: [&Host; 2],
    session: &str,
    numbers: &Numbers,
    seen: &AtomicU64,
) -> (Vec<pb::Event>, Option<Status>) {
    let mut events = Vec::new();
    loop {
        let event = match next(stream).await {
            Ok(Some(event)) => event,
            Ok(None) => return (events, None),
            Err(status) => return (events, Some(status)),
        };
        if let Some(Payload::ToolCallRequested(pending)) = &event.payload {
            let answer = submit(session, vec![result(&pending.call.as_ref().unwrap().call_id, "fine")]);
            let replica = replicas[usize::from(numbers.below(2) == 1)];
            let mut turns = replica.turns();
            // The result may be refused because the session was deleted.
            tokio::spawn(async move { turns.submit_tool_results(answer).await.map(drop) });
        }
        seen.fetch_add(1, Ordering::Relaxed);
        events.push(event);
    }
}

fn calls_of(events: &[pb::Event], of: impl Fn(&Payload) -> Option<String>) -> Vec<String> {
    let mut calls: Vec<String> = events.iter().filter_map(|event| event.payload.as_ref().and_then(&of)).collect();
    calls.sort();
    calls
}

/// Rules for the events of every session with one turn: no gap, one end, every call closed once.
fn check_story(events: &[pb::Event]) {
    let seqs = seqs(events);
    assert_eq!(seqs, (1..=i64::try_from(seqs.len()).unwrap()).collect::<Vec<_>>());
    let story = kinds(events);
    let ends = story.iter().filter(|kind| ["turn_completed", "turn_cancelled", "turn_failed"].contains(kind));
    assert_eq!(ends.count(), 1, "{story:?}");
    assert!(!story.contains(&"turn_recovered"), "the owner was disturbed");
    let made: Vec<String> = messages(events)
        .into_iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match &part.content {
            Some(pb::part::Content::ToolCall(call)) => Some(call.call_id.clone()),
            _ => None,
        })
        .collect();
    let closed = calls_of(events, |payload| match payload {
        Payload::ToolCallCompleted(done) => done.result.as_ref().map(|result| result.call_id.clone()),
        Payload::ToolCallCancelled(closed) => Some(closed.call_id.clone()),
        _ => None,
    });
    let unique: BTreeSet<&String> = made.iter().collect();
    assert_eq!(unique.len(), made.len());
    assert_eq!(closed.iter().collect::<Vec<_>>(), unique.into_iter().collect::<Vec<_>>(), "each call is closed once");
}

// --- UpdateSession
// -------------------------------------------------------------------------------------------------

/// The model and the system prompt of a revision.
type Said = (String, String);

/// Updates the configuration until the turn is over. Returns the acknowledged revisions with their etags.
async fn keep_updating(
    host: &Host,
    session: &str,
    name: &str,
    numbers: &Numbers,
    over: &AtomicBool,
) -> Vec<(String, Said)> {
    let mut done = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let model = if numbers.below(2) == 0 { "scripted/one" } else { "scripted/two" };
        let change = pb::Session {
            session_id: session.to_owned(),
            model: model.to_owned(),
            system_prompt: format!("{name} {}", done.len()),
            ..pb::Session::default()
        };
        let request = pb::UpdateSessionRequest {
            update_mask: Some(FieldMask { paths: vec!["model".to_owned(), "system_prompt".to_owned()] }),
            session: Some(change),
            request_id: format!("{name}-{}", done.len()),
        };
        let answer = host.sessions().update_session(request).await.unwrap().into_inner().session.unwrap();
        done.push((answer.etag, (answer.model, answer.system_prompt)));
        numbers.pause(25).await;
    }
    done
}

/// Fails unless each step names the newest revision before it and its model was called with that revision.
fn check_revisions(events: &[pb::Event], said_by: &BTreeMap<String, Said>) {
    let mut newest = "1".to_owned();
    let mut switched = 1;
    let mut by_step: BTreeMap<i32, &Said> = BTreeMap::new();
    for event in events {
        match event.payload.as_ref().unwrap() {
            Payload::SessionUpdated(updated) => {
                assert_eq!(updated.etag.parse::<i64>().unwrap(), newest.parse::<i64>().unwrap() + 1);
                let before = &said_by[&newest];
                let after = &said_by[&updated.etag];
                let changed: &[&str] =
                    if before.0 == after.0 { &["system_prompt"] } else { &["model", "system_prompt"] };
                assert_eq!(updated.changed_paths, changed);
                switched += i64::from(before.0 != after.0);
                newest.clone_from(&updated.etag);
            }
            Payload::ModelSwitched(it) => {
                assert_eq!((&it.etag, &it.to_model), (&newest, &said_by[&newest].0));
                switched -= 1;
            }
            Payload::StepStarted(step) => {
                assert_eq!((&step.etag, &step.model), (&newest, &said_by[&newest].0), "step {}", event.step);
                by_step.insert(event.step, &said_by[&newest]);
            }
            _ => {}
        }
    }
    assert_eq!(switched, 1, "switches that were not told");
    let answers = messages(events).into_iter().filter(|message| message.role() == pb::Role::Assistant);
    let mut steps = 0;
    for message in answers {
        let told: Value = serde_json::from_str(message_text(message).trim()).unwrap();
        let (model, system) = by_step[&message.step];
        assert_eq!(told["system"], json!(system), "step {}", message.step);
        assert_eq!(&message.response.as_ref().unwrap().model, model, "step {}", message.step);
        steps += 1;
    }
    assert_eq!(steps, STEPS + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_under_concurrent_updates_runs_each_step_with_the_newest_revision() {
    let (host, other) = pair().await;
    for round in 0..10 {
        let session = format!("s{round}");
        let numbers = Numbers::of(round);
        let over = AtomicBool::new(false);
        let seen = AtomicU64::new(0);
        let mut stream = host.execute(asks(&session)).await;
        let turn = async {
            let ran = run(&mut stream, [&host, &other], &session, &numbers, &seen).await;
            over.store(true, Ordering::Relaxed);
            ran
        };
        let ((_, status), here, there) = tokio::join!(
            turn,
            keep_updating(&host, &session, "here", &numbers, &over),
            keep_updating(&other, &session, "there", &numbers, &over),
        );
        assert!(status.is_none(), "{status:?}");
        let acknowledged: Vec<(String, Said)> = here.into_iter().chain(there).collect();
        let mut said_by: BTreeMap<String, Said> = acknowledged.iter().cloned().collect();
        assert_eq!(said_by.len(), acknowledged.len(), "two changes made one revision");
        assert!(said_by.len() > 5, "{} changes raced", said_by.len());
        said_by.insert("1".to_owned(), ("scripted/one".to_owned(), String::new()));
        let events = host.events(&session, "", 0, 1_000).await;
        let told = events.iter().filter(|event| kind(event) == "session_updated").count();
        assert_eq!(told, acknowledged.len());
        let ended = events.iter().find(|event| matches!(&event.payload, Some(Payload::TurnFailed(_))));
        assert_eq!(ended, None);
        check_story(&events);
        check_revisions(&events, &said_by);
    }
}

// --- DeleteSession
// -------------------------------------------------------------------------------------------------

/// Deletes the session after this many events.
async fn delete_after(host: &Host, session: &str, at: u64, seen: &AtomicU64, over: &AtomicBool) -> Result<(), Status> {
    while seen.load(Ordering::Relaxed) < at && !over.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    let request = pb::DeleteSessionRequest { session_id: session.to_owned(), ..pb::DeleteSessionRequest::default() };
    host.sessions().delete_session(request).await.map(drop)
}

/// Updates the labels until the session is deleted or the turn is over.
async fn keep_labelling(host: &Host, session: &str, numbers: &Numbers, over: &AtomicBool) -> Option<Status> {
    let mut n = 0;
    while !over.load(Ordering::Relaxed) {
        let labels = [("n".to_owned(), n.to_string())].into();
        let change = pb::Session { session_id: session.to_owned(), metadata: labels, ..pb::Session::default() };
        let request = pb::UpdateSessionRequest { session: Some(change), ..pb::UpdateSessionRequest::default() };
        if let Err(status) = host.sessions().update_session(request).await {
            return Some(status);
        }
        n += 1;
        numbers.pause(10).await;
    }
    None
}

/// Fails unless the totals in the turn's last event equal the sums of the other events.
fn check_end(events: &[pb::Event]) {
    let Some(Payload::TurnCancelled(end)) = events.last().and_then(|event| event.payload.as_ref()) else {
        panic!("not cancelled: {:?}", kinds(events))
    };
    assert_eq!(end.cause(), pb::CancelCause::SessionDeleted);
    let mut calls = 0;
    let mut output = 0;
    let mut steps = 0;
    for event in events {
        match event.payload.as_ref().unwrap() {
            Payload::UsageRecorded(recorded) => {
                calls += 1;
                output += i64::from(recorded.usage.as_ref().unwrap().output_tokens);
            }
            Payload::StepStarted(_) => steps = event.step,
            _ => {}
        }
    }
    let result = end.result.as_ref().unwrap();
    let totals = result.total_usage.as_ref().unwrap();
    assert_eq!((totals.calls, totals.output_tokens, result.step_count), (calls, output, steps));
    let last = messages(events).into_iter().rev().find(|message| message.role() == pb::Role::Assistant);
    assert_eq!(result.final_message_id, last.map(|message| message.message_id.clone()).unwrap_or_default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_deleted_during_a_turn_has_one_terminal_event_and_none_after() {
    let (host, other) = pair().await;
    let client = host.database.client().await;
    let mut cut_short = 0;
    for round in 0..24 {
        let session = format!("s{round}");
        let numbers = Numbers::of(round + 100);
        let over = AtomicBool::new(false);
        let seen = AtomicU64::new(0);
        let at = 3 + numbers.below(90);
        let mut stream = host.execute(asks(&session)).await;
        let turn = async {
            let ran = run(&mut stream, [&host, &other], &session, &numbers, &seen).await;
            over.store(true, Ordering::Relaxed);
            ran
        };
        let ((events, status), here, there, late) = tokio::join!(
            turn,
            delete_after(&host, &session, at, &seen, &over),
            delete_after(&other, &session, at, &seen, &over),
            keep_labelling(&other, &session, &numbers, &over),
        );
        assert!(here.is_ok() != there.is_ok(), "deleted once: {here:?} {there:?}");
        let refused = [here.err(), there.err(), late, status.clone()];
        for refused in refused.iter().flatten() {
            let (code, reason, _) = refusal(refused, "");
            assert_eq!((code, reason.as_str()), (Code::NotFound, "SESSION_NOT_FOUND"));
        }
        check_story(&events);
        host.at_rest().await;
        other.at_rest().await;
        let durable: Vec<pb::Event> = events.into_iter().filter(|event| event.seq > 0).collect();
        if status.is_some() {
            cut_short += 1;
            check_end(&durable);
            let stored: i64 = client
                .query_one("select max(seq) from events where session_id = $1", &[&session])
                .await
                .unwrap()
                .get(0);
            assert_eq!(stored, durable.last().unwrap().seq, "something was written after the end");
        }
        let left = "select (select count(*) from tool_calls where session_id = $1 and status < 3)
                         + (select count(*) from turns where session_id = $1 and state = 1)
                         + (select count(*) from sessions where session_id = $1)";
        assert_eq!(client.query_one(left, &[&session]).await.unwrap().get::<_, i64>(0), 0);
    }
    assert!(cut_short > 8, "only {cut_short} turns were running when their session was deleted");
}
