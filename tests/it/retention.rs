//! Retention: what is removed when its retention period is over, what is kept, and what readers are notified of. Tests
//! advance time by ageing all stored timestamps.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use contextd::{config::RetentionConfig, pb};
use serde_json::json;
use tokio_postgres::Client;
use tonic::Code;

use crate::harness::{
    Host, Options, TestDatabase, as_worker,
    errors::refusal,
    events::{all, completed, turn_id},
    host::{MODEL, call, finish},
    requests::{enqueue, result, text, tools, turn},
};

mod answers;
mod tool_sets;

const HOUR: Duration = Duration::from_hours(1);

/// A model that responds immediately, or first calls a tool if it has one.
fn options(retention: RetentionConfig) -> Options {
    let script = json!({"steps": [
        {"when": {"user_contains": "look", "call": 0}, "say": [call("look"), finish("tool_calls")]},
        {"when": {"user_contains": "slowly"}, "say": [{"text": "Wait."}, {"wait_for": "go"}, {"text": " Done."}]},
        {"say": [{"text": "Fine."}]},
    ]});
    Options { retention, ..Options::default().script("it", script.to_string()) }
}

/// A retention that keeps everything, as a base for tests.
fn for_ever() -> RetentionConfig {
    let ever = 10_000 * 24 * HOUR;
    RetentionConfig {
        request_ids: ever,
        queue: ever,
        events: None,
        sessions: None,
        tool_sets: ever,
        interval: ever,
        batch_rows: 7,
    }
}

/// Subtracts this duration from all stored timestamps. Events of live turns are not changed, because a stream would
/// treat an event with another time as a different event.
async fn age(client: &Client, by: Duration) {
    let columns = "select table_name::text, string_agg(format('%1$I = %1$I - interval ''%2$s seconds''', column_name, $1::text), ', ')
                     from information_schema.columns
                    where table_schema = 'public' and data_type = 'timestamp with time zone' and is_generated = 'NEVER'
                    group by 1";
    for row in client.query(columns, &[&by.as_secs().to_string()]).await.unwrap() {
        let (table, mut set): (String, String) = (row.get(0), row.get(1));
        if table == "session_run" {
            set += ", version = version + 1"; // invalidates cached sessions
        }
        let of = match table.as_str() {
            "events" => {
                "where not exists (select from turns t where t.tenant_id = x.tenant_id and t.session_id = x.session_id
                                                         and t.turn_id = x.turn_id and t.state = 1)"
            }
            _ => "",
        };
        client.batch_execute(&format!("update {table} x set {set} {of}")).await.unwrap();
    }
}

async fn count(client: &Client, table: &str, session: &str) -> i64 {
    let sql = format!("select count(*) from {table} where session_id = $1");
    client.query_one(&sql, &[&session]).await.unwrap().get(0)
}

async fn exists(host: &Host, session: &str) -> bool {
    let request = pb::GetSessionRequest { session_id: session.to_owned() };
    match host.sessions().get_session(request).await {
        Ok(_) => true,
        Err(status) => {
            assert_eq!(refusal(&status).reason, "SESSION_NOT_FOUND");
            false
        }
    }
}

async fn create(host: &Host, session: pb::Session, request_id: &str) -> pb::Session {
    let request = pb::CreateSessionRequest { session: Some(session), request_id: request_id.to_owned() };
    host.sessions().create_session(request).await.unwrap().into_inner().session.unwrap()
}

fn named(session: &str) -> pb::Session {
    pb::Session { session_id: session.to_owned(), model: MODEL.to_owned(), ..pb::Session::default() }
}

fn with_ttl(session: &str, ttl: Duration) -> pb::Session {
    let ttl = prost_types::Duration { seconds: ttl.as_secs().cast_signed(), nanos: 0 };
    pb::Session { ttl: Some(ttl), ..named(session) }
}

