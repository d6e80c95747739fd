//! What is left when contextd stops, is killed, or changes: everything that was committed, and turns that go on elsewhere.
//!
//! Every contextd here is the built program in a process of its own.

use std::time::{Duration, Instant};

use contextd::pb::{self, event::Payload};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, User, geteuid},
};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::{Code, Status, Streaming};
use tonic_health::pb::{HealthCheckResponse, health_check_response::ServingStatus};

use crate::harness::{
    TestDatabase,
    events::{PATIENCE, kind, kinds, messages, next, requested, said},
    process::{Place, Served, health},
    requests::{result, submit, tools, turn},
};

/// A lost process is noticed soon.
const SHORT_LEASE: &str = "[turn]\nlease_ttl = '1s'\npoll_interval = '50ms'\n";
/// A lost process is not noticed while a test runs: what goes on was handed over.
const LONG_LEASE: &str = "[turn]\nlease_ttl = '10m'\npoll_interval = '50ms'\n";

/// Says thirty words, for about a second.
fn slow() -> Value {
    json!({ "steps": [{ "say": [{ "text": WORDS, "delay_ms": 30 }] }] })
}

const WORDS: &str = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen \
                     eighteen nineteen twenty and one and two and three and four";

/// Calls two tools at once, then answers with their results.
fn two_tools() -> Value {
    json!({ "steps": [
        { "when": { "call": 0 }, "say": [
            { "text": "Let me look." }, { "tool_call": { "name": "left" } }, { "tool_call": { "name": "right" } }
        ] },
        { "when": { "has_result_of": ["left", "right"] }, "say": [{ "text": "{{result:left}} {{result:right}}" }] }
    ] })
}

fn asking(model: &str, session: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["left", "right"]), ..turn(session, model, "Go") }
}

/// A host that does not give up: it sends the same request again, behind what it has seen.
struct Host {
    request: pb::ExecuteTurnRequest,
    stream: Option<Streaming<pb::ExecuteTurnResponse>>,
    /// The durable events, each as it came first.
    seen: Vec<pb::Event>,
}

impl Host {
    fn new(request: pb::ExecuteTurnRequest) -> Self {
        Self { request, stream: None, seen: Vec::new() }
    }

    fn session(&self) -> &str {
        &self.request.session_id
    }

    async fn send_to(&mut self, served: &Served) -> Result<(), Status> {
        self.request.after_seq = self.seen.last().map_or(0, |event| event.seq);
        self.stream = Some(served.turns().await.execute_turn(self.request.clone()).await?.into_inner());
        Ok(())
    }

    /// The next event; none at the end.
    async fn next(&mut self) -> Result<Option<pb::Event>, Status> {
        let event = next(self.stream.as_mut().unwrap()).await?;
        if let Some(event) = event.as_ref().filter(|event| event.seq > 0) {
            self.seen.push(pb::Event { replay: false, ..event.clone() });
        }
        Ok(event)
    }

    /// The first event that is wanted.
    async fn until(&mut self, wanted: impl Fn(&Payload) -> bool) -> Payload {
        let found = async {
            loop {
                let event = self.next().await.unwrap().expect("the stream ended too early");
                if let Some(payload) = event.payload.filter(&wanted) {
                    return payload;
                }
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("it never came")
    }

    /// How the stream breaks off.
    async fn cut_off(&mut self) -> Status {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended as if all were well"),
                Err(status) => return status,
            }
        }
    }

    /// Sends the request again, answers every call that waits, and reads to the end of the turn.
    async fn finish_at(&mut self, served: &Served) {
        self.send_to(served).await.unwrap();
        let mut answered = false;
        while let Some(event) = self.next().await.unwrap() {
            let waiting = waiting_calls(&event);
            if !waiting.is_empty() && !answered {
                answered = true;
                self.answer(served, &waiting).await;
            }
        }
    }

    async fn answer(&self, served: &Served, calls: &[String]) -> Vec<pb::AnswerStatus> {
        let results = calls.iter().map(|call| result(call, "fine")).collect();
        let answer = served.turns().await.submit_tool_results(submit(self.session(), results)).await.unwrap();
        answer.into_inner().receipts.iter().map(pb::AnswerReceipt::status).collect()
    }

