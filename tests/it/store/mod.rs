//! Tests of the store against a real PostgreSQL: guarantees that the layers above rely on.

mod compaction;
mod delete;
mod failover;
mod fence;
mod fork;
mod gate;
mod handing;
mod hot;
mod ledger;
mod migrate;
mod own_sessions;
mod pipeline;
mod plans;
mod queue;
mod rules;
mod schema;
mod session_memory;

use std::{collections::BTreeMap, time::Duration};

use contextd::{
    codec::event::encode,
    model::{
        CallId, Category, CompletionReason, Content, Ending, Fence, MessageId, Part, PartSize, Payload, RequestId,
        Role, Seq, SessionConfig, SessionId, SessionKey, TenantId, ToolCall, ToolOutcome, ToolResult, TurnFence,
        TurnId, TurnResult,
        command::{Idempotency, TurnRequest},
        event::{CallCancelReason, StepPosition, WaitsFor},
        message::StoredPart,
    },
    session::{
        answers::{Approval, NextStep},
        change::{Answer, AnswerKind, SyntheticResult},
        config_rows::NewConfig,
        cost::StepCost,
        ending::TurnEnd,
        new_calls::{Batch, CallHandling, NewCall},
        rows::{NewMessage, Rows},
        take::{Advance, TakenMessage},
    },
    store::{
        Store,
        admission::Admission,
        answers::{Submission, SubmissionOutcome},
        grant::Grant,
        queue::{Delivery, Enqueued, EnqueuedMessage, NewQueued},
        written::{ConditionalWriteOutcome, WriteOutcome},
    },
};

use crate::harness::{TestDatabase, payloads};

/// The duration of leases in tests that do not wait for their end.
const LEASE: Duration = Duration::from_secs(30);
/// Maximum bytes of turn data that a store caches.
const MEMORY: usize = 32 << 20;
/// The name of the estimator of token counts.
const ESTIMATOR: &str = "test";
/// Tokens of a synthetic result, and of a message in addition to its parts.
const SYNTHETIC: u32 = 7;
const OVERHEAD: u32 = 4;

/// A database and a store.
struct World {
    database: TestDatabase,
    store: Store,
}

impl World {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let store = Store::new(database.pool(), "one", LEASE).with_session_memory(MEMORY);
        Self { database, store }
    }

    /// The store of another replica.
    fn replica(&self, name: &str) -> Store {
        Store::new(self.database.pool(), name, LEASE).with_session_memory(MEMORY)
    }

    /// A session with a running turn in its first step.
    async fn running(&self, session: &str) -> (SessionKey, Grant) {
        let key = key(session);
        let grant = admit_new(&self.store, &key).await.unwrap();
        (key, grant)
    }

    /// A session whose turn waits for these calls.
    async fn waiting(&self, session: &str, calls: &[&str]) -> (SessionKey, Grant) {
        let (key, grant) = self.running(session).await;
        let (rows, batch) = answer_with_calls(session, calls);
        applied(self.store.append(&key, grant.turn_fence(), &rows, &StepCost::default(), Some(&batch)).await.unwrap());
        (key, grant)
    }

    /// An idle session that had one turn.
    async fn idle(&self, session: &str) -> SessionKey {
        let (key, grant) = self.running(session).await;
        applied(finish(&self.store, &key, grant.turn_fence(), Rows::new(ESTIMATOR, 0)).await);
        key
    }

    /// Expires the lease of a session's turn.
    async fn expire(&self, key: &SessionKey) {
        let client = self.database.client().await;
        let sql = "update session_run set version = version + 1, lease_until = now() - interval '1 second' where session_id = $1";
        assert_eq!(client.execute(sql, &[&key.session.as_str()]).await.unwrap(), 1);
    }

    /// Expires the heartbeat of a replica.
    async fn lapse(&self, replica: &str) {
        let client = self.database.client().await;
        let sql = "update replicas set lease_until = now() - interval '1 hour', said_at = now() where replica_id = $1";
        assert_eq!(client.execute(sql, &[&replica]).await.unwrap(), 1);
    }

    async fn number(&self, sql: &str, key: &SessionKey) -> i64 {
        self.database.client().await.query_one(sql, &[&key.session.as_str()]).await.unwrap().get(0)
    }

    /// Fails unless the session's seqs are 1, 2, 3 and so on, up to the last one.
    async fn assert_dense(&self, key: &SessionKey) {
        let sql =
            "select coalesce(array_agg(seq order by seq), '{}') = array(select generate_series(1, max(r.next_seq) - 1))
                     from session_run r left join events e using (tenant_id, session_id) where r.session_id = $1";
        let row = self.database.client().await.query_one(sql, &[&key.session.as_str()]).await.unwrap();
        assert!(row.get::<_, bool>(0), "the events of {} have gaps", key.session);
    }
}

