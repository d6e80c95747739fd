//! The limits of tenants on requests, turns, tokens and bytes, and how tenants share a replica.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use contextd::{
    model::Access,
    model::TenantLimits,
    pb::{
        self, admin_service_client::AdminServiceClient, blob_service_client::BlobServiceClient,
        context_service_client::ContextServiceClient, event::Payload, put_blob_request::Data,
        queue_service_client::QueueServiceClient, session_service_client::SessionServiceClient,
        turn_service_client::TurnServiceClient,
    },
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt as _;

use super::{Key, Keyed, KeysFile, connect};
use crate::harness::{
    Options, Replica, TestDatabase, as_worker,
    errors::refusal,
    events::{all, cancelled, completed, requested, until as until_event, until_written},
    host::{MODEL, call, script, until},
    requests::{enqueue, result, submit, tools, turn},
    transcripts::says,
};

/// The documented time within which a changed limit is in force on every replica.
const PROMISED: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) admin: AdminServiceClient<Keyed>,
    pub(crate) blobs: BlobServiceClient<Keyed>,
    pub(crate) queue: QueueServiceClient<Keyed>,
    pub(crate) sessions: SessionServiceClient<Keyed>,
    pub(crate) turns: TurnServiceClient<Keyed>,
    pub(crate) contexts: ContextServiceClient<Keyed>,
}

impl Tenant {
    pub(crate) async fn of(replica: &Replica, key: &Key) -> Self {
        let channel = connect(replica, key).await;
        Self {
            admin: AdminServiceClient::new(channel.clone()),
            blobs: BlobServiceClient::new(channel.clone()),
            queue: QueueServiceClient::new(channel.clone()),
            sessions: SessionServiceClient::new(channel.clone()),
            turns: TurnServiceClient::new(channel.clone()),
            contexts: ContextServiceClient::new(channel),
        }
    }

    pub(crate) async fn list(&self) -> Result<(), Status> {
        let request = pb::ListSessionsRequest::default();
        let listed = self.sessions.clone().list_sessions(request).await;
        listed.map(drop)
    }

    pub(crate) async fn execute(
        &self,
        request: pb::ExecuteTurnRequest,
    ) -> Result<Streaming<pb::ExecuteTurnResponse>, Status> {
        let stream = self.turns.clone().execute_turn(request).await?;
        Ok(stream.into_inner())
    }

    /// Starts a turn that blocks after the beginning of its response.
    pub(crate) async fn hold(&self, session: &str) -> Streaming<pb::ExecuteTurnResponse> {
        let mut stream = self.execute(turn(session, MODEL, "Go")).await.unwrap();
        until_written(&mut stream, "Held").await;
        stream
    }

    pub(crate) async fn set(&self, tenant: &str, limits: pb::TenantLimits) -> pb::TenantLimits {
        let request = pb::SetTenantLimitsRequest { tenant_id: tenant.to_owned(), limits: Some(limits) };
        let set = self.admin.clone().set_tenant_limits(request).await;
        set.unwrap().into_inner().in_force.unwrap()
    }

    pub(crate) async fn used(&self) -> pb::TenantUse {
        let request = pb::GetTenantLimitsRequest::default();
        let found = self.admin.clone().get_tenant_limits(request).await;
        found.unwrap().into_inner().r#use.unwrap()
    }

    pub(crate) async fn put(&self, bytes: usize) -> Result<(), Status> {
        let header = pb::BlobHeader { media_type: "application/x-test".to_owned(), ..pb::BlobHeader::default() };
        let pieces = [Data::Header(header), Data::Chunk(vec![7; bytes])];
        let pieces = pieces.map(|data| pb::PutBlobRequest { data: Some(data) });
        let mut blobs = self.blobs.clone();
        blobs.put_blob(tokio_stream::iter(pieces)).await.map(drop)
    }
}

/// Options with one script, and limits for every tenant.
pub(crate) fn limited(file: &KeysFile, answers: &[Value], tenant_limits: TenantLimits) -> Options {
    Options { tenant_limits, ..file.required() }.script("it", script(answers))
}

pub(crate) fn held() -> [Value; 1] {
    [json!([{"text": "Held"}, {"wait_for": "go"}, {"text": " up."}])]
}

