//! A tenant that tries to exceed its quotas.

use std::time::Duration;

use contextd::{
    model::Access,
    model::TenantLimits,
    pb::{
        self, blob_service_client::BlobServiceClient, context_service_client::ContextServiceClient,
        put_blob_request::Data, session_service_client::SessionServiceClient,
    },
};
use futures_util::future::join_all;
use prost_types::FieldMask;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use super::{
    siege::{Client, Siege, Target},
    wire::Tally,
};
use crate::{
    auth::{
        KeysFile,
        limits::{Tenant, held, limited, rate_limited, used_up},
    },
    harness::{
        Options, Replica, TestDatabase, as_worker,
        errors::refusal,
        events::{all, cancelled, completed, failed, until_written},
        host::{MODEL, until},
        requests::{enqueue, turn},
        transcripts::{append, fork, one_turn, says},
    },
};

/// The storage quota of a tenant in these tests, and the size of one large item, in bytes.
const QUOTA: u64 = 3_000_000;
const LARGE: usize = 500_000;

fn tokens_per_minute(limit: u64) -> TenantLimits {
    TenantLimits { tokens_per_minute: Some(limit), ..TenantLimits::default() }
}

/// A replica with one tenant.
async fn one(limits: TenantLimits, answers: &[Value]) -> (TestDatabase, Replica, Tenant) {
    let mut file = KeysFile::new();
    let key = file.add("acme", Access::Admin);
    let (database, replica) = Replica::alone(limited(&file, answers, limits)).await;
    let acme = Tenant::of(&replica, &key).await;
    (database, replica, acme)
}