    /// The whole story is told once, without a gap, and the host has seen all of it.
    async fn check_story(&self, served: &Served) {
        let told = events(served, self.session()).await;
        assert_eq!(kinds(&self.seen), kinds(&told), "{}", self.session());
        assert!(self.seen == told, "not the same events were streamed as are listed");
        let seqs: Vec<i64> = told.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, (1..=i64::try_from(told.len()).unwrap()).collect::<Vec<_>>());
        let ends: Vec<_> = told.iter().filter(|event| is_end(event)).map(|event| event.seq).collect();
        assert_eq!(ends, [told.last().unwrap().seq], "{:?}", kinds(&told));
        let mut asked = requested(&told);
        let mut answered = completed(&told);
        asked.sort();
        answered.sort();
        assert_eq!(asked, answered);
        asked.dedup();
        assert_eq!(asked.len(), answered.len());
        let steps: Vec<_> = messages(&told).iter().map(|message| (message.role, message.step)).collect();
        assert!(steps.is_sorted_by(|a, b| a.1 < b.1 || (a.1 == b.1 && a.0 < b.0)), "a step spoke twice: {steps:?}");
    }
}

fn is_end(event: &pb::Event) -> bool {
    ["turn_completed", "turn_failed", "turn_cancelled"].contains(&kind(event))
}

/// The calls that an event says wait for results.
fn waiting_calls(event: &pb::Event) -> Vec<String> {
    if let Some(Payload::Sync(sync)) = &event.payload {
        return sync.pending_calls.iter().map(|pending| pending.call.as_ref().unwrap().call_id.clone()).collect();
    }
    if let Some(Payload::ActionRequired(action)) = &event.payload {
        return action.result_call_ids.clone();
    }
    Vec::new()
}

fn completed(events: &[pb::Event]) -> Vec<String> {
    let ids = events.iter().filter_map(|event| match &event.payload {
        Some(Payload::ToolCallCompleted(done)) => Some(done.result.as_ref().unwrap().call_id.clone()),
        _ => None,
    });
    ids.collect()
}

/// Why and at which attempt the turn was recovered.
fn recoveries(events: &[pb::Event]) -> Vec<(pb::RecoveryCause, i32)> {
    let recoveries = events.iter().filter_map(|event| match &event.payload {
        Some(Payload::TurnRecovered(recovered)) => Some((recovered.cause(), event.attempt)),
        _ => None,
    });
    recoveries.collect()
}

async fn events(served: &Served, session: &str) -> Vec<pb::Event> {
    let request = pb::ListEventsRequest { session_id: session.to_owned(), page_size: 1000, ..Default::default() };
    let page = served.turns().await.list_events(request).await.unwrap().into_inner();
    assert_eq!(page.next_after_seq, page.last_seq);
    page.events
}

async fn transcript(served: &Served, session: &str) -> Vec<pb::Message> {
    let request = pb::ListMessagesRequest { session_id: session.to_owned(), page_size: 1000, ..Default::default() };
    let page = served.sessions().await.list_messages(request).await.unwrap().into_inner();
    assert_eq!(page.next_page_token, "");
    page.messages
}

/// All that a session tells, byte for byte.
async fn bytes(served: &Served, session: &str) -> Vec<Vec<u8>> {
    let (messages, events) = (transcript(served, session).await, events(served, session).await);
    messages.iter().map(pb::Message::encode_to_vec).chain(events.iter().map(pb::Event::encode_to_vec)).collect()
}

/// A turn with reasoning, text, two tools and an answer.
async fn whole_turn(served: &Served, session: &str) {
    let mut request = turn(session, "scripted/demo", "What is the weather and time in Paris?");
    request.tools = tools(&["get_weather", "get_time"]);
    let mut host = Host::new(request);
    host.finish_at(served).await;
}

async fn becomes(health: &mut Streaming<HealthCheckResponse>, wanted: ServingStatus) {
    let told = async {
        while let Some(answer) = health.message().await.unwrap() {
            if answer.status() == wanted {
                return;
            }
        }
        panic!("health fell silent");
    };
    tokio::time::timeout(PATIENCE, told).await.expect("health never changed");
}