fn key(session: &str) -> SessionKey {
    SessionKey::new(TenantId::new("t"), SessionId::new(session))
}

fn request(id: &str) -> Idempotency {
    Idempotency { request: Some(RequestId::new(id)), hash: format!("hash of {id}") }
}

fn unremembered() -> Idempotency {
    Idempotency { request: None, hash: String::new() }
}

fn at(step: u32) -> StepPosition {
    StepPosition { step, attempt: 1 }
}

fn part(text: &str, tokens: u32, category: Category) -> StoredPart {
    StoredPart {
        part: Part::text(text),
        size: PartSize { tokens, category },
        estimator: ESTIMATOR.to_owned(),
        pruned: None,
    }
}

fn message(id: impl Into<String>, role: Role, parts: Vec<StoredPart>) -> NewMessage {
    NewMessage {
        id: MessageId::new(id),
        role,
        parts,
        overhead: OVERHEAD,
        pinned: false,
        metadata: BTreeMap::new(),
        queued: Vec::new(),
        response: None,
        created_at: None,
    }
}

/// Rows with one message.
fn says(id: &str, role: Role, tokens: u32, category: Category) -> Rows {
    let mut rows = Rows::new(ESTIMATOR, 0);
    rows.message(message(id, role, vec![part("words", tokens, category)]), at(1));
    rows
}

/// The first rows of a turn.
fn opening(id: &str) -> Rows {
    let mut rows = Rows::new(ESTIMATOR, 10);
    rows.event(payloads::turn_started(), StepPosition::default());
    rows.message(
        message(format!("{id}-input"), Role::User, vec![part("do it", 11, Category::User)]),
        StepPosition::default(),
    );
    rows.event(payloads::step_started(), at(1));
    rows
}

/// The first rows of a turn for a queued message.
fn opening_without_input() -> Rows {
    let mut rows = Rows::new(ESTIMATOR, 10);
    rows.event(payloads::turn_started(), StepPosition::default());
    rows.event(payloads::step_started(), at(1));
    rows
}

/// An assistant message with calls, and the calls. `?c` requires approval, `>c` is requested after the preceding call,
/// `>?c` both.
fn answer_with_calls(id: &str, calls: &[&str]) -> (Rows, Batch) {
    let mut rows = Rows::new(ESTIMATOR, 0);
    let fates: Vec<CallHandling> = calls.iter().map(|call| fate(call)).collect();
    let calls: Vec<&str> = calls.iter().map(|call| call.trim_start_matches(['>', '?'])).collect();
    let call_part = |call: &&str| StoredPart {
        part: Part::new(Content::ToolCall(ToolCall {
            id: CallId::new(*call),
            name: "look".to_owned(),
            arguments: "{}".to_owned(),
        })),
        size: PartSize { tokens: 5, category: Category::ToolCalls },
        estimator: ESTIMATOR.to_owned(),
        pruned: None,
    };
    rows.message(message(format!("{id}-calls"), Role::Assistant, calls.iter().map(call_part).collect()), at(1));
    let batch = Batch {
        message: MessageId::new(format!("{id}-calls")),
        results: MessageId::new(format!("{id}-results")),
        calls: calls
            .iter()
            .enumerate()
            .zip(fates)
            .map(|((part, call), fate)| NewCall {
                executor: contextd::model::ToolExecutor::Host,
                id: CallId::new(*call),
                name: "look".to_owned(),
                part,
                handling: fate,
                timeout: Duration::from_secs(60),
            })
            .collect(),
    };
    (rows, batch)
}

