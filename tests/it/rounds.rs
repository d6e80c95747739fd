//! Rounds of the workers: a session in which a round fails does not block other sessions.

use contextd::{
    model::{SessionId, SessionKey, TenantId},
    pb::TurnState,
};
use serde_json::json;

use crate::harness::{
    Host, Options, as_worker,
    events::turn_id,
    host::{MODEL, until as eventually},
    requests::{enqueue, turn},
};

/// Number of sessions in which a round fails.
const BAD: usize = 20;

fn sessions() -> impl Iterator<Item = String> {
    (0..BAD).map(|n| format!("bad-{n}")).chain(["good".to_owned()])
}

/// A replica without workers, whose model blocks until `go` is released if the input says "wait".
fn options() -> Options {
    let steps = json!({"steps": [
        {"when": {"user_contains": "wait"}, "say": [{"wait_for": "go"}, {"text": "Done."}]},
        {"when": {"otherwise": true}, "say": [{"text": "Fine."}]},
    ]});
    Options { workers: false, ..Options::default().script("it", steps.to_string()) }
}

/// A replica with one idle session per name.
async fn idle() -> Host {
    let host = Host::with(options()).await;
    for session in sessions() {
        host.run(turn(&session, MODEL, "Go")).await;
    }
    host
}

async fn sql(host: &Host, sql: &str) {
    let database = host.database.client().await;
    database.batch_execute(sql).await.unwrap();
}

/// Makes every update of these rows fail in the bad sessions.
async fn break_rows(host: &Host, table: &str) {
    let breaking = format!(
        "create function fails() returns trigger language plpgsql as $$ begin raise exception 'broken'; end $$;
         create trigger fails before update on {table} for each row when (old.session_id like 'bad%') execute function fails()"
    );
    sql(host, &breaking).await;
}