/// The tokens that a tenant owes. They are repaid at one per second.
async fn owed(tenant: &Tenant) -> i64 {
    tenant.used().await.tokens_owed.unwrap().seconds
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_cancelled_before_its_last_chunk_is_charged_for_what_was_streamed() {
    let answer = json!([{"repeat": {"text": "word ", "times": 300}}, {"text": "Held"}, {"wait_for": "go"}]);
    let (_database, _replica, acme) = one(tokens_per_minute(60), &[answer]).await;
    let mut stream = acme.execute(turn("s", MODEL, "Go")).await.unwrap();
    until_written(&mut stream, &format!("{}Held", "word ".repeat(300))).await;
    let cancel = pb::CancelTurnRequest { session_id: "s".to_owned(), ..pb::CancelTurnRequest::default() };
    acme.turns.clone().cancel_turn(cancel).await.unwrap();
    cancelled(&all(&mut stream).await);
    let owed = owed(&acme).await;
    eprintln!("owed after a cancelled call: {owed} s");
    assert!((300..600).contains(&owed), "{owed}");
    let refused = acme.execute(turn("t", MODEL, "Go")).await.unwrap_err();
    rate_limited(&refused, "tokens_per_minute", 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_service_reports_no_usage_is_charged_by_the_estimate() {
    let answer = json!([
        {"repeat": {"text": "word ", "times": 300}},
        {"finish": {"reason": "stop", "usage": null}}
    ]);
    let (_database, _replica, acme) = one(tokens_per_minute(60), &[answer]).await;
    let mut stream = acme.execute(turn("s", MODEL, "Go")).await.unwrap();
    completed(&all(&mut stream).await);
    let owed = owed(&acme).await;
    eprintln!("owed after a call without a report: {owed} s");
    assert!((300..600).contains(&owed), "{owed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_its_service_refuses_costs_nothing() {
    let answer = json!([{"error": {"kind": "bad_request", "message": "no"}}]);
    let (_database, _replica, acme) = one(tokens_per_minute(60), &[answer]).await;
    let mut stream = acme.execute(turn("s", MODEL, "Go")).await.unwrap();
    failed(&all(&mut stream).await);
    assert_eq!(owed(&acme).await, 0);
}

/// Each call may use 4,096 tokens, the `max_output` of the script.
#[tokio::test(flavor = "multi_thread")]
async fn calls_under_way_reserve_the_tokens_that_they_may_take() {
    const TURNS: usize = 12;
    let (_database, replica, acme) = one(tokens_per_minute(10_000), &held()).await;
    let started = (0..TURNS).map(|n| {
        let request = turn(&format!("s{n}"), MODEL, "Go");
        let acme = &acme;
        async move { acme.execute(request).await }
    });
    let mut refused = 0;
    let mut streams = Vec::new();
    for started in join_all(started).await {
        match started {
            Ok(stream) => streams.push(stream),
            Err(status) => {
                rate_limited(&status, "tokens_per_minute", 10_000);
                refused += 1;
            }
        }
    }
    until("the first calls", || async { replica.scripted.prompts().len() >= 3 }).await;
    let late = acme.execute(turn("late", MODEL, "Go")).await.unwrap_err();
    rate_limited(&late, "tokens_per_minute", 10_000);
    let calls = replica.scripted.prompts().len();
    eprintln!("calls at once: {calls}, refused {refused}, waiting {}", streams.len() - calls);
    assert_eq!(calls, 3, "two leave less than a minute's tokens, a third takes them");
    // They used few tokens in the end, so the waiting calls continue.
    replica.scripted.release("go");
    for stream in &mut streams {
        completed(&all(stream).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_what_calls_under_way_reserve() {
    let mut file = KeysFile::new();
    let key = file.add("acme", Access::Admin);
    let database = TestDatabase::new().await;
    let options = || limited(&file, &held(), tokens_per_minute(5_000));
    let here = Replica::start(&database, options()).await;
    let there = Replica::start(&database, options()).await;
    let acme = Tenant::of(&here, &key).await;
    let _first = acme.hold("first").await;
    let _second = acme.hold("second").await;
    as_worker(here.engine.keep_quotas()).await.unwrap();
    // A replica learns the usage of a new tenant at its first request.
    let there = Tenant::of(&there, &key).await;
    let refused = there.execute(turn("third", MODEL, "Go")).await.unwrap_err();
    rate_limited(&refused, "tokens_per_minute", 5_000);
}

fn running_turns(limit: u64) -> TenantLimits {
    TenantLimits { running_turns: Some(limit), ..TenantLimits::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn compactions_count_as_running_turns() {
    const SESSIONS: usize = 12;
    let mut file = KeysFile::new();
    let key = file.add("acme", Access::Admin);
    let sum = json!({"context_window": 100_000, "max_output": 4_000,
        "steps": [{"say": [{"text": "Held"}, {"wait_for": "go"}, {"text": " up."}]}]});
    let options = limited(&file, &held(), running_turns(1)).script("sum", sum.to_string());
    let (_database, replica) = Replica::alone(options).await;
    let acme = Tenant::of(&replica, &key).await;
    for n in 0..SESSIONS {
        let session = pb::Session { session_id: format!("s{n}"), model: MODEL.to_owned(), ..pb::Session::default() };
        create(&acme, session).await.unwrap();
        for call in 0..4 {
            let messages = one_turn(&format!("c{call}"), 3_000);
            let appended = append(&format!("s{n}"), messages);
            acme.sessions.clone().append_messages(appended).await.unwrap();
        }
    }
    let compact = |n: usize| {
        let request = pb::CompactRequest {
            session_id: format!("s{n}"),
            request_id: format!("r{n}"),
            summary_model: "scripted/sum".to_owned(),
            ..pb::CompactRequest::default()
        };
        let mut contexts = acme.contexts.clone();
        async move { contexts.compact(request).await }
    };
    let begun = join_all((0..SESSIONS).map(compact)).await;
    let running = begun.iter().filter(|it| it.is_ok()).count();
    eprintln!("compactions at once: {running}");
    assert_eq!(running, 1);
    for refused in begun.into_iter().filter_map(Result::err) {
        rate_limited(&refused, "running_turns", 1);
    }
    assert_eq!(acme.used().await.running_turns, 1);
    let refused = acme.execute(turn("t", MODEL, "Go")).await.unwrap_err();
    rate_limited(&refused, "running_turns", 1);
    replica.scripted.release("go");
    until("the compaction to end", || async { acme.used().await.running_turns == 0 }).await;
    let mut stream = acme.execute(turn("t", MODEL, "Go")).await.unwrap();
    completed(&all(&mut stream).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_start_no_turn_take_the_place_of_none() {
    const TURNS: usize = 20;
    let answer = json!([{"text": "Done."}]);
    let (_database, _replica, acme) = one(running_turns(1), &[answer]).await;
    for n in 0..3 {
        let session = pb::Session { session_id: format!("q{n}"), model: MODEL.to_owned(), ..pb::Session::default() };
        create(&acme, session).await.unwrap();
    }
    let queueing: Vec<_> = (0..3)
        .map(|n| {
            let mut queue = acme.queue.clone();
            tokio::spawn(async move {
                loop {
                    let message = pb::EnqueueMessageRequest {
                        on_idle: pb::IdleAction::Hold.into(),
                        ..enqueue(&format!("q{n}"), "Hello")
                    };
                    let _ = queue.enqueue_message(message).await; // some calls find the queue full
                }
            })
        })
        .collect();
    let mut refused = 0;
    for n in 0..TURNS {
        match acme.execute(turn(&format!("s{n}"), MODEL, "Go")).await {
            Ok(mut stream) => {
                completed(&all(&mut stream).await);
            }
            Err(status) => {
                rate_limited(&status, "running_turns", 1);
                refused += 1;
            }
        }
        until("the turn to be over here", || async { acme.used().await.running_turns == 0 }).await;
    }
    for task in queueing {
        task.abort();
    }
    eprintln!("turns refused beside messages that are held: {refused} of {TURNS}");
    assert_eq!(refused, 0);
}

async fn create(tenant: &Tenant, session: pb::Session) -> Result<(), Status> {
    let request = pb::CreateSessionRequest { session: Some(session), ..pb::CreateSessionRequest::default() };
    tenant.sessions.clone().create_session(request).await.map(drop)
}

fn session(id: &str) -> pb::Session {
    pb::Session { session_id: id.to_owned(), model: MODEL.to_owned(), ..pb::Session::default() }
}

/// A replica with a tenant whose quota is [`QUOTA`] bytes and that has stored almost nothing.
async fn with_quota() -> (TestDatabase, Replica, Tenant) {
    let limits = TenantLimits { stored_bytes: Some(QUOTA), ..TenantLimits::default() };
    let (database, replica, acme) = one(limits, &[json!([{"text": "Done."}])]).await;
    create(&acme, session("s")).await.unwrap();
    as_worker(replica.engine.capacity.quotas.measure()).await.unwrap();
    as_worker(replica.engine.keep_quotas()).await.unwrap();
    (database, replica, acme)
}

/// Stores large items until one is refused. Fails unless the stored bytes are close to the quota.
async fn stored_until_refused<F>(what: &str, store: impl Fn(usize) -> F)
where
    F: Future<Output = Result<(), Status>>,
{
    const TRIES: usize = 40;
    for n in 0..TRIES {
        let Err(refused) = store(n).await else {
            continue;
        };
        used_up(&refused, "stored_bytes");
        eprintln!("{what}: {} bytes beside a quota of {QUOTA}", n * LARGE);
        assert!(n * LARGE <= QUOTA as usize + LARGE, "{what}");
        assert!(n > 0, "{what}: nothing could be stored");
        return;
    }
    panic!("{what}: {} bytes, and none was refused", TRIES * LARGE);
}

fn large(n: usize) -> String {
    format!("{n} {}", "x".repeat(LARGE))
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_a_tenant_stores_counts_before_it_is_measured() {
    // Each case has a separate replica, which stops before the next one starts.
    {
        let (_database, _replica, acme) = Box::pin(with_quota()).await;
        stored_until_refused("prompts of new sessions", |n| {
            let session = pb::Session { system_prompt: large(n), ..session(&format!("new-{n}")) };
            create(&acme, session)
        })
        .await;
    }
    {
        let (_database, _replica, acme) = Box::pin(with_quota()).await;
        stored_until_refused("revisions", |n| {
            let request = pb::UpdateSessionRequest {
                session: Some(pb::Session { system_prompt: large(n), ..session("s") }),
                update_mask: Some(FieldMask { paths: vec!["system_prompt".to_owned()] }),
                ..pb::UpdateSessionRequest::default()
            };
            let mut sessions = acme.sessions.clone();
            async move { sessions.update_session(request).await.map(drop) }
        })
        .await;
    }
    {
        let (_database, _replica, acme) = Box::pin(with_quota()).await;
        stored_until_refused("tool sets", |n| {
            let mut tools = crate::harness::requests::tools(&["look"]).unwrap();
            tools.host_tools[0].description = large(n);
            let session = pb::Session { tools: Some(tools), ..session(&format!("new-{n}")) };
            create(&acme, session)
        })
        .await;
    }
    {
        let (_database, _replica, acme) = Box::pin(with_quota()).await;
        let appended = append("s", vec![says(pb::Role::User, &large(0))]);
        acme.sessions.clone().append_messages(appended).await.unwrap();
        stored_until_refused("forks", |n| {
            let request = fork("s", 0, &format!("fork-{n}"));
            let mut sessions = acme.sessions.clone();
            async move { sessions.fork_session(request).await.map(drop) }
        })
        .await;
    }
    {
        let (_database, _replica, acme) = Box::pin(with_quota()).await;
        stored_until_refused("messages", |n| {
            let appended = append("s", vec![says(pb::Role::User, &large(n))]);
            let mut sessions = acme.sessions.clone();
            async move { sessions.append_messages(appended).await.map(drop) }
        })
        .await;
    }
    {
        let (_database, _replica, acme) = Box::pin(with_quota()).await;
        stored_until_refused("turns", |n| {
            let request = turn(&format!("new-{n}"), MODEL, &large(n));
            let acme = &acme;
            async move {
                let mut stream = acme.execute(request).await?;
                completed(&all(&mut stream).await);
                Ok(())
            }
        })
        .await;
    }
    {
        let (_database, _replica, acme) = Box::pin(with_quota()).await;
        stored_until_refused("queued messages", |n| {
            let message = pb::EnqueueMessageRequest {
                on_idle: pb::IdleAction::Hold.into(),
                request_id: format!("r{n}"),
                ..enqueue("s", &large(n))
            };
            let mut queue = acme.queue.clone();
            async move { queue.enqueue_message(message).await.map(drop) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_under_way_count() {
    let (_database, _replica, acme) = Box::pin(with_quota()).await;
    let (pieces, upload) = mpsc::channel(1);
    let mut blobs = acme.blobs.clone();
    let uploading = tokio::spawn(async move { blobs.put_blob(ReceiverStream::new(upload)).await });
    let header = pb::BlobHeader { media_type: "application/x-test".to_owned(), ..pb::BlobHeader::default() };
    let send = |data| pieces.send(pb::PutBlobRequest { data: Some(data) });
    send(Data::Header(header)).await.unwrap();
    let mut sent = 0;
    while sent < 40 * LARGE && send(Data::Chunk(vec![7; LARGE])).await.is_ok() {
        sent += LARGE;
    }
    drop(pieces);
    let refused = uploading.await.unwrap().unwrap_err();
    eprintln!("an upload was refused after {sent} bytes beside a quota of {QUOTA}");
    used_up(&refused, "stored_bytes");
    // Deleted content no longer counts.
    acme.put(LARGE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_cannot_be_measured_holds_up_no_other_and_is_not_free() {
    const TOO_LONG: &str = "create function too_long() returns bigint language plpgsql as
        $$ begin raise 'canceling statement due to statement timeout' using errcode = '57014'; end $$";
    let mut file = KeysFile::new();
    let [large, small] = ["a-large", "small"].map(|tenant| file.add(tenant, Access::Admin));
    let limits = TenantLimits { stored_bytes: Some(QUOTA), ..TenantLimits::default() };
    let options = Options {
        // Measuring more than four sessions at once times out, and so does measuring one session of the large tenant.
        replace: Some(|sql| {
            if sql.starts_with("-- store::stored_bytes::of_sessions") {
                "-- store::stored_bytes::of_sessions
                 select case when cardinality($2::text[]) > 4 or 's7' = any($2) and $1 like '%large' then too_long()
                             else 1000000::bigint * cardinality($2) end as bytes"
            } else {
                sql
            }
        }),
        ..limited(&file, &held(), limits)
    };
    let (database, replica) = Replica::alone(options).await;
    let client = database.client().await;
    client.batch_execute(TOO_LONG).await.unwrap();
    let large = Tenant::of(&replica, &large).await;
    let small = Tenant::of(&replica, &small).await;
    for n in 0..10 {
        create(&large, session(&format!("s{n}"))).await.unwrap();
    }
    create(&small, session("s")).await.unwrap();
    let measured = || async {
        client.execute("update tenant_use set measured_at = '-infinity'", &[]).await.unwrap();
        let measured = as_worker(replica.engine.capacity.quotas.measure()).await;
        as_worker(replica.engine.keep_quotas()).await.unwrap();
        measured
    };
    measured().await.unwrap_err();
    assert!(small.used().await.stored_bytes.unwrap() >= 1_000_000);
    // Seven of its sessions were measured.
    let refused = create(&large, session("more")).await.unwrap_err();
    used_up(&refused, "stored_bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_trickle_leave_places_to_other_tenants() {
    let mut file = KeysFile::new();
    let [greedy, other] = ["greedy", "other"].map(|tenant| file.add(tenant, Access::Write));
    let mut options = limited(&file, &held(), TenantLimits::default());
    options.blobs.max_uploads = 32;
    let (_database, replica) = Replica::alone(options).await;
    let greedy = Tenant::of(&replica, &greedy).await;
    let mut uploads = Vec::new();
    for _ in 0..40 {
        let (pieces, upload) = mpsc::channel(1);
        let header = pb::BlobHeader { media_type: "application/x-test".to_owned(), ..pb::BlobHeader::default() };
        let header = pb::PutBlobRequest { data: Some(Data::Header(header)) };
        let mut blobs = greedy.blobs.clone();
        let uploading = tokio::spawn(async move { blobs.put_blob(ReceiverStream::new(upload)).await });
        pieces.send(header).await.unwrap();
        uploads.push((pieces, uploading));
    }
    until("the uploads that are too many", || async { uploads.iter().any(|(_, uploading)| uploading.is_finished()) })
        .await;
    let other = Tenant::of(&replica, &other).await;
    other.put(10).await.unwrap();
    let mut places = 0;
    for (pieces, uploading) in uploads {
        drop(pieces);
        match uploading.await.unwrap() {
            Ok(_) => places += 1,
            Err(status) => {
                assert_eq!((status.code(), refusal(&status).reason.as_str()), (Code::Unavailable, "OVERLOADED"))
            }
        }
    }
    eprintln!("uploads of one tenant at once: {places} of 32");
    assert!((20..32).contains(&places), "{places}");
}

/// Counts the tokens of a text.
async fn count(tenant: &Tenant, bytes: usize) -> Result<(), Status> {
    let request = pb::CountTokensRequest {
        messages: vec![says(pb::Role::User, &"word ".repeat(bytes / 5))],
        model: MODEL.to_owned(),
        ..pb::CountTokensRequest::default()
    };
    tenant.contexts.clone().count_tokens(request).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_of_another_tenant_waits_for_one_of_a_greedy_tenant_and_not_for_all() {
    const COUNTS: usize = 24;
    let mut file = KeysFile::new();
    let [greedy, other] = ["greedy", "other"].map(|tenant| file.add(tenant, Access::Read));
    let options = Options { max_large_requests: 1, ..limited(&file, &held(), TenantLimits::default()) };
    let (_database, replica) = Replica::alone(options).await;
    let greedy = Tenant::of(&replica, &greedy).await;
    let other = Tenant::of(&replica, &other).await;
    let mut counts: JoinSet<_> = (0..COUNTS)
        .map(|_| {
            let greedy = greedy.clone();
            async move { count(&greedy, 1_000_000).await }
        })
        .collect();
    counts.join_next().await.unwrap().unwrap().unwrap();
    count(&other, 10).await.unwrap();
    let mut before = 1;
    while let Some(counted) = counts.try_join_next() {
        counted.unwrap().unwrap();
        before += 1;
    }
    eprintln!("counts of the greedy tenant before the other's: {before} of {COUNTS}");
    assert!(before < COUNTS / 2, "{before}");
    while let Some(counted) = counts.join_next().await {
        counted.unwrap().unwrap();
    }
}

/// The number of sessions and uploads of the attacker.
const SESSIONS: usize = 12;
const UPLOADS: usize = 40;

/// Appends to a session and compacts it repeatedly. Returns the number of compactions.
async fn compactions(client: Client, session: String, until: Instant) -> usize {
    let mut sessions = SessionServiceClient::new(client.channel.clone());
    let mut contexts = ContextServiceClient::new(client.channel.clone());
    let mut compacted = 0;
    for n in 0.. {
        for call in 0..4 {
            let messages = one_turn(&format!("c{n}-{call}"), 3_000);
            let appended = client.request(append(&session, messages));
            sessions.append_messages(appended).await.unwrap();
        }
        let request = client.request(pb::CompactRequest {
            session_id: session.clone(),
            wait: true,
            ..pb::CompactRequest::default()
        });
        match contexts.compact(request).await {
            Ok(_) => compacted += 1,
            Err(status) => assert_ne!(status.code(), Code::Internal, "{status}"),
        }
        if Instant::now() >= until {
            break;
        }
    }
    compacted
}

/// An upload that sends one byte at intervals.
async fn trickle(client: Client, until: Instant) -> Result<(), Status> {
    const PAUSE: Duration = Duration::from_millis(50);
    let header = pb::BlobHeader { media_type: "application/x-test".to_owned(), ..pb::BlobHeader::default() };
    let (pieces, upload) = mpsc::channel(1);
    let upload = client.request(ReceiverStream::new(upload));
    let mut blobs = BlobServiceClient::new(client.channel);
    let uploading = tokio::spawn(async move { blobs.put_blob(upload).await });
    let mut data = Data::Header(header);
    while Instant::now() < until {
        let piece = pb::PutBlobRequest { data: Some(data) };
        if pieces.send(piece).await.is_err() {
            break; // the upload was refused
        }
        sleep(PAUSE).await;
        data = Data::Chunk(vec![7]);
    }
    drop(pieces);
    uploading.await.unwrap().map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_trickle_and_compactions_at_once_hold_no_other_client() {
    let name = "trickling uploads, compactions";
    let (siege, key) = Siege::guarded_from(name, "[blobs]\nmax_uploads = 32\n", "write").await;
    let attacker = siege.client_with(&key).await;
    let mut sessions = SessionServiceClient::new(attacker.channel.clone());
    for n in 0..SESSIONS {
        let session = pb::Session { model: "scripted/brief".to_owned(), ..session(&format!("s{n}")) };
        let create = attacker
            .request(pb::CreateSessionRequest { session: Some(session), ..pb::CreateSessionRequest::default() });
        sessions.create_session(create).await.unwrap();
    }
    let attack = move |target: Target| async move {
        let uploads = (0..UPLOADS).map(|_| trickle(attacker.clone(), target.until));
        let compacted = (0..SESSIONS).map(|n| compactions(attacker.clone(), format!("s{n}"), target.until));
        let (uploads, compacted) = tokio::join!(join_all(uploads), join_all(compacted));
        let refused = uploads.iter().filter(|upload| upload.is_err()).count();
        let compacted: usize = compacted.into_iter().sum();
        eprintln!("uploads refused: {refused} of {UPLOADS}; compactions: {compacted}");
        assert!((8..UPLOADS).contains(&refused) && compacted > 0);
        Tally::default()
    };
    siege.growing(256).attacked(attack).await;
}