fn fate(notation: &str) -> CallHandling {
    let id = CallId::new(notation.trim_start_matches(['>', '?']));
    let call = ToolCall { id, name: "look".to_owned(), arguments: "{}".to_owned() };
    let timeout = Duration::from_secs(60);
    let (waits_for, request) = if notation.contains('?') {
        (WaitsFor::Approval, Payload::ApprovalRequested { call, timeout })
    } else {
        (
            WaitsFor::Result { edited: false },
            Payload::ToolCallRequested { call, timeout, edited: false, executor: contextd::model::ToolExecutor::Host },
        )
    };
    if notation.starts_with('>') {
        CallHandling::Later { waits_for, request: Box::new(request) }
    } else {
        CallHandling::Requested(waits_for)
    }
}

fn admission<'a>(
    turn: &'a TurnId,
    rows: &'a Rows,
    idempotency: &'a Idempotency,
    request: &'a TurnRequest,
) -> Admission<'a> {
    Admission {
        turn,
        rows,
        timeout: Duration::from_secs(600),
        revision: 1,
        idempotency,
        request,
        model: "scripted/demo",
        continues: false,
    }
}

async fn admit_new(store: &Store, key: &SessionKey) -> Option<Grant> {
    let turn = TurnId::new(format!("{}-t1", key.session));
    let rows = opening(key.session.as_str());
    let config = SessionConfig { model: "scripted/demo".to_owned(), ..SessionConfig::default() };
    let new = NewConfig { config: &config, tools_tokens: 0, estimator: ESTIMATOR };
    let idempotency = unremembered();
    let request = TurnRequest::default();
    store.admit_new(key, &admission(&turn, &rows, &idempotency, &request), new).await.unwrap()
}

async fn admit(store: &Store, key: &SessionKey, turn: &str) -> Option<Grant> {
    let id = TurnId::new(turn);
    let rows = opening(turn);
    let idempotency = unremembered();
    let request = TurnRequest::default();
    store.admit(key, &admission(&id, &rows, &idempotency, &request)).await.unwrap()
}

async fn finish(store: &Store, key: &SessionKey, right: TurnFence<'_>, rows: Rows) -> WriteOutcome {
    let ending = Ending::Completed(CompletionReason::Stop);
    store.finish(key, right, &rows, &StepCost::default(), &end(&ending, &TurnResult::default())).await.unwrap()
}

async fn stop(store: &Store, key: &SessionKey, right: TurnFence<'_>) -> WriteOutcome {
    let ending = Ending::Completed(CompletionReason::Deadline);
    let rows = Rows::new(ESTIMATOR, 0);
    let result = TurnResult::default();
    store.stop(key, right, &rows, &StepCost::default(), &end(&ending, &result)).await.unwrap()
}

fn end<'a>(ending: &'a Ending, result: &'a TurnResult) -> TurnEnd<'a> {
    let synthetic =
        SyntheticResult { text: "closed", tokens: SYNTHETIC, overhead: OVERHEAD, reason: CallCancelReason::TurnEnded };
    TurnEnd { ending, result, synthetic }
}

fn applied(written: WriteOutcome) -> contextd::store::written::Ack {
    match written {
        WriteOutcome::Applied(ack) => ack,
        WriteOutcome::Fenced => panic!("fenced"),
    }
}

