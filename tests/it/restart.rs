//! The state after contextd stops, is killed, or is upgraded: everything that was committed is preserved, and turns
//! continue on other replicas.
//!
//! Every contextd here is the built program in a separate process.

use std::time::{Duration, Instant};

use contextd::pb::{self, event::Payload};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, User, geteuid},
};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_types::StatusExt as _;

use crate::harness::{
    TestDatabase,
    cluster::Cluster,
    events::{TEST_TIMEOUT, kinds, message_text, messages, requested},
    process::{Place, Served, health, health_output},
    requests::{tools, turn},
    survivor::{LONG_LEASE, SHORT_LEASE, Survivor, WORDS, asking, becomes, events, pair, recoveries, slow, two_tools},
};

/// A lease that is longer than a test needs to acquire a lock.
const LATER_LEASE: &str = "[turn]\nlease_ttl = '3s'\npoll_interval = '50ms'\n";

async fn transcript(served: &Served, session: &str) -> Vec<pb::Message> {
    let request = pb::ListMessagesRequest { session_id: session.to_owned(), page_size: 1000, ..Default::default() };
    let page = served.sessions().await.list_messages(request).await.unwrap().into_inner();
    assert_eq!(page.next_page_token, "");
    page.messages
}

/// The encoded messages and events of a session.
async fn bytes(served: &Served, session: &str) -> Vec<Vec<u8>> {
    let messages = transcript(served, session).await;
    let events = events(served, session).await;
    messages.iter().map(pb::Message::encode_to_vec).chain(events.iter().map(pb::Event::encode_to_vec)).collect()
}

/// Runs a turn with reasoning, text, two tools and a response.
async fn whole_turn(served: &Served, session: &str) {
    let mut request = turn(session, "scripted/demo", "What is the weather and time in Paris?");
    request.tools = tools(&["get_weather", "get_time"]);
    let mut host = Survivor::new(request);
    // The future contains the state of a whole turn.
    Box::pin(host.finish_at(served)).await;
}

fn kill_9(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

// --- State after a shutdown
// -------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_byte_for_byte_the_same_after_every_kind_of_shutdown() {
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
    let served = place.serve().await; // immediately, while the orphaned PostgreSQL is still stopping
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
    assert_eq!(served.ended().await.code(), Some(1), "{}", served.log_text());
    assert!(served.log_text().contains("the embedded PostgreSQL ended unexpectedly"), "{}", served.log_text());
}

#[tokio::test(flavor = "multi_thread")]
async fn results_can_be_submitted_to_the_replacement_of_a_killed_server() {
    let place = Place::new(SHORT_LEASE).script("tools", &two_tools());
    let served = place.serve().await;
    let mut host = Survivor::new(asking("scripted/tools", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::ActionRequired(_))).await;
    let calls = requested(&host.seen);

    served.kill_9().await;
    let served = place.serve().await;
    assert_eq!(host.answer(&served, &calls).await, [pb::AnswerStatus::Accepted; 2]);
    host.finish_at(&served).await;
    host.check_story(&served).await;
    assert_eq!(recoveries(&host.seen), []);
    assert_eq!(message_text(messages(&host.seen).last().unwrap()), "fine fine");
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

// --- Turns continue on other replicas
// -----------------------------------------------------------------------------------------

/// Row F1
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_owner_is_killed_mid_stream_is_finished_by_another() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE).script("slow", &slow());
    let (first, second) = pair(&place, &database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
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
    assert_eq!(message_text(messages(&host.seen)[1]), WORDS);
    host.check_story(&second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_owner_is_killed_while_it_waits_for_tools_loses_nothing() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE).script("tools", &two_tools());
    let (first, second) = pair(&place, &database).await;
    let mut host = Survivor::new(asking("scripted/tools", "chat"));
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
    assert_eq!(message_text(messages(&host.seen).last().unwrap()), "fine fine");
    assert_eq!(host.answer(&second, &calls).await, [pb::AnswerStatus::Duplicate; 2]);
}

/// Blocks a response in its commit and kills its owner. Returns the connection that holds the lock, a connection to
/// inspect the database, and the process id of the backend that waits in the commit.
async fn killed_in_mid_commit(
    database: &TestDatabase,
    owner: Served,
    host: &mut Survivor,
) -> (tokio_postgres::Client, tokio_postgres::Client, i32) {
    const WAITING: &str = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' \
                           and query like '-- store::commit::commit%'";
    const AT_COMMIT: &str = "
        create function wait_at_commit() returns trigger language plpgsql
            as 'begin perform pg_advisory_xact_lock_shared(7); return null; end';
        create constraint trigger wait_at_commit after update on session_run deferrable initially deferred
            for each row execute function wait_at_commit()";
    host.send_to(&owner).await.unwrap();
    host.until(|payload| matches!(payload, Payload::StepStarted(_))).await;
    let lock = database.client().await;
    let look = database.client().await;
    lock.batch_execute(AT_COMMIT).await.unwrap();
    lock.batch_execute("begin; select pg_advisory_xact_lock(7)").await.unwrap();
    let begun = Instant::now();
    let waiting = loop {
        match look.query_opt(WAITING, &[]).await.unwrap() {
            Some(row) => break row.get(0),
            None => assert!(begun.elapsed() < TEST_TIMEOUT, "the answer is never committed"),
        }
        tokio::task::yield_now().await;
    };
    owner.kill_9().await;
    host.cut_off().await;
    (lock, look, waiting)
}