fn kill_9(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

// --- Everything is still there -------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_byte_for_byte_the_same_after_every_kind_of_end() {
    let place = Place::new(SHORT_LEASE);
    let served = place.serve().await;
    whole_turn(&served, "chat").await;
    let written = bytes(&served, "chat").await;
    assert!(written.len() > 10);

    served.stop().await;
    assert_eq!(place.postmaster(), None, "PostgreSQL outlived a clean stop");
    let served = place.serve().await;
    assert!(bytes(&served, "chat").await == written, "after a clean stop");

    served.kill_9().await;
    let served = place.serve().await; // at once, while the orphaned PostgreSQL still stops
    assert!(bytes(&served, "chat").await == written, "after kill -9 of contextd");

    kill_9(place.postmaster().unwrap());
    served.kill_9().await;
    let served = place.serve().await;
    assert!(bytes(&served, "chat").await == written, "after kill -9 of both");

    whole_turn(&served, "chat").await;
    assert!(bytes(&served, "chat").await.starts_with(&written[..4]));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_contextd_whose_postgresql_is_killed_ends_and_says_so() {
    let place = Place::new(SHORT_LEASE);
    let mut served = place.serve().await;
    kill_9(place.postmaster().unwrap());
    assert_eq!(served.ended().await.code(), Some(1));
    assert!(served.said().contains("the embedded PostgreSQL ended unexpectedly"), "{}", served.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn results_go_to_the_contextd_that_is_started_in_place_of_a_killed_one() {
    let place = Place::new(SHORT_LEASE).script("tools", &two_tools());
    let served = place.serve().await;
    let mut host = Host::new(asking("scripted/tools", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::ActionRequired(_))).await;
    let calls = requested(&host.seen);

    served.kill_9().await;
    let served = place.serve().await;
    assert_eq!(host.answer(&served, &calls).await, [pb::AnswerStatus::Accepted; 2]);
    host.finish_at(&served).await;
    host.check_story(&served).await;
    assert_eq!(recoveries(&host.seen), []);
    assert_eq!(said(messages(&host.seen).last().unwrap()), "fine fine");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_user_serves_and_runs_a_turn() {
    if !geteuid().is_root() {
        eprintln!("skipped: not root, so every test here runs as an ordinary user");
        return;
    }
    let Some(nobody) = User::from_name("nobody").unwrap() else {
        eprintln!("skipped: there is no user nobody");
        return;
    };
    let place = Place::new(SHORT_LEASE).owned_by(nobody.uid.as_raw(), nobody.gid.as_raw());
    let served = place.serve().await;
    whole_turn(&served, "chat").await;
    let written = bytes(&served, "chat").await;
    served.kill_9().await;
    let served = place.serve().await;
    assert!(bytes(&served, "chat").await == written);
    served.stop().await;
}

// --- Turns go on elsewhere -----------------------------------------------------------------------------------------

/// Two processes over one database.
async fn pair(place: &Place, database: &TestDatabase) -> (Served, Served) {
    tokio::join!(place.serve_over(database), place.serve_over(database))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_owner_is_killed_in_mid_text_is_finished_by_another() {
    let (database, place) = (TestDatabase::new().await, Place::new(SHORT_LEASE).script("slow", &slow()));
    let (first, second) = pair(&place, &database).await;
    let mut host = Host::new(asking("scripted/slow", "chat"));
    host.send_to(&first).await.unwrap();
    let shown = host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    let Payload::TextDelta(shown) = shown else { unreachable!() };
    first.kill_9().await;
    let killed = Instant::now();
    assert_eq!(host.cut_off().await.code(), Code::Unknown);

    host.send_to(&second).await.unwrap();
    let recovered = host.until(|payload| matches!(payload, Payload::TurnRecovered(_))).await;
    eprintln!("taken over {:?} after the kill", killed.elapsed());
    let Payload::TurnRecovered(recovered) = recovered else { unreachable!() };
    assert_eq!((recovered.voided_message_id, recovered.takeovers), (shown.message_id, 1));
    while host.next().await.unwrap().is_some() {}
    let story = [
        "turn_started",
        "message_committed",
        "step_started",
        "turn_recovered",
        "message_committed",
        "usage_recorded",
        "turn_completed",
    ];
    assert_eq!(kinds(&host.seen), story);
    assert_eq!(recoveries(&host.seen), [(pb::RecoveryCause::LeaseExpired, 2)]);
    assert_eq!(said(messages(&host.seen)[1]), WORDS);
    host.check_story(&second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_owner_is_killed_while_it_waits_for_tools_loses_nothing() {
    let (database, place) = (TestDatabase::new().await, Place::new(SHORT_LEASE).script("tools", &two_tools()));
    let (first, second) = pair(&place, &database).await;
    let mut host = Host::new(asking("scripted/tools", "chat"));
    host.send_to(&first).await.unwrap();
    host.until(|payload| matches!(payload, Payload::ActionRequired(_))).await;
    let calls = requested(&host.seen);
    assert_eq!(host.answer(&first, &calls[..1]).await, [pb::AnswerStatus::Accepted]);
    first.kill_9().await;
    host.cut_off().await;

    let statuses = [pb::AnswerStatus::Duplicate, pb::AnswerStatus::Accepted];
    assert_eq!(host.answer(&second, &calls).await, statuses);
    host.finish_at(&second).await;
    host.check_story(&second).await;
    assert_eq!(recoveries(&host.seen), []);
    assert_eq!(said(messages(&host.seen).last().unwrap()), "fine fine");
    assert_eq!(host.answer(&second, &calls).await, [pb::AnswerStatus::Duplicate; 2]);
}

/// Lets an answer come to the moment of its commit and no further, kills its owner, and gives the process id of the database's
/// side of the commit, which waits for the lock that is returned.
async fn killed_in_mid_commit(
    database: &TestDatabase,
    owner: Served,
    host: &mut Host,
) -> (tokio_postgres::Client, tokio_postgres::Client, i32) {
    const WAITING: &str = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' \
                           and query like '-- store::turn::append%'";
    host.send_to(&owner).await.unwrap();
    host.until(|payload| matches!(payload, Payload::StepStarted(_))).await;
    let (lock, look) = (database.client().await, database.client().await);
    lock.batch_execute("begin; select from session_run for update").await.unwrap();
    let begun = Instant::now();
    let waiting = loop {
        match look.query_opt(WAITING, &[]).await.unwrap() {
            Some(row) => break row.get(0),
            None => assert!(begun.elapsed() < PATIENCE, "the answer is never committed"),
        }
        tokio::task::yield_now().await;
    };
    owner.kill_9().await;
    host.cut_off().await;
    (lock, look, waiting)
}

/// Like [`two_tools`], with time to take a lock before the commit.
fn two_tools_later() -> Value {
    let mut script = two_tools();
    script["steps"][0]["say"].as_array_mut().unwrap().insert(0, json!({ "delay_ms": 300 }));
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_under_way_when_its_owner_is_killed_counts() {
    let (database, place) = (TestDatabase::new().await, Place::new(SHORT_LEASE).script("tools", &two_tools_later()));
    let (first, second) = pair(&place, &database).await;
    let mut host = Host::new(asking("scripted/tools", "chat"));
    let (lock, _look, _) = killed_in_mid_commit(&database, first, &mut host).await;
    lock.batch_execute("rollback").await.unwrap();
    host.finish_at(&second).await;
    host.check_story(&second).await;
    assert_eq!(recoveries(&host.seen), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_lost_with_its_owner_is_made_up_for() {
    let (database, place) = (TestDatabase::new().await, Place::new(SHORT_LEASE).script("tools", &two_tools_later()));
    let (first, second) = pair(&place, &database).await;
    let mut host = Host::new(asking("scripted/tools", "chat"));
    let (lock, look, waiting) = killed_in_mid_commit(&database, first, &mut host).await;
    look.execute("select pg_terminate_backend($1, 5000)", &[&waiting]).await.unwrap();
    lock.batch_execute("rollback").await.unwrap();
    host.finish_at(&second).await;
    host.check_story(&second).await;
    assert_eq!(recoveries(&host.seen), [(pb::RecoveryCause::LeaseExpired, 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_whose_owner_is_killed_at_any_moment_around_their_commits_are_finished_by_another() {
    const TURNS: u32 = 8;
    let mut place = Place::new(SHORT_LEASE);
    for number in 0..TURNS {
        // Commits 3 ms apart; every other turn has tools.
        let mut script = if number % 2 == 0 { two_tools() } else { slow() };
        let first = [json!({ "text": "Hm." }), json!({ "delay_ms": 60 + 3 * number }), json!({ "text": "Well." })];
        script["steps"][0]["say"].as_array_mut().unwrap().splice(0..1, first);
        place = place.script(&format!("later-{number}"), &script);
    }
    let database = TestDatabase::new().await;
    let second = place.serve_over(&database).await;
    for (round, moment) in [50, 60, 70, 80, 90].into_iter().enumerate() {
        let first = place.serve_over(&database).await;
        let mut hosts: Vec<Host> = (0..TURNS)
            .map(|number| Host::new(asking(&format!("scripted/later-{number}"), &format!("chat-{round}-{number}"))))
            .collect();
        for host in &mut hosts {
            host.send_to(&first).await.unwrap();
        }
        hosts[0].until(|payload| matches!(payload, Payload::TextDelta(_))).await;
        tokio::time::sleep(Duration::from_millis(moment)).await; // the moment is what is tried out
        first.kill_9().await;
        let mut lost = 0;
        for host in &mut hosts {
            while host.next().await.is_ok_and(|event| event.is_some()) {}
            host.finish_at(&second).await;
            host.check_story(&second).await;
            let recoveries = recoveries(&host.seen);
            assert!(recoveries.is_empty() || recoveries == [(pb::RecoveryCause::LeaseExpired, 2)], "{recoveries:?}");
            lost += recoveries.len();
        }
        eprintln!("killed after {moment} ms: {lost} of {TURNS} turns lost a step");
    }
}

// --- Stopping ------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_outlasts_the_drain_is_handed_over_and_goes_on_at_once() {
    let settings = format!("{LONG_LEASE}[server]\ndrain_timeout = '100ms'\n");
    let (database, place) = (TestDatabase::new().await, Place::new(&settings).script("slow", &slow()));
    let (mut first, second) = pair(&place, &database).await;
    let mut health = first.health().await;
    becomes(&mut health, ServingStatus::Serving).await;
    let mut host = Host::new(asking("scripted/slow", "chat"));
    host.send_to(&first).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;

    first.terminate();
    let stopping = Instant::now();
    becomes(&mut health, ServingStatus::NotServing).await;
    assert_eq!(host.cut_off().await.code(), Code::Unavailable);
    host.send_to(&second).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TurnRecovered(_))).await;
    eprintln!("handed over {:?} after the signal, of which 100 ms is the drain", stopping.elapsed());
    while host.next().await.unwrap().is_some() {}
    let status = first.ended().await;
    assert_eq!(status.code(), Some(0), "{status}: {}", first.said());
    host.check_story(&second).await;
    assert_eq!(recoveries(&host.seen), [(pb::RecoveryCause::HandedOver, 2)]);
    assert_eq!(said(messages(&host.seen)[1]), WORDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_ends_within_the_drain_is_finished_where_it_runs() {
    let (database, place) = (TestDatabase::new().await, Place::new(LONG_LEASE).script("slow", &slow()));
    let (mut first, second) = pair(&place, &database).await;
    let mut host = Host::new(asking("scripted/slow", "chat"));
    host.send_to(&first).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    first.terminate();
    let status = first.ended().await;
    assert_eq!(status.code(), Some(0), "{status}: {}", first.said());
    assert_eq!(host.cut_off().await.code(), Code::Unavailable);
    host.finish_at(&second).await;
    host.check_story(&second).await;
    assert_eq!(recoveries(&host.seen), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_stops_at_once() {
    let stall = json!({ "steps": [{ "say": [{ "text": "Hm." }, { "stall": true }] }] });
    let settings = format!("{SHORT_LEASE}[server]\ndrain_timeout = '1h'\n");
    let place = Place::new(&settings).script("stall", &stall);
    let mut served = place.serve().await;
    let mut health = served.health().await;
    becomes(&mut health, ServingStatus::Serving).await;
    let mut host = Host::new(asking("scripted/stall", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    served.terminate();
    becomes(&mut health, ServingStatus::NotServing).await;
    served.terminate();
    let second = Instant::now();
    assert_eq!(served.ended().await.code(), Some(128 + Signal::SIGTERM as i32), "{}", served.said());
    eprintln!("ended {:?} after the second signal", second.elapsed());
    let _again = place.serve().await;
}

// --- Schema and health ---------------------------------------------------------------------------------------------

async fn refusal(place: &Place, database: &TestDatabase) -> String {
    let output = place.run_over(database, "serve").await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(1), Vec::new()), "{stderr}");
    stderr
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_database_is_served_once_it_was_migrated() {
    let (database, place) = (TestDatabase::empty().await, Place::new(SHORT_LEASE));
    let refused = refusal(&place, &database).await;
    assert!(refused.contains("`contextd migrate`"), "{refused}");
    for _ in 0..2 {
        let output = place.run_over(&database, "migrate").await;
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let served = place.serve_over(&database).await;
    whole_turn(&served, "chat").await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_of_a_newer_contextd_is_refused() {
    let (database, place) = (TestDatabase::new().await, Place::new(SHORT_LEASE));
    let newer = "insert into refinery_schema_history (version, name, applied_on, checksum) \
                 values (999, 'newer', '2026-01-01T00:00:00Z', '1')";
    database.client().await.batch_execute(newer).await.unwrap();
    let refused = refusal(&place, &database).await;
    assert!(refused.contains("migration 999, which this version of contextd does not know"), "{refused}");
    let output = place.run_over(&database, "migrate").await;
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_0_while_it_serves_and_1_when_it_is_gone() {
    let (database, place) = (TestDatabase::new().await, Place::new(SHORT_LEASE));
    let served = place.serve_over(&database).await;
    becomes(&mut served.health().await, ServingStatus::Serving).await;
    let address = served.address;
    assert_eq!(health(address).await, (Some(0), "SERVING\n".to_owned()));
    served.stop().await;
    assert_eq!(health(address).await, (Some(1), String::new()));
}