async fn submit(store: &Store, key: &SessionKey, calls: &[&str], idempotency: &Idempotency) -> SubmissionOutcome {
    let answers: Vec<Answer> = calls
        .iter()
        .map(|call| Answer {
            call: CallId::new(*call),
            kind: AnswerKind::Result { edited: false },
            part: Part::new(Content::ToolResult(ToolResult {
                call: CallId::new(*call),
                name: "look".to_owned(),
                parts: vec!["seen".into()],
                outcome: ToolOutcome::Success,
                truncation: None,
                display_text: String::new(),
            })),
            tokens: 3,
            hash: "answer".to_owned(),
            blobs: Vec::new(),
        })
        .collect();
    let next = NextStep { started: Some(Vec::new()), size_offset: 10, revision: 1 };
    let ids: Vec<CallId> = calls.iter().map(|call| CallId::new(*call)).collect();
    let submission = Submission {
        id: "submission",
        answers: &answers,
        approvals: &[],
        named: &ids,
        idempotency,
        estimator: ESTIMATOR,
        overhead: OVERHEAD,
        next: &next,
    };
    store.submit(key, &submission).await.unwrap()
}

/// Approves or denies a call.
async fn decide(store: &Store, key: &SessionKey, call: &str, yes: bool) -> SubmissionOutcome {
    let id = CallId::new(call);
    let denial = Answer {
        call: id.clone(),
        kind: AnswerKind::Denial,
        part: Part::new(Content::ToolResult(ToolResult {
            call: id.clone(),
            name: "look".to_owned(),
            parts: vec!["no".into()],
            outcome: ToolOutcome::Denied,
            truncation: None,
            display_text: String::new(),
        })),
        tokens: 2,
        hash: "denial".to_owned(),
        blobs: Vec::new(),
    };
    let asked = ToolCall { id: id.clone(), name: "look".to_owned(), arguments: "{}".to_owned() };
    let request = Payload::ToolCallRequested {
        call: asked,
        timeout: Duration::from_secs(60),
        edited: false,
        executor: contextd::model::ToolExecutor::Host,
    };
    let approval = Approval { call: id.clone(), edited: None, request: encode(&request).payload };
    let (answers, approvals) = if yes { (vec![], vec![approval]) } else { (vec![denial], vec![]) };
    let next = NextStep { started: Some(Vec::new()), size_offset: 10, revision: 1 };
    let submission = Submission {
        id: "submission",
        answers: &answers,
        approvals: &approvals,
        named: &[id],
        idempotency: &unremembered(),
        estimator: ESTIMATOR,
        overhead: OVERHEAD,
        next: &next,
    };
    store.submit(key, &submission).await.unwrap()
}

/// A message to be queued with ASAP delivery that does not start a turn.
fn asap<'a>(message: &'a MessageId, idempotency: &'a Idempotency) -> NewQueued<'a> {
    NewQueued {
        message,
        body: b"body",
        blobs: &[],
        delivery: Delivery::Asap,
        starts_turn: false,
        execute: None,
        ttl: None,
        limit: 100,
        idempotency,
    }
}

async fn enqueue(store: &Store, key: &SessionKey, id: &str) -> EnqueuedMessage {
    let message = MessageId::new(id);
    let idempotency = request(id);
    placed(store.enqueue(key, &asap(&message, &idempotency), None).await.unwrap())
}

fn placed(enqueued: Enqueued) -> EnqueuedMessage {
    let Enqueued::Queued(place) = enqueued else { panic!("not queued: {enqueued:?}") };
    place
}

/// Applies these messages as one user message.
async fn take(
    store: &Store,
    key: &SessionKey,
    right: TurnFence<'_>,
    seen: Seq,
    ids: &[&str],
    advance: bool,
) -> ConditionalWriteOutcome {
    let ids: Vec<MessageId> = ids.iter().map(|id| MessageId::new(*id)).collect();
    let into = MessageId::new(format!("from-{}", ids[0]));
    let mut rows = Rows::new(ESTIMATOR, 10);
    rows.event(payloads::applied(into.as_str()), at(1));
    rows.message(message(into.as_str(), Role::User, vec![part("queued words", 9, Category::User)]), at(1));
    if advance {
        rows.event(payloads::step_started(), at(2));
    }
    let taken: Vec<TakenMessage<'_>> =
        ids.iter().map(|message| TakenMessage { message, end: Ok(&into), event: 1 }).collect();
    let step = if advance { Advance::AnyRevision } else { Advance::Stay };
    store.take(key, right, Some(seen), &rows, &taken, step).await.unwrap()
}
