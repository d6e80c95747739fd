//! DeleteSession: the session, its turn and its queue disappear for every client at once. Its rows and its id are
//! removed later.

use std::time::Duration;

use contextd::{
    model::{Delivery, MessageId, Seq, SessionId, SessionKey, TenantId, command::Idempotency},
    pb::{self, CancelCause, CancelOutcome, ToolCallCancelReason, event::Payload},
    store::{event_page::EventPageLimits, queue::NewQueued},
};
use serde_json::json;
use tonic::{Code, Status, Streaming};

use crate::harness::{
    Host, Options, as_worker,
    events::{Carrier, all, cancelled, closed, completed, kinds, next, requested, seqs, until, until_written},
    host::{call, refusal, until as eventually},
    requests::{result, submit, tools, turn},
};

/// Models that block in the middle of a text, that call tools, and that respond immediately. The output of the tools is
/// truncated.
fn options() -> Options {
    let script = json!({"steps": [
        {"when": {"user_contains": "slowly"}, "say": [{"text": "So far"}, {"wait_for": "go"}, {"text": " so good."}]},
        {"when": {"user_contains": "tools", "call": 0}, "say": [{"text": "Hm."}, call("look"), call("bash")]},
        {"say": [{"text": "Hello."}]},
    ]});
    Options::default().script("it", script.to_string())
}

async fn host() -> Host {
    Host::with(options()).await
}

fn asks(session: &str, words: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["look", "bash"]), ..turn(session, "scripted/it", words) }
}

fn named(session_id: &str, request_id: &str) -> pb::DeleteSessionRequest {
    pb::DeleteSessionRequest {
        session_id: session_id.to_owned(),
        request_id: request_id.to_owned(),
        ..pb::DeleteSessionRequest::default()
    }
}

async fn try_delete(host: &Host, request: pb::DeleteSessionRequest) -> Result<(), Status> {
    host.sessions().delete_session(request).await.map(drop)
}

async fn delete(host: &Host, session_id: &str) {
    try_delete(host, named(session_id, "")).await.unwrap();
}

async fn create(host: &Host, session_id: &str, request_id: &str) -> Result<pb::Session, Status> {
    let session = pb::Session { session_id: session_id.to_owned(), ..pb::Session::default() };
    let request = pb::CreateSessionRequest { session: Some(session), request_id: request_id.to_owned() };
    Ok(host.sessions().create_session(request).await?.into_inner().session.unwrap())
}

fn reason(refused: &Status) -> (Code, String) {
    let (code, reason, _) = refusal(refused, "");
    (code, reason)
}

fn not_found() -> (Code, String) {
    (Code::NotFound, "SESSION_NOT_FOUND".to_owned())
}

fn key(session: &str) -> SessionKey {
    SessionKey::new(TenantId::new("default"), SessionId::new(session))
}

/// Queues a message through the store.
async fn enqueue(host: &Host, session: &str, id: &str) {
    let message = MessageId::new(id);
    let idempotency = Idempotency { request: None, hash: String::new() };
    let new = NewQueued {
        message: &message,
        body: b"",
        blobs: &[],
        delivery: Delivery::Asap,
        starts_turn: false,
        execute: None,
        ttl: None,
        limit: 100,
        idempotency: &idempotency,
    };
    as_worker(host.replica.engine.store().enqueue(&key(session), &new, None)).await.unwrap();
}

/// Reads a stream to its end. Returns its events and its final status.
async fn to_the_end<T: Carrier>(stream: &mut Streaming<T>) -> (Vec<pb::Event>, Status) {
    let mut events = Vec::new();
    loop {
        match next(stream).await {
            Ok(Some(event)) => events.push(event),
            Ok(None) => panic!("the stream ended as if all were well: {:?}", kinds(&events)),
            Err(status) => return (events, status),
        }
    }
}

