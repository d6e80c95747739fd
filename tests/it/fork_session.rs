//! ForkSession: creates an independent session from a prefix of another one.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use contextd::{
    model::{RequestId, SessionId, SessionKey, TenantId, command::Idempotency},
    pb::{self, MessageView, event::Payload, part::Content},
    session::config_rows::NewConfig,
    store::fork::{Copied, CopyInProgress, NewFork, PieceLimits, Source},
};
use serde_json::json;
use tonic::{Code, Status};

use crate::harness::{
    Host, Options, as_worker,
    errors::refusal,
    events::{self, completed, kinds, outline, seqs},
    history::{History, Point, revert_compaction},
    host::{MODEL, answering, call, finish, until},
    process::Place,
    requests::{result, tools, turn},
    survivor::SHORT_LEASE,
    transcripts::{calls, check_counters, fork, ids, message, results, says},
};

/// A model that calls a tool once, then responds with text.
fn looks() -> Options {
    answering(&[json!([call("look"), finish("tool_calls")]), json!([{"text": "Fine."}])])
}

fn reason(result: Result<pb::Session, Status>) -> String {
    refusal(&result.unwrap_err()).reason
}

/// Messages as a fork lists them: with the session of the fork, and without the times of events that the fork does not
/// have.
fn of_fork(messages: &[pb::Message], session: &str) -> Vec<pb::Message> {
    let mut messages = messages.to_vec();
    for message in &mut messages {
        session.clone_into(&mut message.session_id);
        for part in &mut message.parts {
            if let Some(Content::ToolResult(result)) = &mut part.content {
                result.prune_mark.iter_mut().for_each(|mark| mark.compacted_time = None);
            }
        }
    }
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_copies_the_session_at_its_seq_and_leaves_the_source_unchanged() {
    let host = Host::with(looks()).await;
    let History { points, .. } = History::make(&host, "chat").await;
    let client = host.database.client().await;
    let source = "select md5(string_agg(t::text, ',' order by t::text)) from (
                    select m::text from messages m where session_id = 'chat' union all select p::text from parts p where session_id = 'chat'
                    union all select e::text from events e where session_id = 'chat'
                    union all select r::text from session_run r where session_id = 'chat'
                    union all select c::text from tool_calls c where session_id = 'chat'
                    union all select c::text from compactions c where session_id = 'chat') t (t)";
    let before: String = client.query_one(source, &[]).await.unwrap().get(0);
    let original = host.session("chat").await;
    for (n, Point { what, seq, all, live }) in points.iter().enumerate().skip(1) {
        let id = format!("fork-{n}");
        let forked = host.try_fork(fork("chat", *seq, &id)).await.unwrap();
        assert_eq!((forked.session_id.as_str(), forked.last_seq), (id.as_str(), *seq), "{what}");
        assert_eq!((forked.forked_from_session_id.as_str(), forked.forked_at_seq), ("chat", *seq), "{what}");
        assert_eq!((&forked.model, &forked.tools), (&original.model, &original.tools));
        assert_eq!(host.listed(&id, MessageView::All, 0, false, 0).await, of_fork(all, &id), "all, {what}");
        assert_eq!(host.live(&id).await, of_fork(live, &id), "live, {what}");
        check_counters(&client, &id).await;
        // A fork of the fork at an earlier seq equals a fork of the original.
        let Point { seq: earlier, live: then, .. } = &points[n - 1];
        if *earlier > 0 {
            let id = format!("fork-{n}-back");
            host.try_fork(fork(&format!("fork-{n}"), *earlier, &id)).await.unwrap();
            assert_eq!(host.live(&id).await, of_fork(then, &id), "back, before {what}");
            check_counters(&client, &id).await;
        }
    }
    assert_eq!(client.query_one(source, &[]).await.unwrap().get::<_, String>(0), before);
    // Copied compactions can be reverted, as in the original.
    let last = format!("fork-{}", points.len() - 1);
    completed(&host.run_with(turn(&last, MODEL, "On"), |call| result(&call.call_id, "seen")).await);
    for compaction in ["k3", "k1"] {
        revert_compaction(&host, &last, compaction).await;
        check_counters(&client, &last).await;
    }
    assert_eq!(client.query_one(source, &[]).await.unwrap().get::<_, String>(0), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_on_a_fork_sees_the_history_and_numbers_its_events_after_it() {
    let host = Host::with(looks()).await;
    host.create(pb::Session { session_id: "chat".to_owned(), tools: tools(&["look"]), ..pb::Session::default() }).await;
    let asked = host.run_with(turn("chat", MODEL, "What is there?"), |call| result(&call.call_id, "a tree")).await;
    let at = host.session("chat").await.last_seq;
    host.try_fork(fork("chat", 0, "branch")).await.unwrap();
    assert_eq!(host.events("branch", "", 0, 100).await, []);
    let mut stream = host.watch("branch", "", 0).await;
    let opening = events::until(&mut stream, |payload| matches!(payload, Payload::Sync(_))).await;
    let Some(Payload::Sync(sync)) = &opening[0].payload else { panic!("{opening:?}") };
    assert_eq!((opening.len(), sync.last_seq, sync.pending_calls.len()), (1, at, 0));

    let seen = host.run_with(turn("branch", MODEL, "And now?"), |call| result(&call.call_id, "a bird")).await;
    let expected: Vec<i64> = (at + 1..=at + i64::try_from(seqs(&seen).len()).unwrap()).collect();
    assert_eq!(seqs(&seen), expected);
    assert_eq!(kinds(&seen), kinds(&asked));
    assert_eq!(seqs(&host.events("branch", "", 0, 3).await), expected);
    assert_eq!(seqs(&host.events("branch", "", at + 2, 3).await), expected[2..]);
    let mut live = events::until(&mut stream, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    live.retain(|event| event.seq > 0);
    assert_eq!(seqs(&live), expected);
    let told = &host.replica.scripted.prompts()[2];
    let told: Vec<&str> = told.transcript.messages().iter().map(|message| message.id.as_str()).collect();
    let branch = host.messages("branch").await;
    assert_eq!(told, ids(&branch)[..5]);
    assert_eq!(outline(&host.messages("chat").await), outline(&branch)[..4]);
    assert_eq!(host.session("chat").await.last_seq, at);
    // The calls of the original are known and closed.
    let first = events::requested(&asked).remove(0);
    assert_eq!(host.submit("branch", vec![result(&first, "late")]).await, [pb::AnswerStatus::Stale]);
    assert_eq!(host.submit("branch", vec![result(&first, "a tree")]).await, [pb::AnswerStatus::Duplicate]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_between_a_call_and_its_result_is_refused_naming_the_call() {
    let host = Host::with(looks()).await;
    host.create(pb::Session { session_id: "chat".to_owned(), ..pb::Session::default() }).await;
    let mixed =
        vec![says(pb::Role::User, "Look."), calls(&["c1", "c2"]), results(&["c2"]), results(&["c1"]), calls(&["c3"])];
    host.append("chat", mixed).await;
    let open = |status: Status| {
        let refused = refusal(&status);
        assert_eq!((refused.code, refused.reason.as_str()), (Code::FailedPrecondition, "TRANSCRIPT_OPEN"));
        refused.metadata["call_ids"].clone()
    };
    for (at, expected) in [(1, None), (2, Some("c1,c2")), (3, Some("c1")), (4, None), (5, Some("c3")), (0, Some("c3"))]
    {
        let forked = host.try_fork(fork("chat", at, &format!("at-{at}"))).await;
        assert_eq!(forked.err().map(open).as_deref(), expected, "at {at}");
    }
    let ahead = refusal(&host.try_fork(fork("chat", 6, "ahead")).await.unwrap_err());
    assert_eq!((ahead.reason.as_str(), ahead.metadata["last_seq"].as_str()), ("CURSOR_AHEAD", "5"));
    assert_eq!(ahead.fields, [("at_seq".to_owned(), "OUT_OF_RANGE".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_fork_request_returns_the_same_fork_even_concurrently() {
    let host = Host::with(looks()).await;
    let other = host.beside(looks()).await;
    host.create(pb::Session { session_id: "chat".to_owned(), ..pb::Session::default() }).await;
    host.append("chat", vec![says(pb::Role::User, "Hello")]).await;
    let once = |id: &str, new: &str| pb::ForkSessionRequest { request_id: id.to_owned(), ..fork("chat", 1, new) };
    for new in ["", "branch"] {
        let (one, two) = tokio::join!(host.try_fork(once("once", new)), other.try_fork(once("once", new)));
        let one = one.unwrap();
        let two = two.unwrap();
        assert_eq!((&one.session_id, one.last_seq), (&two.session_id, 1));
        assert!(new.is_empty() || one.session_id == new);
        host.append(&one.session_id, vec![says(pb::Role::User, "On")]).await;
        assert_eq!(other.try_fork(once("once", new)).await.unwrap().last_seq, 2, "the fork as it is now");
    }
    let changed = pb::ForkSessionRequest { at_seq: 0, ..once("once", "branch") };
    assert_eq!(reason(host.try_fork(changed).await), "IDEMPOTENCY_MISMATCH");
    assert_eq!(reason(host.try_fork(once("another", "branch")).await), "SESSION_ALREADY_EXISTS");
    assert_eq!(reason(host.try_fork(fork("chat", 0, "chat")).await), "SESSION_ALREADY_EXISTS");
    let one = host.try_fork(fork("chat", 0, "")).await.unwrap();
    let two = host.try_fork(fork("chat", 0, "")).await.unwrap();
    assert_ne!(one.session_id, two.session_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_tool_outputs_stay_readable_from_a_fork() {
    let host = Host::with(looks()).await;
    host.create(pb::Session { session_id: "chat".to_owned(), ..pb::Session::default() }).await;
    let long =
        pb::Part { content: Some(Content::ToolResult(result("c1", &"x".repeat(200_000)))), ..pb::Part::default() };
    host.append("chat", vec![calls(&["c1"]), message(pb::Role::Tool, vec![long])]).await;
    host.try_fork(fork("chat", 0, "branch")).await.unwrap();
    assert_eq!(host.messages("branch").await, of_fork(&host.messages("chat").await, "branch"));
    let client = host.database.client().await;
    let sql =
        "select array_agg(distinct blob_id::text), count(*) from part_blobs where session_id in ('chat', 'branch')";
    let row = client.query_one(sql, &[]).await.unwrap();
    assert_eq!((row.get::<_, Vec<String>>(0).len(), row.get::<_, i64>(1)), (1, 2));
}

/// Forks of a session on one replica while its turns run on another: no fork waits, each is a closed prefix of the
/// original with correct counters, and the original is not affected.
#[tokio::test(flavor = "multi_thread")]
async fn forks_of_a_running_session_are_closed_prefixes_and_do_not_disturb_it() {
    let script = || {
        let looks = json!([{"tool_call": {"name": "look"}}, {"tool_call": {"name": "look"}}]);
        answering(&[looks.clone(), looks, json!([{"text": "Fine."}])])
    };
    let host = Host::with(script()).await;
    let other = host.beside(script()).await;
    host.create(pb::Session { session_id: "chat".to_owned(), tools: tools(&["look"]), ..pb::Session::default() }).await;
    let client = host.database.client().await;
    let mut refused = BTreeMap::<String, usize>::new();
    let mut forks = Vec::new();
    let mut seen = BTreeSet::new();
    for round in 0..8 {
        let running = host.run_with(turn("chat", MODEL, "Go"), |call| result(&call.call_id, "seen"));
        let forking = async {
            let mut made = Vec::new();
            for n in 0..12 {
                let id = format!("fork-{round}-{n}");
                let at = if n % 2 == 0 { 0 } else { other.session("chat").await.last_seq };
                made.push((id.clone(), other.try_fork(fork("chat", at, &id)).await));
            }
            made
        };
        let (ran, made) = tokio::join!(running, forking);
        completed(&ran);
        seen.extend(seqs(&ran));
        for (id, forked) in made {
            match forked {
                Ok(forked) => forks.push((id, forked.forked_at_seq)),
                Err(status) => *refused.entry(refusal(&status).reason).or_default() += 1,
            }
        }
    }
    let whole = host.messages("chat").await;
    for (id, at) in &forks {
        check_counters(&client, id).await;
        let expected: Vec<pb::Message> = whole.iter().filter(|message| message.seq <= *at).cloned().collect();
        assert_eq!(host.messages(id).await, of_fork(&expected, id), "{id} at {at}");
        let open = client.query_one("select open_calls from session_run where session_id = $1", &[id]).await.unwrap();
        assert_eq!(open.get::<_, i32>(0), 0, "{id} at {at}");
    }
    check_counters(&client, "chat").await;
    assert_eq!(seen, (1..=host.session("chat").await.last_seq).collect());
    let met = refused.get("TRANSCRIPT_OPEN").copied().unwrap_or_default();
    assert_eq!(refused.len(), usize::from(met > 0), "{refused:?}");
    let within = "select count(*) from sessions s join turns t on t.session_id = 'chat' and s.forked_at_seq between t.first_seq and t.last_seq - 1";
    let within: i64 = client.query_one(within, &[]).await.unwrap().get(0);
    assert!(met > 0 && within > 0, "the race was none: {} forks, {within} within a turn, {refused:?}", forks.len());
    let (last, _) = forks.last().unwrap();
    completed(&other.run_with(turn(last, MODEL, "Go"), |call| result(&call.call_id, "seen")).await);
    check_counters(&client, last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_does_not_wait_for_the_owner_of_a_running_turn() {
    let waits = answering(&[json!([{"text": "One"}, {"wait_for": "go"}])]);
    let host = Host::with(waits).await;
    let mut stream = host.execute(turn("chat", MODEL, "Hello")).await;
    events::until_written(&mut stream, "One").await;
    // The row of the owner is locked, as in the middle of a commit.
    let mut owner = host.database.client().await;
    let locked = owner.transaction().await.unwrap();
    locked.execute("select 1 from session_run where session_id = 'chat' for update", &[]).await.unwrap();
    locked.execute("select 1 from sessions where session_id = 'chat' for update", &[]).await.unwrap();
    let forked = host.try_fork(fork("chat", 0, "branch")).await.unwrap();
    locked.rollback().await.unwrap();
    assert_eq!(
        (forked.state(), outline(&host.messages("branch").await)),
        (pb::SessionState::Idle, vec![r#"USER: "Hello""#.to_owned()])
    );
    host.release("go");
    completed(&events::all(&mut stream).await);
    check_counters(&host.database.client().await, "branch").await;
}

// --- Long sessions
// -------------------------------------------------------------------------------------------------

/// Messages of a long session: more than one statement can copy.
const LONG: usize = 1_200;

/// A long session with tool calls.
async fn long_session(host: &Host) {
    host.create(pb::Session { session_id: "chat".to_owned(), model: MODEL.to_owned(), ..Default::default() }).await;
    for batch in 0..LONG / 400 {
        let mut messages: Vec<pb::InputMessage> =
            (0..99).flat_map(|n| crate::harness::transcripts::one_turn(&format!("c{batch}-{n}"), 5)).collect();
        messages.truncate(400);
        host.append("chat", messages).await;
    }
}

/// Makes a statement that writes more than `most` messages of a fork fail like one that times out.
async fn no_statement_may_be_long(client: &tokio_postgres::Client, most: usize) {
    let trigger = format!(
        "create function too_long() returns trigger language plpgsql as $$
         begin
           if (select count(*) from written where session_id like 'fork%') > {most}
           then raise exception 'canceling statement due to statement timeout' using errcode = '57014'; end if;
           return null;
         end $$;
         create trigger too_long after insert on messages referencing new table as written
           for each statement execute function too_long();"
    );
    client.batch_execute(&trigger).await.unwrap();
}

async fn rows_of(client: &tokio_postgres::Client, session: &str) -> Vec<(String, i64)> {
    let tables = "select table_name::text from information_schema.columns
                   where table_schema = 'public' and column_name = 'session_id' order by 1";
    let mut rows = Vec::new();
    for table in client.query(tables, &[]).await.unwrap() {
        let table: String = table.get(0);
        let count = format!("select count(*) from {table} where session_id = $1");
        rows.push((table, client.query_one(&count, &[&session]).await.unwrap().get(0)));
    }
    rows.retain(|(_, count)| *count > 0);
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_too_large_for_one_statement_is_forked_in_batches() {
    let host = Host::with(looks()).await;
    let client = host.database.client().await;
    long_session(&host).await;
    no_statement_may_be_long(&client, 500).await;
    let last = host.session("chat").await.last_seq;
    let forked = host.try_fork(fork("chat", 0, "fork")).await.unwrap();
    assert_eq!((forked.last_seq, forked.forked_at_seq), (last, last));
    for view in [MessageView::All, MessageView::Live] {
        let original = of_fork(&host.listed("chat", view, 0, false, 1_000).await, "fork");
        assert_eq!(host.listed("fork", view, 0, false, 1_000).await, original);
    }
    check_counters(&client, "fork").await;
    let same = "select (select count(*) from tool_calls where session_id = 'fork')
                     = (select count(*) from tool_calls where session_id = 'chat')";
    assert!(client.query_one(same, &[]).await.unwrap().get::<_, bool>(0), "its calls");
    let asks = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("fork", MODEL, "Go on.") };
    let events = host.run_with(asks, |call| result(&call.call_id, "Seen.")).await;
    completed(&events);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_that_fails_midway_leaves_nothing_and_can_be_retried() {
    let host = Host::with(looks()).await;
    let client = host.database.client().await;
    long_session(&host).await;
    let fails = "create function fails() returns trigger language plpgsql as $$
                 begin
                   if (select count(*) from messages where session_id = 'fork') > 800
                   then raise exception 'no' using errcode = '57014'; end if;
                   return null;
                 end $$;
                 create trigger fails after insert on messages for each statement execute function fails();";
    client.batch_execute(fails).await.unwrap();
    let request = pb::ForkSessionRequest { request_id: "r".to_owned(), ..fork("chat", 0, "fork") };
    assert_eq!(reason(host.try_fork(request.clone()).await), "DATABASE_UNAVAILABLE");
    assert_eq!(rows_of(&client, "fork").await, []);
    client.batch_execute("drop trigger fails on messages").await.unwrap();
    let forked = host.try_fork(request.clone()).await.unwrap();
    assert_eq!(host.try_fork(request).await.unwrap(), forked, "repeated");
}

/// Starts a copy of `chat` in pieces of 100 messages.
async fn claim(host: &Host, idempotency: &Idempotency) -> CopyInProgress {
    let key = SessionKey::new(TenantId::new("default"), SessionId::new("chat"));
    let store = host.replica.engine.store();
    let seen = as_worker(store.session(&key)).await.unwrap().unwrap();
    let source = Source { key: &key, created: seen.created_at, at: seen.last_seq };
    let new = NewFork {
        id: &SessionId::new("fork"),
        config: NewConfig { config: &seen.config, tools_tokens: 0, estimator: "test" },
        claim: "a",
        lease: Duration::from_secs(60),
        most: PieceLimits { messages: 100, bytes: 1 << 20 },
    };
    let claimed = as_worker(store.claim_fork(source, &new, idempotency)).await;
    claimed.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_fork_is_invisible_and_purged() {
    let host = Host::with(looks()).await;
    let client = host.database.client().await;
    long_session(&host).await;
    let store = host.replica.engine.store();
    let idempotency = Idempotency { request: Some(RequestId::new("r")), hash: "other".to_owned() };
    let mut copying = claim(&host, &idempotency).await;
    let next = as_worker(store.copy_piece(&mut copying)).await;
    assert_eq!(next.unwrap(), Copied::Part);
    let get = pb::GetSessionRequest { session_id: "fork".to_owned() };
    assert_eq!(refusal(&host.sessions().get_session(get).await.unwrap_err()).reason, "SESSION_NOT_FOUND");
    let list = host.sessions().list_sessions(pb::ListSessionsRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.sessions.len(), 1, "it is not listed");
    assert_eq!(reason(host.try_fork(fork("chat", 0, "fork")).await), "SESSION_ALREADY_EXISTS");
    as_worker(host.replica.engine.sessions.purge()).await.unwrap();
    assert!(!rows_of(&client, "fork").await.is_empty(), "it may still be copied");
    client
        .batch_execute(
            "update session_run set version = version + 1, lease_until = now() - interval '1 s' where session_id = 'fork'",
        )
        .await
        .unwrap();
    assert!(as_worker(store.copy_piece(&mut copying)).await.is_err(), "its lease ran out");
    as_worker(host.replica.engine.sessions.purge()).await.unwrap();
    assert_eq!(rows_of(&client, "fork").await, []);
    assert!(as_worker(store.copy_piece(&mut copying)).await.is_err(), "it is gone");
    assert!(!as_worker(store.open_fork(&copying)).await.unwrap());
    host.try_fork(fork("chat", 0, "fork")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_repeated_forks_of_a_long_session_make_one() {
    let host = Host::with(looks()).await;
    long_session(&host).await;
    let request = pb::ForkSessionRequest { request_id: "r".to_owned(), ..fork("chat", 0, "") };
    let forks = futures_util::future::join_all((0..4).map(|_| host.try_fork(request.clone()))).await;
    let forks: Vec<pb::Session> = forks.into_iter().map(Result::unwrap).collect();
    assert!(forks.iter().all(|fork| *fork == forks[0]));
    assert_eq!(
        host.sessions().list_sessions(pb::ListSessionsRequest::default()).await.unwrap().into_inner().sessions.len(),
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_fails_if_its_source_is_deleted_during_the_copy() {
    let host = Host::with(looks()).await;
    long_session(&host).await;
    let store = host.replica.engine.store();
    let copying = claim(&host, &Idempotency::none()).await;
    let delete = pb::DeleteSessionRequest { session_id: "chat".to_owned(), ..pb::DeleteSessionRequest::default() };
    host.sessions().delete_session(delete).await.unwrap();
    assert!(!as_worker(store.open_fork(&copying)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_copies_nothing_of_a_session_that_took_the_id_of_its_source() {
    let host = Host::with(looks()).await;
    let client = host.database.client().await;
    long_session(&host).await;
    let store = host.replica.engine.store();
    let mut copying = claim(&host, &Idempotency::none()).await;
    let next = as_worker(store.copy_piece(&mut copying)).await;
    assert_eq!(next.unwrap(), Copied::Part);
    let delete = pb::DeleteSessionRequest { session_id: "chat".to_owned(), ..pb::DeleteSessionRequest::default() };
    host.sessions().delete_session(delete).await.unwrap();
    let gone = "update session_run set version = version + 1, lease_until = '-infinity' where session_id = 'chat'";
    client.batch_execute(gone).await.unwrap();
    as_worker(host.replica.engine.sessions.purge()).await.unwrap();
    long_session(&host).await;

    let next = as_worker(store.copy_piece(&mut copying)).await;
    assert_eq!(next.unwrap(), Copied::SourceGone);
    assert!(!as_worker(store.open_fork(&copying)).await.unwrap());
}

/// After this number of messages, the copy waits for the holder of a lock.
const STOPS: &str = "
    create function waits() returns trigger language plpgsql as $$
    begin
      if (select count(*) from messages where session_id = 'fork') > 600 then perform pg_advisory_xact_lock_shared(7); end if;
      return null;
    end $$;
    create trigger waits after insert on messages for each statement execute function waits();";
const STOPPED: &str = "select exists (select from pg_locks where locktype = 'advisory' and objid = 7 and not granted)";

/// A place with a short lease and this statement timeout.
fn short(statement_timeout: &str) -> Place {
    Place::new(&format!("{SHORT_LEASE}[database]\nstatement_timeout = '{statement_timeout}'\n"))
}

/// Kills a replica in the middle of copying a session. Returns the request that started the fork.
async fn killed_in_the_middle(host: &Host) -> pb::ForkSessionRequest {
    let client = host.database.client().await;
    client.batch_execute(STOPS).await.unwrap();
    let holder = host.database.client().await;
    holder.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    let place = short("2s");
    let first = place.serve_over(&host.database).await;
    let request = pb::ForkSessionRequest { request_id: "r".to_owned(), ..fork("chat", 0, "fork") };
    let mut sessions = first.sessions().await;
    let asked = request.clone();
    let begun = tokio::spawn(async move { sessions.fork_session(asked).await });
    until("the copy to be in the middle", || async { client.query_one(STOPPED, &[]).await.unwrap().get(0) }).await;
    first.kill_9().await;
    assert!(begun.await.unwrap().is_err());
    holder.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_whose_replica_is_killed_is_made_by_the_repeated_request() {
    let host = Host::with(looks()).await;
    let client = host.database.client().await;
    long_session(&host).await;
    let last = host.session("chat").await.last_seq;
    let request = killed_in_the_middle(&host).await;
    let killed = Instant::now();
    let forked = host.try_fork(request).await.unwrap();
    eprintln!("forked {:?} after the kill", killed.elapsed());
    assert_eq!((forked.last_seq, forked.forked_at_seq), (last, last));
    assert!(killed.elapsed() < Duration::from_secs(40), "{:?}", killed.elapsed());
    check_counters(&client, "fork").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_fork_that_is_still_being_copied_says_so() {
    let host = Host::with(looks()).await;
    let client = host.database.client().await;
    long_session(&host).await;
    let request = killed_in_the_middle(&host).await;
    let lease = async |until: &str| {
        let set = "update session_run set version = version + 1, lease_until =";
        let set = format!("{set} {until} where session_id = 'fork'");
        client.batch_execute(&set).await.unwrap();
    };
    // As if the replica that copies it were only slow.
    lease("now() + interval '1 h'").await;
    let place = short("1s");
    let replica = place.serve_over(&host.database).await;
    let repeated = replica.sessions().await.fork_session(request.clone()).await;
    let refused = repeated.unwrap_err();
    assert_eq!((refused.code(), refusal(&refused).reason.as_str()), (Code::Unavailable, "OVERLOADED"));
    assert_eq!(
        refused.message(),
        "the session fork is still being copied by the call that began the fork; repeat the request"
    );
    lease("'-infinity'").await;
    host.try_fork(request).await.unwrap();
    check_counters(&client, "fork").await;
}