/// Like [`two_tools`], with time to acquire a lock before the commit.
fn two_tools_later() -> Value {
    let mut script = two_tools();
    script["steps"][0]["say"].as_array_mut().unwrap().insert(0, json!({ "delay_ms": 300 }));
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_under_way_when_its_owner_is_killed_counts() {
    let database = TestDatabase::new().await;
    let place = Place::new(LATER_LEASE).script("tools", &two_tools_later());
    let (first, second) = pair(&place, &database).await;
    let mut host = Survivor::new(asking("scripted/tools", "chat"));
    let (lock, _look, _) = killed_in_mid_commit(&database, first, &mut host).await;
    lock.batch_execute("rollback").await.unwrap();
    host.finish_at(&second).await;
    host.check_story(&second).await;
    assert_eq!(recoveries(&host.seen), []);
}

/// Row F2
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_lost_with_its_owner_is_repeated_by_the_next() {
    let database = TestDatabase::new().await;
    let place = Place::new(LATER_LEASE).script("tools", &two_tools_later());
    let (first, second) = pair(&place, &database).await;
    let mut host = Survivor::new(asking("scripted/tools", "chat"));
    let (lock, look, waiting) = killed_in_mid_commit(&database, first, &mut host).await;
    look.execute("select pg_terminate_backend($1, 5000)", &[&waiting]).await.unwrap();
    lock.batch_execute("rollback").await.unwrap();
    host.finish_at(&second).await;
    host.check_story(&second).await;
    assert_eq!(recoveries(&host.seen), [(pb::RecoveryCause::LeaseExpired, 2)]);
}

/// Rows F1, F2
#[tokio::test(flavor = "multi_thread")]
async fn turns_whose_owner_is_killed_at_any_moment_around_their_commits_are_finished_by_another() {
    const TURNS: u32 = 8;
    let mut place = Place::new(SHORT_LEASE);
    for number in 0..TURNS {
        // Commits 3 ms apart. Every other turn has tools.
        let mut script = if number % 2 == 0 { two_tools() } else { slow() };
        let first = [json!({ "text": "Hm." }), json!({ "delay_ms": 60 + 3 * number }), json!({ "text": "Well." })];
        script["steps"][0]["say"].as_array_mut().unwrap().splice(0..1, first);
        place = place.script(&format!("later-{number}"), &script);
    }
    let database = TestDatabase::new().await;
    let second = place.serve_over(&database).await;
    for (round, moment) in [50, 60, 70, 80, 90].into_iter().enumerate() {
        let first = place.serve_over(&database).await;
        let mut hosts: Vec<Survivor> = (0..TURNS)
            .map(|number| Survivor::new(asking(&format!("scripted/later-{number}"), &format!("chat-{round}-{number}"))))
            .collect();
        for host in &mut hosts {
            host.send_to(&first).await.unwrap();
        }
        // Does not wait for a delta: a reader that joins late gets the whole message instead.
        hosts[0].until(|payload| matches!(payload, Payload::StepStarted(_))).await;
        tokio::time::sleep(Duration::from_millis(moment)).await; // the time of the kill is what varies
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

// --- Stopping
// ------------------------------------------------------------------------------------------------------

/// Row F27
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_longer_than_the_drain_is_handed_over_and_continues_at_once() {
    let settings = format!("{LONG_LEASE}[server]\ndrain_timeout = '100ms'\n");
    let database = TestDatabase::new().await;
    let place = Place::new(&settings).script("slow", &slow());
    let (mut first, second) = pair(&place, &database).await;
    let mut health = first.health().await;
    becomes(&mut health, ServingStatus::Serving).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
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
    assert_eq!(status.code(), Some(0), "{status}: {}", first.log_text());
    host.check_story(&second).await;
    assert_eq!(recoveries(&host.seen), [(pb::RecoveryCause::HandedOver, 2)]);
    assert_eq!(message_text(messages(&host.seen)[1]), WORDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_ends_within_the_drain_is_finished_where_it_runs() {
    let database = TestDatabase::new().await;
    let place = Place::new(LONG_LEASE).script("slow", &slow());
    let (mut first, second) = pair(&place, &database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&first).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    first.terminate();
    let status = first.ended().await;
    assert_eq!(status.code(), Some(0), "{status}: {}", first.log_text());
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
    let mut host = Survivor::new(asking("scripted/stall", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    served.terminate();
    becomes(&mut health, ServingStatus::NotServing).await;
    served.terminate();
    let second = Instant::now();
    assert_eq!(served.ended().await.code(), Some(128 + Signal::SIGTERM as i32), "{}", served.log_text());
    eprintln!("ended {:?} after the second signal", second.elapsed());
    let _again = place.serve().await;
}

// --- Schema and health
// ---------------------------------------------------------------------------------------------

async fn refusal(place: &Place, database: &TestDatabase) -> String {
    let output = place.run_over(database, "serve").await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(1), Vec::new()), "{stderr}");
    stderr
}

/// A server that accepts no requests: it reports why to every caller, and is live.
async fn check_unready(served: &Served, reason: &str, words: &str) {
    served.wait_for_log(&format!("not ready: {words}")).await;
    becomes(&mut served.health().await, ServingStatus::NotServing).await;
    becomes(&mut served.watch_health("liveness").await, ServingStatus::Serving).await;
    let refused = served.turns().await.execute_turn(turn("early", "scripted/demo", "Go")).await.unwrap_err();
    let details = refused.get_error_details();
    assert_eq!((refused.code(), details.error_info().unwrap().reason.as_str()), (Code::Unavailable, reason));
    assert!(details.retry_info().is_some() && refused.message().contains(words), "{refused:?}");
    let asked = health_output(served.address).await;
    assert_eq!((asked.status.code(), asked.stdout.as_slice()), (Some(1), "NOT_SERVING\n".as_bytes()));
    let told = String::from_utf8(asked.stderr).unwrap();
    assert!(told.contains(words), "{told}");
}

/// Row F35: replicas that start before the migration.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_before_its_migration_waits_for_it_and_says_so() {
    let database = TestDatabase::empty().await;
    let place = Place::new(SHORT_LEASE);
    let served = place.serve_unready_over(&database).await;
    check_unready(&served, "SCHEMA_OUTDATED", "the database lacks migration 1").await;
    let mut ready = served.health().await;
    for _ in 0..2 {
        let output = place.run_over(&database, "migrate").await;
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    becomes(&mut ready, ServingStatus::Serving).await;
    whole_turn(&served, "chat").await;
    served.stop().await;
}

/// Row F5: a replica that starts while the database is unavailable.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_before_its_database_waits_for_it_and_says_so() {
    let mut cluster = Cluster::start(&[]).await;
    let place = Place::new(SHORT_LEASE);
    let database = cluster.database();
    cluster.end(Signal::SIGINT).await;
    let waiting = place.serve_unready_over(&database).await;
    let stopped = place.serve_unready_over(&database).await;
    check_unready(&waiting, "DATABASE_UNAVAILABLE", "the database cannot be reached").await;
    stopped.stop().await;
    let mut ready = waiting.health().await;
    cluster.restart().await;
    becomes(&mut ready, ServingStatus::Serving).await;
    whole_turn(&waiting, "chat").await;
    waiting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_database_is_reported_at_once() {
    let mut database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE);
    database.config.dbname("missing");
    let refused = refusal(&place, &database).await;
    assert!(refused.contains("database \"missing\" does not exist"), "{refused}");
}

/// Records a migration that this program does not have.
async fn newer_migration(database: &TestDatabase, oldest_program: &str) {
    let newer = format!(
        "insert into refinery_schema_history (version, name, applied_on, checksum, oldest_program) \
         values (999, 'newer', '2026-01-01T00:00:00Z', '1', {oldest_program})"
    );
    database.client().await.batch_execute(&newer).await.unwrap();
}

/// Row F35: a restart and a roll-back after the migration.
#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_that_allows_for_this_program_is_served_and_left_as_it_is() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE);
    newer_migration(&database, "1").await;
    let served = place.serve_over(&database).await;
    whole_turn(&served, "chat").await;
    served.stop().await;
    let output = place.run_over(&database, "migrate").await;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Row F35: the schema requires a newer program.
#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_that_does_not_allow_for_this_program_is_refused() {
    for (oldest_program, words) in [
        ("999", "migration 999, which requires a contextd with migration 999 or later"),
        ("null", "migration 999, which this version of contextd does not know"),
    ] {
        let database = TestDatabase::new().await;
        let place = Place::new(SHORT_LEASE);
        newer_migration(&database, oldest_program).await;
        let refused = refusal(&place, &database).await;
        assert!(refused.contains(words), "{refused}");
        let output = place.run_over(&database, "migrate").await;
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_0_while_it_serves_and_1_when_it_is_gone() {
    let database = TestDatabase::new().await;
    let place = Place::new(SHORT_LEASE);
    let served = place.serve_over(&database).await;
    becomes(&mut served.health().await, ServingStatus::Serving).await;
    let address = served.address;
    assert_eq!(health(address).await, (Some(0), "SERVING\n".to_owned()));
    served.stop().await;
    assert_eq!(health(address).await, (Some(1), String::new()));
}