/// Lets the retention period of deleted sessions pass, and removes their rows.
async fn purge(host: &Host) {
    let sql = "update session_run set version = version + 1, lease_until = now() - interval '1 second' where state = 3";
    host.database.client().await.batch_execute(sql).await.unwrap();
    as_worker(host.replica.engine.sessions.purge()).await.unwrap();
}

/// The number of rows of a session in each table that has any.
async fn rows(host: &Host, session: &str) -> Vec<(String, i64)> {
    let client = host.database.client().await;
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
async fn every_rpc_reports_a_deleted_session_as_not_found() {
    let host = host().await;
    let other = host.beside(options()).await;
    let told = host.run(asks("s", "Hello")).await;
    let turn_id = told[1].turn_id.clone();
    delete(&host, "s").await;
    for host in [&host, &other] {
        let mut sessions = host.sessions();
        let mut turns = host.turns();
        let id = || "s".to_owned();
        let update = pb::UpdateSessionRequest {
            session: Some(pb::Session { session_id: id(), model: "scripted/it".to_owned(), ..Default::default() }),
            ..Default::default()
        };
        let refused = [
            sessions.get_session(pb::GetSessionRequest { session_id: id() }).await.map(drop),
            sessions.update_session(update).await.map(drop),
            sessions.delete_session(named("s", "")).await.map(drop),
            sessions.list_messages(pb::ListMessagesRequest { session_id: id(), ..Default::default() }).await.map(drop),
            turns.list_events(pb::ListEventsRequest { session_id: id(), ..Default::default() }).await.map(drop),
            turns.list_turns(pb::ListTurnsRequest { session_id: id(), ..Default::default() }).await.map(drop),
            turns.get_turn(pb::GetTurnRequest { session_id: id(), turn_id: turn_id.clone() }).await.map(drop),
            turns.cancel_turn(pb::CancelTurnRequest { session_id: id(), ..Default::default() }).await.map(drop),
            turns.submit_tool_results(submit("s", vec![result("c", "late")])).await.map(drop),
            turns.watch_events(pb::WatchEventsRequest { session_id: id(), ..Default::default() }).await.map(drop),
            turns.execute_turn(asks("s", "Hello")).await.map(drop),
            turns.execute_turn(pb::ExecuteTurnRequest { session: None, ..asks("s", "Hello") }).await.map(drop),
        ];
        for (i, refused) in refused.into_iter().enumerate() {
            assert_eq!(reason(&refused.unwrap_err()), not_found(), "the {i}th");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_sessions_id_is_reserved_until_its_rows_are_purged() {
    let host = host().await;
    host.run(asks("s", "Hello")).await;
    let cut = host.run_with(asks("s", "Use tools"), |call| result(&call.call_id, &"x".repeat(40_000))).await;
    assert_eq!(completed(&cut).reason(), pb::CompletionReason::Stop);
    create(&host, "other", "").await.unwrap();
    enqueue(&host, "s", "q1").await;
    let blobs = host.database.row_counts().await.into_iter().find(|(table, _)| table == "blobs").unwrap();
    try_delete(&host, named("s", "d1")).await.unwrap();
    // More than one batch.
    let many = "insert into events (tenant_id, session_id, seq, epoch, step, attempt, kind, payload)
                select 'default', 's', -n, 1, 1, 1, 'message_committed', '' from generate_series(1, 1200) n";
    host.database.client().await.batch_execute(many).await.unwrap();

    as_worker(host.replica.engine.sessions.purge()).await.unwrap();
    let events = 1_200 + seqs(&cut).last().unwrap() + 1;
    assert!(rows(&host, "s").await.contains(&("events".to_owned(), events)), "for who follows it");
    let taken = create(&host, "s", "").await.unwrap_err();
    assert_eq!(reason(&taken), (Code::AlreadyExists, "SESSION_ALREADY_EXISTS".to_owned()));

    purge(&host).await;
    assert_eq!(rows(&host, "s").await, [("idempotency".to_owned(), 2)], "what remembers the deletion, and its epoch");
    assert!(rows(&host, "other").await.len() >= 3);
    assert!(host.database.row_counts().await.contains(&blobs), "a blob may be another's too");

    let anew = create(&host, "s", "").await.unwrap();
    assert_eq!((anew.last_seq, anew.etag.as_str()), (0, "1"));
    let told = host.run(asks("s", "Hello")).await;
    assert_eq!(seqs(&told), [1, 2, 3, 4, 5, 6]);
    assert_eq!(host.messages("s").await.len(), 2);
    try_delete(&host, named("s", "d1")).await.unwrap();
    assert_eq!(host.session("s").await.last_seq, 6, "a repeated deletion is not one of the session that came after");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_purge_does_not_touch_a_new_session_with_the_same_id() {
    let host = host().await;
    host.run(asks("s", "Hello")).await;
    delete(&host, "s").await;
    purge(&host).await;
    host.run(asks("s", "Hello again")).await;
    let before = rows(&host, "s").await;
    as_worker(host.replica.engine.store().purge(&key("s"))).await.unwrap();
    assert_eq!(rows(&host, "s").await, before);
    delete(&host, "s").await;
    let before = rows(&host, "s").await;
    as_worker(host.replica.engine.store().purge(&key("s"))).await.unwrap();
    assert_eq!(rows(&host, "s").await, before, "nor does it shorten the time for those who follow it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_session_is_not_listed_and_pages_are_full() {
    let host = host().await;
    for i in 0..9 {
        create(&host, &format!("s{i}"), "").await.unwrap();
    }
    for i in [1, 2, 4, 7, 8] {
        delete(&host, &format!("s{i}")).await;
    }
    for page_size in 1..=5 {
        let mut pages = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = pb::ListSessionsRequest { page_size, page_token, filter: None };
            let page = host.sessions().list_sessions(request).await.unwrap().into_inner();
            pages.push(page.sessions.iter().map(|session| session.session_id.clone()).collect::<Vec<_>>());
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(pages.concat(), ["s6", "s5", "s3", "s0"]);
        let (_, full) = pages.split_last().unwrap();
        assert!(full.iter().all(|page| page.len() == usize::try_from(page_size).unwrap()), "{pages:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_everywhere_show_the_end_of_the_turn_and_end_with_session_not_found() {
    let host = host().await;
    let other = host.beside(options()).await;
    let mut running = host.execute(asks("s", "Use tools")).await;
    let head = until(&mut running, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let calls = requested(&head);
    host.submit("s", vec![result(&calls[1], "fine")]).await;
    enqueue(&host, "s", "q1").await;
    enqueue(&host, "s", "q2").await;
    let turn_id = head[1].turn_id.clone();
    let mut watching =
        [host.watch("s", "", 0).await, other.watch("s", "", 0).await, other.watch("s", &turn_id, 0).await];
    for stream in &mut watching {
        until(stream, |payload| matches!(payload, Payload::Sync(_))).await;
    }
    delete(&other, "s").await;

    let (rest, status) = to_the_end(&mut running).await;
    let told = [
        "tool_call_completed",
        "queued_message_dropped",
        "queued_message_dropped",
        "tool_call_cancelled",
        "message_committed",
        "turn_cancelled",
    ];
    assert_eq!((kinds(&rest), reason(&status)), (told.to_vec(), not_found()));
    assert_eq!(status.metadata().get("contextd-turn-state").unwrap(), "CANCELLED");
    assert_eq!(closed(&rest), [("look".to_owned(), ToolCallCancelReason::TurnCancelled)]);
    let end = cancelled(&rest);
    assert_eq!((end.cause(), end.outcome()), (CancelCause::SessionDeleted, CancelOutcome::ToolsInProgress));
    let result = end.result.as_ref().unwrap();
    assert_eq!((result.step_count, result.queued_message_ids.len()), (1, 0));
    assert_eq!(result.total_usage.as_ref().unwrap().calls, 1);
    let dropped: Vec<_> = rest
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::QueuedMessageDropped(dropped)) => {
                Some((dropped.queued_message_id.as_str(), dropped.reason()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(dropped, [("q1", pb::DropReason::SessionDeleted), ("q2", pb::DropReason::SessionDeleted)]);
    for stream in &mut watching {
        let (seen, status) = to_the_end(stream).await;
        assert_eq!((kinds(&seen).last().unwrap(), reason(&status)), (&"turn_cancelled", not_found()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_stops_the_model_call_on_any_replica() {
    let host = host().await;
    let other = host.beside(options()).await;
    for (session, by) in [("here", &host), ("there", &other)] {
        let mut stream = host.execute(asks(session, "Speak slowly")).await;
        until_written(&mut stream, "So far").await;
        delete(by, session).await;
        let (rest, status) = to_the_end(&mut stream).await;
        assert_eq!((kinds(&rest), reason(&status)), (vec!["turn_cancelled"], not_found()));
        let end = cancelled(&rest);
        assert_eq!((end.cause(), end.outcome()), (CancelCause::SessionDeleted, CancelOutcome::Unspecified));
        // The model is not released: its owner is notified that it lost the turn.
        host.at_rest().await;
    }
    host.release("go");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_owner_is_gone_is_deleted_at_once() {
    let gone = host().await;
    let mut stream = gone.execute(asks("s", "Speak slowly")).await;
    until_written(&mut stream, "So far").await;
    gone.replica.stop_workers();
    let other = gone.beside(options()).await;
    delete(&other, "s").await;
    gone.release("go");
    gone.at_rest().await;
    let sql = "select kind from events where session_id = 's' order by seq";
    let told = gone.database.client().await.query(sql, &[]).await.unwrap();
    let told: Vec<String> = told.iter().map(|row| row.get(0)).collect();
    assert_eq!(told, ["turn_started", "message_committed", "step_started", "turn_cancelled"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_with_a_stale_etag_is_refused() {
    let host = host().await;
    let session = create(&host, "s", "").await.unwrap();
    let with = |etag: &str| pb::DeleteSessionRequest { etag: etag.to_owned(), ..named("s", "") };
    let refused = try_delete(&host, with("7")).await.unwrap_err();
    assert_eq!(refusal(&refused, "etag"), (Code::Aborted, "ETAG_MISMATCH".to_owned(), session.etag.clone()));
    assert_eq!(host.session("s").await, session);
    try_delete(&host, with(&session.etag)).await.unwrap();
    assert_eq!(reason(&try_delete(&host, with("7")).await.unwrap_err()), not_found());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_deletion_is_answered_as_the_first_one() {
    let host = host().await;
    let other = host.beside(options()).await;
    host.run(asks("s", "Hello")).await;
    let once = named("s", "d1");
    try_delete(&host, once.clone()).await.unwrap();
    try_delete(&host, once.clone()).await.unwrap();
    purge(&host).await;
    try_delete(&other, once.clone()).await.unwrap();
    let changed = pb::DeleteSessionRequest { etag: "1".to_owned(), ..once };
    let refused = try_delete(&host, changed).await.unwrap_err();
    assert_eq!(refusal(&refused, "request_id"), (Code::InvalidArgument, "IDEMPOTENCY_MISMATCH".into(), "d1".into()));
    for request in ["", "d2"] {
        assert_eq!(reason(&try_delete(&host, named("s", request)).await.unwrap_err()), not_found());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_at_once_on_two_replicas_delete_once() {
    let host = host().await;
    let other = host.beside(options()).await;
    for round in 0..8 {
        let id = format!("s{round}");
        let mut stream = host.execute(asks(&id, "Use tools")).await;
        until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
        let request = |n: i32| named(&id, if n < 4 { "same" } else { "" });
        let at_once = (0..8).map(|n| try_delete(if n % 2 == 0 { &host } else { &other }, request(n)));
        let answers = futures_util::future::join_all(at_once).await;
        let (known, unknown) = answers.split_at(4);
        let done = unknown.iter().filter(|answer| answer.is_ok()).count();
        assert!(done <= 1, "{answers:?}");
        // Either the four requests with the same key succeeded, or one of the others succeeded before them.
        assert!(known.iter().all(|answer| answer.is_ok() == (done == 0)), "{answers:?}");
        let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        assert!(refused.map(reason).all(|reason| reason == not_found()), "{answers:?}");
        let (rest, _) = to_the_end(&mut stream).await;
        assert_eq!(kinds(&rest).iter().filter(|kind| **kind == "turn_cancelled").count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_create_request_does_not_recreate_a_deleted_session() {
    let host = host().await;
    create(&host, "s", "made").await.unwrap();
    let session_less = pb::ExecuteTurnRequest { session_id: String::new(), ..asks("", "Hello") };
    let other = host.run(session_less.clone()).await[0].session_id.clone();
    for id in ["s", other.as_str()] {
        delete(&host, id).await;
    }
    assert_eq!(reason(&create(&host, "s", "made").await.unwrap_err()), not_found());
    assert_eq!(reason(&host.try_execute(session_less).await.unwrap_err()), not_found());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_waiting_on_a_deleted_session_returns_not_found() {
    let gone = host().await;
    let mut stream = gone.execute(asks("s", "Speak slowly")).await;
    until_written(&mut stream, "So far").await;
    gone.replica.stop_workers();
    let other = gone.beside(Options { workers: false, ..options() }).await;
    let mut turns = other.turns();
    let waiting = tokio::spawn(async move {
        let cancel = pb::CancelTurnRequest { session_id: "s".to_owned(), ..pb::CancelTurnRequest::default() };
        turns.cancel_turn(cancel).await.map(drop)
    });
    let client = gone.database.client().await;
    eventually("the cancel to be recorded", || async {
        client.query_one("select cancel from session_run", &[]).await.unwrap().get::<_, i16>(0) == 1
    })
    .await;
    delete(&other, "s").await;
    assert_eq!(reason(&waiting.await.unwrap().unwrap_err()), not_found());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_of_a_session_whose_rows_are_being_removed_gets_no_event_without_payload() {
    let host = host().await;
    let seen = host.ask("s", "Hello").await;
    delete(&host, "s").await;
    let most = EventPageLimits { events: 100, bytes: 1 << 20, overhead: 256, at_least_one: true };
    let store = host.replica.engine.store();
    let page = async || {
        let page = as_worker(store.follow(&key("s"), Seq(0), most)).await.unwrap();
        (page.events.len(), page.is_gone)
    };
    let durable = seen.iter().filter(|event| event.seq > 0).count();
    assert_eq!(page().await, (durable, false), "{:?}", kinds(&seen));
    // The state after a purge was interrupted halfway.
    let client = host.database.client().await;
    for table in ["parts", "messages"] {
        let sql = format!("delete from {table} where session_id = 's'");
        client.batch_execute(&sql).await.unwrap();
        assert_eq!(page().await, (0, true), "{table}");
    }
    purge(&host).await;
    assert_eq!(page().await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_removed_by_a_worker_and_a_stream_sees_the_end_first() {
    let lease = Duration::from_secs(1);
    let host = Host::with(Options { lease, ..options() }).await;
    let mut stream = host.execute(asks("s", "Use tools")).await;
    until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    delete(&host, "s").await;
    let (rest, _) = to_the_end(&mut stream).await;
    assert_eq!(kinds(&rest).last().unwrap(), &"turn_cancelled");
    eventually("the rows to go", || async { rows(&host, "s").await.iter().all(|(table, _)| table == "idempotency") })
        .await;
    create(&host, "s", "").await.unwrap();
    let again = all(&mut host.execute(asks("s", "Hello")).await).await;
    assert_eq!(completed(&again).reason(), pb::CompletionReason::Stop);
}