async fn delete(host: &Host, session: &str, request_id: &str) -> Result<(), tonic::Status> {
    let session_id = session.to_owned();
    let request_id = request_id.to_owned();
    let request = pb::DeleteSessionRequest { session_id, request_id, ..pb::DeleteSessionRequest::default() };
    host.sessions().delete_session(request).await.map(drop)
}

async fn list(host: &Host, session: &str, turn: &str, after_seq: i64) -> Result<pb::ListEventsResponse, tonic::Status> {
    let session_id = session.to_owned();
    let turn_id = turn.to_owned();
    let request = pb::ListEventsRequest { session_id, turn_id, after_seq, page_size: 1_000 };
    host.turns().list_events(request).await.map(tonic::Response::into_inner)
}

/// The oldest seq in a refusal.
fn oldest(status: &tonic::Status) -> i64 {
    let refused = refusal(status);
    assert_eq!((status.code(), refused.reason.as_str()), (Code::OutOfRange, "EVENTS_EXPIRED"), "{status:?}");
    refused.metadata["oldest_seq"].parse().unwrap()
}

// --- A day of traffic
// ----------------------------------------------------------------------------------------------

/// Retention periods in hours, scaled to a day.
fn of_a_day() -> RetentionConfig {
    RetentionConfig {
        request_ids: 6 * HOUR,
        queue: 6 * HOUR,
        events: Some(3 * HOUR),
        sessions: Some(8 * HOUR),
        tool_sets: HOUR,
        ..for_ever()
    }
}