/// Fails unless the limit was exceeded. Returns the retry delay.
pub(crate) fn rate_limited(status: &Status, quota: &str, limit: u64) -> Duration {
    let refused = refusal(status);
    assert_eq!((refused.code, refused.reason.as_str()), (Code::ResourceExhausted, "RATE_LIMITED"), "{status:?}");
    assert_eq!(refused.metadata["quota"], quota);
    assert_eq!(refused.metadata["limit"], limit.to_string());
    let details = status.get_error_details();
    let violations = &details.quota_failure().unwrap().violations;
    assert!(violations[0].description.contains(quota));
    let retry = details.retry_info().unwrap().retry_delay.unwrap();
    assert!(!retry.is_zero());
    retry
}

/// Fails unless the quota is used up, which has no retry delay.
#[track_caller]
pub(crate) fn used_up(status: &Status, quota: &str) {
    let refused = refusal(status);
    assert_eq!((refused.code, refused.reason.as_str()), (Code::ResourceExhausted, "QUOTA_EXCEEDED"), "{status:?}");
    assert_eq!(refused.metadata["quota"], quota);
    assert!(status.get_error_details().retry_info().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_rate_are_refused_until_the_time_that_the_answer_names() {
    let mut file = KeysFile::new();
    let (busy, other) = (file.add("busy", Access::Write), file.add("other", Access::Write));
    let limits = TenantLimits { requests_per_second: Some(4), ..TenantLimits::default() };
    let (_database, replica) = Replica::alone(limited(&file, &held(), limits)).await;
    let busy = Tenant::of(&replica, &busy).await;
    let mut taken = 0;
    let begun = Instant::now();
    let refused = loop {
        match busy.list().await {
            Ok(()) => taken += 1,
            Err(refused) => break refused,
        }
    };
    let told = Instant::now();
    let retry = rate_limited(&refused, "requests_per_second", 4);
    assert!(retry <= Duration::from_millis(250), "{retry:?}");
    let refilled = begun.elapsed().as_secs_f64() * 4.0;
    assert!(taken >= 4 && f64::from(taken) <= 5.0 + refilled, "{taken} in {refilled}");
    Tenant::of(&replica, &other).await.list().await.unwrap();
    tokio::time::sleep_until(told + retry).await;
    busy.list().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_beyond_the_limit_are_refused_and_queued_messages_wait() {
    let mut file = KeysFile::new();
    let key = file.add("acme", Access::Admin);
    let limits = TenantLimits { running_turns: Some(1), ..TenantLimits::default() };
    let (_database, replica) = Replica::alone(limited(&file, &held(), limits)).await;
    let acme = Tenant::of(&replica, &key).await;
    let mut first = acme.hold("first").await;
    let refused = acme.execute(turn("second", MODEL, "Go")).await;
    rate_limited(&refused.unwrap_err(), "running_turns", 1);
    assert_eq!(acme.used().await.running_turns, 1);

    let create = pb::CreateSessionRequest {
        session: Some(pb::Session {
            session_id: "third".to_owned(),
            model: MODEL.to_owned(),
            ..pb::Session::default()
        }),
        ..pb::CreateSessionRequest::default()
    };
    acme.sessions.clone().create_session(create).await.unwrap();
    let message = pb::EnqueueMessageRequest { on_idle: pb::IdleAction::StartTurn.into(), ..enqueue("third", "Hello") };
    acme.queue.clone().enqueue_message(message).await.unwrap();
    let third = || async {
        let request = pb::GetSessionRequest { session_id: "third".to_owned() };
        let found = acme.sessions.clone().get_session(request).await;
        found.unwrap().into_inner().session.unwrap()
    };
    assert_eq!(third().await.state(), pb::SessionState::Idle);
    as_worker(replica.engine.start_waiting_turns()).await.unwrap();
    assert_eq!(third().await.state(), pb::SessionState::Idle);

    replica.scripted.release("go");
    completed(&all(&mut first).await);
    until("the message that waits to start its turn", || async {
        let third = third().await;
        third.last_seq > 1 && third.state() == pb::SessionState::Idle
    })
    .await;
    let mut second = acme.execute(turn("second", MODEL, "Go")).await.unwrap();
    completed(&all(&mut second).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_that_wait_for_tools_do_not_count_as_running() {
    let mut file = KeysFile::new();
    let key = file.add("acme", Access::Write);
    let limits = TenantLimits { running_turns: Some(1), ..TenantLimits::default() };
    let answers = [json!([call("look")])];
    let (_database, replica) = Replica::alone(limited(&file, &answers, limits)).await;
    let acme = Tenant::of(&replica, &key).await;
    for session in ["a", "b", "c"] {
        let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn(session, MODEL, "Go") };
        let mut stream = acme.execute(request).await.unwrap();
        until_event(&mut stream, |it| matches!(it, Payload::ActionRequired(_))).await;
        until("the turn to be given away", || async { replica.engine.capacity.leases.count() == 0 }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_the_limits_of_a_tenant_and_a_change_is_in_force_on_all() {
    let mut file = KeysFile::new();
    let operator = file.add("ops", Access::Operator);
    let key = file.add("acme", Access::Admin);
    let database = TestDatabase::new().await;
    let options = || limited(&file, &held(), TenantLimits::default());
    let here = Replica::start(&database, options()).await;
    let there = Replica::start(&database, options()).await;
    let operator = Tenant::of(&here, &operator).await;
    let (acme, acme_there) = (Tenant::of(&here, &key).await, Tenant::of(&there, &key).await);
    let two = pb::TenantLimits { running_turns: Some(2), ..pb::TenantLimits::default() };
    assert_eq!(operator.set("acme", two).await, two);
    let _first = acme.hold("first").await;
    let _second = acme.hold("second").await;
    let refused = acme.execute(turn("third", MODEL, "Go")).await;
    rate_limited(&refused.unwrap_err(), "running_turns", 2);

    // The other replica learns the limit and the turns that run here in separate rounds.
    let changed = Instant::now();
    let mut tries = 0;
    let refused = loop {
        tries += 1;
        let session = format!("there-{tries}");
        match acme_there.execute(turn(&session, MODEL, "Go")).await {
            Ok(stream) => {
                let id = pb::CancelTurnRequest { session_id: session, ..pb::CancelTurnRequest::default() };
                acme_there.turns.clone().cancel_turn(id).await.unwrap();
                drop(stream);
            }
            Err(refused) => break refused,
        }
        assert!(changed.elapsed() < PROMISED * 2, "no limit over there");
    };
    rate_limited(&refused, "running_turns", 2);
    until("the report of what runs here", || async { acme_there.used().await.running_turns >= 2 }).await;

    operator.set("acme", pb::TenantLimits::default()).await;
    let mut third = acme.execute(turn("third", MODEL, "Go")).await.unwrap();
    here.scripted.release("go");
    completed(&all(&mut third).await);
}

fn costly() -> [Value; 2] {
    let usage = json!({"input": 600, "output": 0});
    [
        json!([call("look"), {"finish": {"reason": "tool_calls", "usage": usage}}]),
        json!([{"text": "Done."}, {"finish": {"reason": "stop", "usage": usage}}]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_its_tokens_a_tenant_starts_no_turn_and_running_ones_wait() {
    let mut file = KeysFile::new();
    let operator = file.add("ops", Access::Operator);
    let key = file.add("acme", Access::Admin);
    let database = TestDatabase::new().await;
    let limits = TenantLimits { tokens_per_minute: Some(60), ..TenantLimits::default() };
    let here = Replica::start(&database, limited(&file, &costly(), limits)).await;
    let there = Replica::start(&database, limited(&file, &costly(), limits)).await;
    let acme = Tenant::of(&here, &key).await;
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Go") };
    let mut stream = acme.execute(request).await.unwrap();
    let head = until_event(&mut stream, |it| matches!(it, Payload::ActionRequired(_))).await;
    // 600 tokens at one per second, of which one minute may be owed.
    let refused = acme.execute(turn("other", MODEL, "Go")).await.unwrap_err();
    let retry = rate_limited(&refused, "tokens_per_minute", 60);
    assert!(retry > Duration::from_secs(500) && retry <= Duration::from_secs(540), "{retry:?}");
    let acme_there = Tenant::of(&there, &key).await;
    // It tracks the usage of a tenant from its first request on.
    let tries = AtomicUsize::new(0);
    until("the other replica to know what is owed", || async {
        let session = format!("there-{}", tries.fetch_add(1, Relaxed));
        let refused = acme_there.execute(turn(&session, MODEL, "Go")).await;
        refused.is_err_and(|status| rate_limited(&status, "tokens_per_minute", 60) > Duration::from_secs(400))
    })
    .await;

    let calls = || here.scripted.prompts().len();
    assert_eq!(calls(), 1);
    let call_id = requested(&head).remove(0);
    let results = submit("s", vec![result(&call_id, "seen")]);
    let mut turns = acme.turns.clone();
    turns.submit_tool_results(results).await.unwrap();
    until_event(&mut stream, |it| matches!(it, Payload::StepStarted(_))).await;
    assert_eq!(calls(), 1, "the second call waits");

    let operator = Tenant::of(&here, &operator).await;
    let more = pb::TenantLimits { tokens_per_minute: Some(1_000_000), ..pb::TenantLimits::default() };
    operator.set("acme", more).await;
    let rest = all(&mut stream).await;
    completed(&rest);
    assert_eq!(calls(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_owed_is_the_time_until_a_model_may_be_called() {
    let mut file = KeysFile::new();
    let key = file.add("acme", Access::Admin);
    let limits = TenantLimits { tokens_per_minute: Some(60), ..TenantLimits::default() };
    let (_database, replica) = Replica::alone(limited(&file, &costly(), limits)).await;
    let acme = Tenant::of(&replica, &key).await;
    let owed = async || acme.used().await.tokens_owed.unwrap().seconds;
    assert_eq!(owed().await, 0);
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Go") };
    let mut stream = acme.execute(request).await.unwrap();
    until_event(&mut stream, |it| matches!(it, Payload::ActionRequired(_))).await;
    let refused = acme.execute(turn("other", MODEL, "Go")).await.unwrap_err();
    let retry = rate_limited(&refused, "tokens_per_minute", 60).as_secs();
    let owed = owed().await.unsigned_abs();
    // The retry delay is up to a minute more than the debt. The tolerance is for slow machines.
    assert!(owed <= retry && owed + 50 > retry, "{owed} s, {retry} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_for_tokens_can_be_cancelled() {
    let mut file = KeysFile::new();
    let key = file.add("acme", Access::Write);
    let limits = TenantLimits { tokens_per_minute: Some(60), ..TenantLimits::default() };
    let (_database, replica) = Replica::alone(limited(&file, &costly(), limits)).await;
    let acme = Tenant::of(&replica, &key).await;
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Go") };
    let mut stream = acme.execute(request).await.unwrap();
    let head = until_event(&mut stream, |it| matches!(it, Payload::ActionRequired(_))).await;
    let call_id = requested(&head).remove(0);
    let results = submit("s", vec![result(&call_id, "seen")]);
    let mut turns = acme.turns.clone();
    turns.submit_tool_results(results).await.unwrap();
    until_event(&mut stream, |it| matches!(it, Payload::StepStarted(_))).await;
    let cancel = pb::CancelTurnRequest { session_id: "s".to_owned(), ..pb::CancelTurnRequest::default() };
    turns.cancel_turn(cancel).await.unwrap();
    let rest = all(&mut stream).await;
    cancelled(&rest);
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_its_bytes_a_tenant_stores_no_more_and_can_read_and_delete() {
    const LIMIT: u64 = 100_000;
    let mut file = KeysFile::new();
    let key = file.add("acme", Access::Write);
    let limits = TenantLimits { stored_bytes: Some(LIMIT), ..TenantLimits::default() };
    let (_database, replica) = Replica::alone(limited(&file, &held(), limits)).await;
    let acme = Tenant::of(&replica, &key).await;
    let mut running = acme.hold("s").await;
    as_worker(replica.engine.capacity.quotas.measure()).await.unwrap();
    as_worker(replica.engine.keep_quotas()).await.unwrap();
    let append = |request_id: &str| pb::AppendMessagesRequest {
        session_id: "other".to_owned(),
        messages: vec![says(pb::Role::User, "Hello")],
        request_id: request_id.to_owned(),
        ..pb::AppendMessagesRequest::default()
    };
    let create = pb::CreateSessionRequest {
        session: Some(pb::Session {
            session_id: "other".to_owned(),
            model: MODEL.to_owned(),
            ..pb::Session::default()
        }),
        ..pb::CreateSessionRequest::default()
    };
    let mut sessions = acme.sessions.clone();
    sessions.create_session(create).await.unwrap();
    sessions.append_messages(append("known")).await.unwrap();
    used_up(&acme.put(LIMIT as usize).await.unwrap_err(), "stored_bytes");
    let large = pb::AppendMessagesRequest {
        messages: vec![says(pb::Role::User, &"x".repeat(LIMIT as usize))],
        ..append("large")
    };
    sessions.append_messages(large).await.unwrap();

    used_up(&acme.put(1).await.unwrap_err(), "stored_bytes");
    let refused = sessions.append_messages(append("new")).await.unwrap_err();
    used_up(&refused, "stored_bytes");
    let refused = acme.execute(turn("third", MODEL, "Go")).await.unwrap_err();
    used_up(&refused, "stored_bytes");
    let mut queue = acme.queue.clone();
    let refused = queue.enqueue_message(enqueue("s", "Hello")).await;
    used_up(&refused.unwrap_err(), "stored_bytes");
    let fork = pb::ForkSessionRequest { session_id: "other".to_owned(), ..pb::ForkSessionRequest::default() };
    let refused = sessions.fork_session(fork).await.unwrap_err();
    used_up(&refused, "stored_bytes");

    acme.list().await.unwrap();
    sessions.append_messages(append("known")).await.unwrap();
    replica.scripted.release("go");
    completed(&all(&mut running).await);
    let delete = pb::DeleteSessionRequest { session_id: "other".to_owned(), ..pb::DeleteSessionRequest::default() };
    sessions.delete_session(delete).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_wants_every_turn_leaves_room_for_another() {
    let mut file = KeysFile::new();
    let greedy = file.add("greedy", Access::Write);
    let late = file.add("late", Access::Write);
    let options = Options { max_running: 20, ..limited(&file, &held(), TenantLimits::default()) };
    let (_database, replica) = Replica::alone(options).await;
    let greedy = Tenant::of(&replica, &greedy).await;
    let mut streams = Vec::new();
    let refused = loop {
        let session = format!("s-{}", streams.len());
        match greedy.execute(turn(&session, MODEL, "Go")).await {
            Ok(stream) => streams.push(stream),
            Err(refused) => break refusal(&refused),
        }
    };
    assert_eq!((refused.code, refused.reason.as_str(), streams.len()), (Code::Unavailable, "OVERLOADED", 18));
    let late = Tenant::of(&replica, &late).await;
    late.hold("mine").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_what_a_replica_answers_at_once_are_refused_and_health_is_not() {
    let options = Options { max_requests: 1, ..Options::default() };
    let (_database, replica) = Replica::alone(options).await;
    let channel = replica.channel().await;
    let (pieces, upload) = mpsc::channel(1);
    let header = pb::BlobHeader { media_type: "application/x-test".to_owned(), ..pb::BlobHeader::default() };
    let header = pb::PutBlobRequest { data: Some(Data::Header(header)) };
    let mut blobs = BlobServiceClient::new(channel.clone());
    let uploading = tokio::spawn(async move { blobs.put_blob(ReceiverStream::new(upload)).await });
    pieces.send(header).await.unwrap();
    // More than both ends buffer: once this is sent, the replica is reading it.
    for _ in 0..8 {
        let chunk = pb::PutBlobRequest { data: Some(Data::Chunk(vec![0; 1024 * 1024])) };
        pieces.send(chunk).await.unwrap();
    }
    let list = || async {
        let mut sessions = SessionServiceClient::new(channel.clone());
        sessions.list_sessions(pb::ListSessionsRequest::default()).await
    };
    let refused = list().await.unwrap_err();
    assert_eq!((refused.code(), refusal(&refused).reason.as_str()), (Code::Unavailable, "OVERLOADED"));
    assert!(refused.get_error_details().retry_info().is_some());
    // As in the expression of the alert ContextdCallsRejected.
    let scrape = replica.scrape().await;
    let counted = scrape.lines().any(|line| {
        line.starts_with("contextd_rpc_rejected_total{") && line.contains(r#"contextd_reason="overloaded""#)
    });
    assert!(counted, "{scrape}");
    let mut health = HealthClient::new(channel.clone());
    health.check(HealthCheckRequest::default()).await.unwrap();
    drop(pieces);
    uploading.await.unwrap().unwrap();
    list().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_0_allows_nothing() {
    let mut file = KeysFile::new();
    let operator = file.add("ops", Access::Operator);
    let key = file.add("acme", Access::Admin);
    let (_database, replica) = Replica::alone(limited(&file, &held(), TenantLimits::default())).await;
    let acme = Tenant::of(&replica, &key).await;
    let operator = Tenant::of(&replica, &operator).await;
    let none = pb::TenantLimits { running_turns: Some(0), ..pb::TenantLimits::default() };
    operator.set("acme", none).await;
    let refused = acme.execute(turn("s", MODEL, "Go")).await.unwrap_err();
    used_up(&refused, "running_turns");
    let none = pb::TenantLimits { tokens_per_minute: Some(0), ..pb::TenantLimits::default() };
    operator.set("acme", none).await;
    let refused = acme.execute(turn("s", MODEL, "Go")).await.unwrap_err();
    used_up(&refused, "tokens_per_minute");
    let none = pb::TenantLimits { requests_per_second: Some(0), ..pb::TenantLimits::default() };
    operator.set("acme", none).await;
    used_up(&acme.list().await.unwrap_err(), "requests_per_second");
}