/// The number of these rows of the session.
async fn rows(host: &Host, session: &str, rows: &str) -> i64 {
    let sql = format!("select count(*) from {rows} and session_id = $1");
    let database = host.database.client().await;
    database.query_one(&sql, &[&session]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_messages_are_removed_although_that_fails_in_other_sessions() {
    let host = idle().await;
    for session in sessions() {
        host.enqueue(enqueue(&session, "And on")).await;
    }
    let waiting = "queue where status = 0";
    assert_eq!(rows(&host, "good", waiting).await, 1);
    sql(&host, "update queue set expires_at = now() - interval '1 second'").await;
    break_rows(&host, "queue").await;
    as_worker(host.replica.engine.sessions.expire_queued_messages()).await.unwrap_err();
    assert_eq!(rows(&host, "good", waiting).await, 0);
    assert_eq!(rows(&host, "bad-0", waiting).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_compactions_are_given_up_although_that_fails_in_other_sessions() {
    let host = idle().await;
    let abandoned = "insert into compactions (tenant_id, session_id, compaction_id, status, lease_until, context_version, begun_at_seq, info)
                     select tenant_id, session_id, 'k', 1, now() - interval '1 second', 0, 1, '' from sessions";
    sql(&host, abandoned).await;
    break_rows(&host, "compactions").await;
    as_worker(host.replica.engine.sessions.expire_compactions()).await.unwrap_err();
    let running = "compactions where status = 1";
    assert_eq!(rows(&host, "good", running).await, 0);
    assert_eq!(rows(&host, "bad-0", running).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_are_adopted_and_taken_over_although_another_grant_cannot_be_resolved() {
    let lost = Host::with(options()).await;
    let mut turns = Vec::new();
    let all = || sessions().chain(["orphan".to_owned()]);
    for session in all() {
        let mut stream = lost.execute(turn(&session, MODEL, "Please wait")).await;
        let first = stream.message().await.unwrap().unwrap();
        turns.push(turn_id(&[first.event.unwrap()]));
    }
    let host = lost.beside(options()).await;
    let engine = &host.replica.engine;
    // These turns were granted to this replica, and the responses were lost.
    let granted = format!(
        "update session_run set version = version + 1, owner = '{}' where session_id <> 'orphan'",
        engine.store().replica()
    );
    sql(&host, &granted).await;
    host.database.owner_died("session_id = 'orphan'").await;
    for session in sessions() {
        let key = SessionKey::new(TenantId::new("default"), SessionId::new(session));
        drop(engine.capacity.leases.request(&key));
    }
    break_rows(&host, "session_run").await;
    as_worker(engine.take_over()).await.unwrap_err();
    host.release("go");
    for (session, turn) in all().zip(&turns).skip(BAD) {
        eventually("the turn to end here", || async {
            host.turn(&session, turn).await.state() == TurnState::Completed
        })
        .await;
    }
}

/// More than a round processes, and than two rounds do.
const MANY: i64 = 100;

/// Inserts sessions into the database.
async fn many_sessions(host: &Host) {
    host.run(turn("like", MODEL, "Go")).await;
    let copies = format!(
        "insert into sessions (tenant_id, session_id) select tenant_id, 'many-' || n from sessions, generate_series(1, {MANY}) n
          where session_id = 'like';
         insert into session_run (tenant_id, session_id) select tenant_id, 'many-' || n from sessions, generate_series(1, {MANY}) n
          where session_id = 'like';
         insert into session_activity (tenant_id, session_id) select tenant_id, 'many-' || n from sessions, generate_series(1, {MANY}) n
          where session_id = 'like'"
    );
    sql(host, &copies).await;
}

async fn number(host: &Host, sql: &str) -> i64 {
    let database = host.database.client().await;
    database.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_round_of_the_purge_removes_all_sessions_that_were_deleted() {
    let host = Host::with(options()).await;
    many_sessions(&host).await;
    let deleted = "delete from sessions where session_id like 'many-%';
                   update session_run set version = version + 1, state = 3 where session_id like 'many-%';
                   update session_activity set updated_at = '-infinity' where session_id like 'many-%'";
    sql(&host, deleted).await;
    let begun = std::time::Instant::now();
    as_worker(host.replica.engine.sessions.purge()).await.unwrap();
    let rate = MANY as f64 / begun.elapsed().as_secs_f64();
    let left = number(&host, "select count(*) from session_run where state = 3").await;
    assert_eq!(left, 0);
    eprintln!("{rate:.0} sessions purged per second");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_round_ends_all_messages_whose_time_passed() {
    let host = Host::with(options()).await;
    many_sessions(&host).await;
    let queued =
        "insert into queue (tenant_id, session_id, message_id, body, delivery, starts_turn, from_execute, expires_at)
                  select tenant_id, session_id, 'm', '', 1, false, false, now() - interval '1 second' from sessions
                   where session_id like 'many-%'";
    sql(&host, queued).await;
    as_worker(host.replica.engine.sessions.expire_queued_messages()).await.unwrap();
    let left = number(&host, "select count(*) from queue where status = 0").await;
    assert_eq!(left, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_round_gives_up_all_abandoned_compactions() {
    let host = Host::with(options()).await;
    many_sessions(&host).await;
    let abandoned = "insert into compactions (tenant_id, session_id, compaction_id, status, lease_until, context_version, begun_at_seq, info)
                     select tenant_id, session_id, 'k', 1, now() - interval '1 second', 0, 1, '' from sessions";
    sql(&host, abandoned).await;
    as_worker(host.replica.engine.sessions.expire_compactions()).await.unwrap();
    let left = number(&host, "select count(*) from compactions where status = 1").await;
    assert_eq!(left, 0);
}

/// The heartbeat renews every turn that is assigned to the replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_a_replica_owns_without_knowing_it_is_given_back_once_there_is_doubt() {
    let lost = Host::with(options()).await;
    let mut stream = lost.execute(turn("s", MODEL, "Please wait")).await;
    let first = stream.message().await.unwrap().unwrap();
    let waiting = turn_id(&[first.event.unwrap()]);
    let host = lost.beside(options()).await;
    let engine = &host.replica.engine;
    let granted = format!(
        "update session_run set version = version + 1, owner = '{}', lease_until = now() - interval '1 second'",
        engine.store().replica()
    );
    sql(&host, &granted).await;
    as_worker(engine.take_over_all()).await.unwrap();
    as_worker(engine.take_over()).await.unwrap();
    let owned = "session_run where owner is not null";
    assert_eq!(rows(&host, "s", owned).await, 1, "its replica lives");
    engine.mark_unknown_grants();
    as_worker(engine.take_over()).await.unwrap();
    assert_eq!(rows(&host, "s", owned).await, 0, "nobody runs it");
    as_worker(engine.take_over_all()).await.unwrap();
    host.release("go");
    eventually("the turn to end", || async { host.turn("s", &waiting).await.state() == TurnState::Completed }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_a_replica_gave_up_by_its_own_clock_goes_on_although_its_heartbeat_keeps_it() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(turn("s", MODEL, "Please wait")).await;
    let first = stream.message().await.unwrap().unwrap();
    let waiting = turn_id(&[first.event.unwrap()]);
    let engine = &host.replica.engine;
    let key = SessionKey::new(TenantId::new("default"), SessionId::new("s"));
    engine.capacity.leases.lose(&key, i64::MAX);
    host.at_rest().await;
    as_worker(engine.take_over()).await.unwrap();
    as_worker(engine.take_over_all()).await.unwrap();
    host.release("go");
    eventually("the turn to end", || async { host.turn("s", &waiting).await.state() == TurnState::Completed }).await;
}