/// An hour of traffic: a session that is used all day, one that is used only in this hour, one with a time to live, and
/// one that is deleted.
async fn an_hour(host: &Host, hour: u32) {
    let looks = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("steady", MODEL, "Please look.") };
    let answer = |call: &pb::ToolCall| result(&call.call_id, "Nothing.");
    host.run_with(looks, answer).await;
    let queued = host.enqueue(enqueue("steady", "Never mind.")).await.queued_message.unwrap();
    host.cancel_queued("steady", &queued.queued_message_id).await;
    let once = format!("once-{hour}");
    let asks = pb::ExecuteTurnRequest { tools: tools(&[&format!("tool-{hour}")]), ..turn(&once, MODEL, "Hello.") };
    all(&mut host.turns().execute_turn(asks).await.unwrap().into_inner()).await;
    let brief =
        pb::Session { tools: tools(&[&format!("brief-{hour}")]), ..with_ttl(&format!("brief-{hour}"), 2 * HOUR) };
    let brief = create(host, brief, &format!("create-{hour}")).await;
    host.ask(&brief.session_id, "Hello.").await;
    let gone = create(host, named(&format!("gone-{hour}")), "").await;
    delete(host, &gone.session_id, &format!("delete-{hour}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_stop_growing_once_retention_applies() {
    let host = Host::with(options(of_a_day())).await;
    let client = host.database.client().await;
    let mut sizes: Vec<BTreeMap<String, i64>> = Vec::new();
    for hour in 0..24 {
        an_hour(&host, hour).await;
        age(&client, HOUR).await;
        as_worker(host.replica.engine.sessions.retain()).await.unwrap();
        age(&client, Duration::from_mins(1)).await; // the readers of a deleted session have ended
        as_worker(host.replica.engine.sessions.purge()).await.unwrap();
        sizes.push(host.database.row_counts().await.into_iter().collect());
    }
    let names: Vec<&String> = sizes[0].keys().collect();
    println!("{:<20}{:>8}{:>8}{:>8}{:>8}", "rows after hours", 6, 12, 18, 24);
    for name in &names {
        let at = |hour: usize| sizes[hour - 1][*name];
        println!("{name:<20}{:>8}{:>8}{:>8}{:>8}", at(6), at(12), at(18), at(24));
    }
    // The rows of the one session that is used all day grow with its transcript, by one small event per turn; they are
    // counted below. There is one calibration ratio per model, written during the first day.
    let grows = ["messages", "parts", "turns", "events", "tool_calls", "tenant_calibration"];
    for name in names.iter().filter(|name| !grows.contains(&name.as_str())) {
        let before = &sizes[9..17];
        let after = &sizes[17..];
        let most = |sizes: &[BTreeMap<String, i64>]| sizes.iter().map(|it| it[*name]).max().unwrap();
        assert!(most(after) <= most(before), "{name} grows: {} rows, then {}", most(before), most(after));
    }
    let per_turn = [("messages", 4), ("parts", 4), ("tool_calls", 1), ("turns", 1), ("events", 1)];
    for (table, per_turn) in per_turn {
        let of_one = format!("select count(*) from {table} where session_id <> 'steady'");
        let others: i64 = client.query_one(&of_one, &[]).await.unwrap().get(0);
        assert!(others <= 80, "{others} rows of sessions that come and go stay in {table}");
        let young = if table == "events" { 4 * 15 } else { 0 };
        let steady = count(&client, table, "steady").await;
        assert!(steady <= 24 * per_turn + young, "{steady} rows of the steady session stay in {table}");
    }
}

// --- Growth
// --------------------------------------------------------------------------------------------------------

/// Number of turns over which growth is measured.
const MEASURED: i64 = 200;

/// The growth of each table in [`MEASURED`] turns: rows, and bytes including indexes.
async fn growth(options: Options, ask: &str) -> BTreeMap<String, [i64; 2]> {
    let host = Host::with(options).await;
    let client = host.database.client().await;
    let run = async || {
        let asked = turn("chat", MODEL, ask);
        let answer = |call: &pb::ToolCall| result(&call.call_id, &"x".repeat(1_000));
        host.run_with(pb::ExecuteTurnRequest { tools: tools(&["look"]), ..asked }, answer).await;
    };
    let sizes = async || -> BTreeMap<String, [i64; 2]> {
        client.batch_execute("vacuum full").await.unwrap();
        let all = "select c.relname::text, pg_total_relation_size(c.oid) from pg_class c
                    where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'";
        let bytes: BTreeMap<String, i64> =
            client.query(all, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect();
        host.database
            .row_counts()
            .await
            .into_iter()
            .map(|(table, rows)| (table.clone(), [rows, bytes[&table]]))
            .collect()
    };
    run().await;
    let before = sizes().await;
    for _ in 0..MEASURED {
        run().await;
    }
    let mut after = sizes().await;
    after.iter_mut().for_each(|(table, [rows, bytes])| {
        *rows -= before[table][0];
        *bytes -= before[table][1];
    });
    // Chunks are removed with the commit of their message, and there is one ratio per model.
    after.retain(|table, [rows, _]| *rows > 0 && !["partial_chunks", "tenant_calibration"].contains(&table.as_str()));
    after
}

/// What a turn adds, as documented in docs/operations.md.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_adds_as_many_rows_as_documented() {
    let manual = include_str!("../../docs/operations.md");
    let cell = |table: &str, column: usize| -> Option<i64> {
        let row = manual
            .lines()
            .skip_while(|line| *line != "## Growth")
            .find(|line| line.starts_with(&format!("| `{table}` |")))?;
        row.split('|').nth(column)?.trim().parse().ok()
    };
    let measured = [growth(options(for_ever()), "Hello.").await, growth(options(for_ever()), "look").await];
    for (column, grown) in measured.into_iter().enumerate() {
        let bytes: i64 = grown.values().map(|[_, bytes]| bytes).sum();
        println!("a turn adds {} bytes; {MEASURED} turns add rows and bytes: {grown:?}", bytes / MEASURED);
        for (table, [rows, _]) in grown {
            assert_eq!(cell(&table, column + 2).map(|rows| rows * MEASURED), Some(rows), "{table}, column {column}");
        }
    }
}

// --- Events
// --------------------------------------------------------------------------------------------------------

fn events_for(kept: Duration) -> RetentionConfig {
    RetentionConfig { events: Some(kept), ..for_ever() }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_removed_events_get_the_oldest_kept_seq() {
    let host = Host::with(options(events_for(HOUR))).await;
    let client = host.database.client().await;
    let asks = turn("chat", MODEL, "Hello.");
    let old = host.run(asks.clone()).await;
    let old_turn = turn_id(&old);
    let before = host.messages("chat").await.len();
    age(&client, 2 * HOUR).await;
    let last = host.session("chat").await.last_seq;
    let ended = host.turn("chat", &old_turn).await;
    host.ask("chat", "And now?").await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();

    assert_eq!(oldest(&list(&host, "chat", "", 0).await.unwrap_err()), last + 1);
    assert_eq!(oldest(&list(&host, "chat", "", last - 1).await.unwrap_err()), last + 1);
    assert_eq!(oldest(&list(&host, "chat", &old_turn, 0).await.unwrap_err()), last + 1);
    let watch = pb::WatchEventsRequest { session_id: "chat".to_owned(), ..pb::WatchEventsRequest::default() };
    assert_eq!(oldest(&host.turns().watch_events(watch).await.unwrap_err()), last + 1);
    assert_eq!(oldest(&host.turns().execute_turn(asks.clone()).await.unwrap_err()), last + 1, "a repeated request");

    let kept = list(&host, "chat", "", last).await.unwrap();
    assert_eq!(kept.events[0].seq, last + 1);
    let newer = kept.events[0].turn_id.clone();
    assert_eq!(list(&host, "chat", &newer, 0).await.unwrap().events, kept.events, "a turn whose events are there");
    let mut watched = host.watch("chat", &newer, 0).await;
    completed(&all(&mut watched).await);
    assert_eq!(host.turn("chat", &old_turn).await, ended, "the turn stays");
    assert_eq!(host.messages("chat").await.len(), before + 2, "and its messages");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_overtaken_by_retention_gets_an_error() {
    let host = Host::with(options(events_for(HOUR))).await;
    host.ask("chat", "Hello.").await;
    let key = contextd::model::SessionKey::new(
        contextd::model::TenantId::new("default"),
        contextd::model::SessionId::new("chat"),
    );
    let last = host.session("chat").await.last_seq;
    age(&host.database.client().await, 2 * HOUR).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    // What a stream reads next after its cursor was checked.
    let most =
        contextd::store::event_page::EventPageLimits { events: 32, bytes: 1 << 20, overhead: 0, at_least_one: true };
    let read = host.replica.engine.store().follow(&key, contextd::model::Seq(1), most).await;
    let Err(contextd::store::Error::EventsExpired { oldest }) = read else { panic!("{read:?}") };
    assert_eq!(oldest.0, last + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_live_turn_stay_however_old_they_are() {
    let host = Host::with(options(events_for(HOUR))).await;
    let client = host.database.client().await;
    host.ask("chat", "Hello.").await;
    let last = host.session("chat").await.last_seq;
    let asks = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("chat", MODEL, "look") };
    let mut stream = host.execute(asks).await;
    let (seen, [calls, _]) = crate::harness::events::until_action(&mut stream).await;
    let live: Vec<i64> = crate::harness::events::seqs(&seen);
    // A stream treats an event with another time than the one it has sent as a different event.
    drop(stream);
    let old =
        "update events set at = at - interval '1 day'; update sessions set created_at = created_at - interval '1 day'";
    client.batch_execute(old).await.unwrap();
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert_eq!(oldest(&list(&host, "chat", "", 0).await.unwrap_err()), last + 1);
    let kept: Vec<i64> = list(&host, "chat", "", last).await.unwrap().events.iter().map(|event| event.seq).collect();
    assert_eq!(kept, live);
    let mut stream = host.watch("chat", &seen[0].turn_id, last).await;
    host.submit("chat", vec![result(&calls[0], "Seen.")]).await;
    completed(&all(&mut stream).await);
    // After the turn has ended, its events are removed by the next sweep.
    age(&client, 2 * HOUR).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    let end = host.session("chat").await.last_seq;
    assert_eq!(oldest(&list(&host, "chat", "", last).await.unwrap_err()), end + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_of_removed_events_are_still_served() {
    let host = Host::with(options(events_for(HOUR))).await;
    let client = host.database.client().await;
    host.ask("chat", "Hello.").await;
    let seq = host.session("chat").await.last_seq;
    let limits = pb::TurnLimits { max_steps: 7, ..pb::TurnLimits::default() };
    let session = pb::Session { limits: Some(limits), ..named("chat") };
    let update = pb::UpdateSessionRequest { session: Some(session), ..pb::UpdateSessionRequest::default() };
    host.sessions().update_session(update).await.unwrap();
    let asked = host.ask("chat", "With limits.").await;
    let key = contextd::model::SessionKey::new(
        contextd::model::TenantId::new("default"),
        contextd::model::SessionId::new("chat"),
    );
    let store = host.replica.engine.store();
    age(&client, 2 * HOUR).await;
    let first = host.turn("chat", &turn_id(&host.events("chat", "", 0, 100).await)).await;
    let second = host.turn("chat", &turn_id(&asked)).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert!(count(&client, "events", "chat").await < 8);
    assert_eq!(as_worker(store.revision_at(&key, contextd::model::Seq(seq))).await.unwrap(), Some(1));
    assert_eq!(host.turn("chat", &first.turn_id).await, first, "it was made for the first configuration");
    assert_eq!(host.turn("chat", &second.turn_id).await, second);
}

// --- Sessions
// ------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_deleted_when_it_was_not_used_for_its_time_to_live() {
    let host = Host::with(options(for_ever())).await;
    let client = host.database.client().await;
    let ttl = 2 * HOUR;
    for session in ["unused", "used", "queued", "live", "changed", "reported"] {
        assert_eq!(create(&host, with_ttl(session, ttl), "").await.ttl.map(|it| it.seconds), Some(7_200));
    }
    create(&host, named("kept"), "").await;
    let mut live = host.execute(turn("live", MODEL, "slowly")).await;
    age(&client, Duration::from_mins(90)).await;
    host.ask("used", "Hello.").await;
    host.enqueue(enqueue("queued", "Later.")).await;
    let shorter = pb::Session {
        ttl: with_ttl("", HOUR).ttl,
        ..pb::Session { session_id: "changed".to_owned(), ..Default::default() }
    };
    let usage = Some(pb::Usage { input_tokens: 5, output_tokens: 1, ..Default::default() });
    let report = pb::RecordUsageRequest { session_id: "reported".to_owned(), usage, ..Default::default() };
    host.contexts().record_usage(report).await.unwrap();
    host.sessions()
        .update_session(pb::UpdateSessionRequest { session: Some(shorter), ..Default::default() })
        .await
        .unwrap();
    let client_leases = "update session_run set version = version + 1, lease_until = now() + interval '1 hour', turn_deadline = now() + interval '1 hour' where state = 1";
    client.batch_execute(client_leases).await.unwrap();
    age(&client, Duration::from_mins(45)).await;
    client.batch_execute(client_leases).await.unwrap();
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    let stay = ["used", "queued", "live", "changed", "reported", "kept"].map(|session| (session, true));
    for (session, stays) in stay.into_iter().chain([("unused", false)]) {
        assert_eq!(exists(&host, session).await, stays, "{session}, 45 minutes after its last use");
    }
    // The step that applies the message reads how long ago the turn began, so the end of the turn counts as a use.
    host.enqueue(enqueue("live", "And then?")).await;
    host.release("go");
    all(&mut live).await;
    age(&client, Duration::from_mins(70)).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    for (session, stays) in [("used", true), ("queued", true), ("live", true), ("changed", false), ("kept", true)] {
        assert_eq!(exists(&host, session).await, stays, "{session}, 115 minutes after its last use, or 70");
    }
    age(&client, ttl).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    for (session, stays) in [("used", false), ("queued", false), ("live", false), ("kept", true)] {
        assert_eq!(exists(&host, session).await, stays, "{session}, long after its last use");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_own_limit_bounds_every_session() {
    let retention = RetentionConfig { sessions: Some(3 * HOUR), ..for_ever() };
    let host = Host::with(options(retention)).await;
    create(&host, named("plain"), "").await;
    create(&host, with_ttl("longer", 5 * HOUR), "").await;
    create(&host, with_ttl("shorter", HOUR), "").await;
    let client = host.database.client().await;
    age(&client, 2 * HOUR).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert_eq!(
        (exists(&host, "plain").await, exists(&host, "longer").await, exists(&host, "shorter").await),
        (true, true, false)
    );
    age(&client, 2 * HOUR).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert_eq!((exists(&host, "plain").await, exists(&host, "longer").await), (false, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_inherits_the_time_to_live_of_its_source() {
    let host = Host::with(options(for_ever())).await;
    create(&host, with_ttl("chat", 2 * HOUR), "").await;
    host.ask("chat", "Hello.").await;
    let fork = pb::ForkSessionRequest {
        session_id: "chat".to_owned(),
        new_session_id: "fork".to_owned(),
        ..pb::ForkSessionRequest::default()
    };
    let fork = host.sessions().fork_session(fork).await.unwrap().into_inner().session.unwrap();
    assert_eq!(fork.ttl.map(|ttl| ttl.seconds), Some(7_200));
    age(&host.database.client().await, 3 * HOUR).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert!(!exists(&host, "fork").await);
}

// --- Requests and queues
// -------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn request_ids_are_remembered_as_long_as_documented() {
    let kept = 7 * 24 * HOUR;
    let host = Host::with(options(RetentionConfig { request_ids: kept, queue: kept, ..for_ever() })).await;
    let client = host.database.client().await;
    host.ask("chat", "Hello.").await;
    let waits = enqueue("chat", "Later.");
    let queued = host.enqueue(waits.clone()).await.queued_message.unwrap();
    host.cancel_queued("chat", &queued.queued_message_id).await;
    create(&host, named("gone"), "").await;
    delete(&host, "gone", "delete").await.unwrap();
    age(&client, kept - HOUR).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    as_worker(host.replica.engine.sessions.purge()).await.unwrap();
    let again = host.enqueue(waits.clone()).await.queued_message.unwrap();
    assert_eq!(again.queued_message_id, queued.queued_message_id, "known after 6 days and 23 hours");
    delete(&host, "gone", "delete").await.unwrap();

    age(&client, 2 * HOUR).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    let rows = host.database.row_counts().await.into_iter().collect::<BTreeMap<_, _>>();
    assert_eq!((rows["idempotency"], rows["queue"]), (0, 0));
    let anew = host.enqueue(waits).await.queued_message.unwrap();
    assert_ne!(anew.queued_message_id, queued.queued_message_id, "a new request after 7 days");
    assert_eq!(refusal(&delete(&host, "gone", "delete").await.unwrap_err()).reason, "SESSION_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_that_has_expired_makes_another_session() {
    let kept = 7 * 24 * HOUR;
    let host = Host::with(options(RetentionConfig { request_ids: kept, ..for_ever() })).await;
    let client = host.database.client().await;
    create(&host, named("source"), "").await;
    let made = async || create(&host, named(""), "create").await.session_id;
    let forked = async || {
        let fork = pb::ForkSessionRequest {
            session_id: "source".to_owned(),
            request_id: "fork".to_owned(),
            ..pb::ForkSessionRequest::default()
        };
        let forked = host.sessions().fork_session(fork).await;
        forked.unwrap().into_inner().session.unwrap().session_id
    };
    let asked = async || {
        let ask = pb::ExecuteTurnRequest { request_id: "ask".to_owned(), ..turn("", "", "Hello.") };
        host.run(ask).await[0].session_id.clone()
    };
    let all = async || [made().await, forked().await, asked().await];
    let mut seen = BTreeSet::new();
    for expired in 0..3 {
        let ids = all().await;
        assert_eq!(all().await, ids, "repeated, they are the same");
        seen.extend(ids);
        assert_eq!(seen.len(), 3 * (expired + 1), "{seen:?}");
        age(&client, kept + HOUR).await;
        as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_applied_by_a_live_turn_are_kept_until_it_ends() {
    let host = Host::with(options(RetentionConfig { queue: HOUR, ..for_ever() })).await;
    let client = host.database.client().await;
    let asks = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("chat", MODEL, "look") };
    let mut stream = host.execute(asks).await;
    let (_, [calls, _]) = crate::harness::events::until_action(&mut stream).await;
    host.enqueue(enqueue("chat", "And look there.")).await;
    host.submit("chat", vec![result(&calls[0], "Seen.")]).await;
    let (_, [calls, _]) = crate::harness::events::until_action(&mut stream).await;
    client.batch_execute("update queue set ended_at = ended_at - interval '1 day'").await.unwrap();
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert_eq!(count(&client, "queue", "chat").await, 1);
    host.submit("chat", vec![result(&calls[0], "Seen.")]).await;
    completed(&all(&mut stream).await);
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert_eq!(count(&client, "queue", "chat").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn media_of_a_removed_queued_message_are_released_and_those_of_the_transcript_stay() {
    let host = Host::with(options(RetentionConfig { queue: HOUR, ..for_ever() })).await;
    let client = host.database.client().await;
    host.ask("chat", "Hello.").await;
    let picture = |bytes: &[u8]| pb::Part {
        content: Some(pb::part::Content::Media(pb::Media {
            media_type: "image/png".to_owned(),
            source: Some(pb::media::Source::Data(bytes.to_vec())),
            ..pb::Media::default()
        })),
        ..pb::Part::default()
    };
    let shows =
        |bytes: &[u8]| pb::InputMessage { parts: vec![text("See."), picture(bytes)], ..pb::InputMessage::default() };
    let withdrawn = pb::EnqueueMessageRequest { message: Some(shows(b"one")), ..enqueue("chat", "") };
    let withdrawn = host.enqueue(withdrawn).await.queued_message.unwrap();
    host.cancel_queued("chat", &withdrawn.queued_message_id).await;
    // One blob in the input of a turn, and one in a queued message that started a turn.
    host.run(pb::ExecuteTurnRequest { input: Some(shows(b"two")), ..turn("chat", MODEL, "") }).await;
    let began = pb::EnqueueMessageRequest {
        message: Some(shows(b"three")),
        on_idle: pb::IdleAction::StartTurn.into(),
        ..enqueue("chat", "")
    };
    let began = host.enqueue(began).await;
    all(&mut host.watch("chat", &began.turn_id, 0).await).await;
    age(&client, 2 * HOUR).await;
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    assert_eq!(count(&client, "queue", "chat").await, 0);
    let kept =
        "select count(distinct b.blob_id) from part_blobs b join messages m using (tenant_id, session_id, message_id)
                 where b.session_id = 'chat'";
    assert_eq!(client.query_one(kept, &[]).await.unwrap().get::<_, i64>(0), 2, "those of the transcript");
    assert_eq!(count(&client, "part_blobs", "chat").await, 2, "and no others");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_sweep_at_once_do_not_wait_for_each_other() {
    let retention =
        RetentionConfig { request_ids: HOUR, queue: HOUR, events: Some(HOUR), sessions: Some(24 * HOUR), ..for_ever() };
    let host = Host::with(options(retention)).await;
    let client = host.database.client().await;
    let mut holder = host.database.client().await;
    for session in 0..6 {
        host.ask(&format!("chat-{session}"), "Hello.").await;
    }
    age(&client, 2 * HOUR).await;
    // Another replica is blocked in the middle of its batch.
    let batch = holder.transaction().await.unwrap();
    let held = "select 1 from idempotency where session_id = 'chat-0' for update";
    assert_eq!(batch.query(held, &[]).await.unwrap().len(), 1);
    let held = "select 1 from sessions where session_id = 'chat-1' for update";
    assert_eq!(batch.query(held, &[]).await.unwrap().len(), 1);
    let sweeps = (0..4).map(|_| host.replica.engine.sessions.retain());
    for swept in futures_util::future::join_all(sweeps).await {
        swept.unwrap();
    }
    let left = "select (select count(*) from idempotency), (select count(*) from sessions where events_from is null)";
    let row = client.query_one(left, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (1, 1), "only what is held is left");
    batch.rollback().await.unwrap();
    as_worker(host.replica.engine.sessions.retain()).await.unwrap();
    let row = client.query_one(left, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (0, 0));
}

/// Each sweep finds expired rows through an index, in a database in which nearly all rows are recent.
#[tokio::test(flavor = "multi_thread")]
async fn each_retention_sweep_uses_an_index() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    client
        .batch_execute(
            "insert into sessions (tenant_id, session_id) select 't', 's' || n from generate_series(1, 20000) n;
             insert into session_run (tenant_id, session_id) select 't', 's' || n from generate_series(1, 20000) n;
             insert into session_activity (tenant_id, session_id, ttl)
               select 't', 's' || n, interval '1 day' from generate_series(1, 20000) n;
             insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
               select 't', 's' || n, 'r', '', '' from generate_series(1, 20000) n;
             insert into queue (tenant_id, session_id, message_id, body, status, seq, ended_at)
               select 't', 's' || n, 'q', '', 2, 1, now() from generate_series(1, 20000) n;
             insert into turns (tenant_id, session_id, turn_id, request, model, state, first_seq, ended_at, last_seq, outcome)
               select 't', 's' || n, 't', '', '', 3, 1, now(), 2, '' from generate_series(1, 20000) n;
             insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, payload)
               select 't', 's' || n, 1, 1, 't', 0, 0, 'turn_started', '' from generate_series(1, 20000) n;
             insert into messages (tenant_id, session_id, seq, message_id, step, role, tokens, info)
               select 't', 's' || n, 1, 'm', 0, 2, 1, '' from generate_series(1, 20000) n;
             insert into blobs (tenant_id, blob_id, media_type, size_bytes) values ('t', 'b', '', 0);
             insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
               select 't', 's' || n, 'q', 0, 'b' from generate_series(1, 20000) n;
             insert into toolsets (tenant_id, toolset_id, tools, tokens, estimator)
               select 't', 'tools-' || n, '', 0, '' from generate_series(1, 20000) n;
             insert into session_revisions (tenant_id, session_id, revision, toolset_id, config, labels)
               select 't', 's' || n, 1, 'tools-' || n, '', '{}' from generate_series(1, 20000) n;",
        )
        .await
        .unwrap();
    client.batch_execute("analyze").await.unwrap();
    let arguments = BTreeMap::from([
        ("requests", "3600, 500"),
        ("queue", "3600, 500"),
        ("events", "3600, 500"),
        ("unused", "3600, 500"),
        ("tool_sets", "3600, '', '', 500"),
    ]);
    for (name, sql) in contextd::store::sweep::statements() {
        client.batch_execute("deallocate all").await.unwrap();
        client.batch_execute(&format!("prepare it as {sql}")).await.unwrap();
        let plan = client.query(&format!("explain execute it ({})", arguments[name]), &[]).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let scans: Vec<&String> = plan.iter().filter(|line| line.contains("Seq Scan")).collect();
        assert!(scans.is_empty(), "{name}:\n{}", plan.join("\n"));
    }
}
