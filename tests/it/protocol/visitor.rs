//! The operations of everyone except the owner of the turn: hosts, users, other replicas, and time.

use std::time::Duration;

use contextd::{
    model::{
        CallId, CancelCause, CancelOutcome, Category, CompactionId, CompactionState, Delivery, Ending, MessageId,
        Payload, Role, Seq, SessionId, SessionKey, TurnId, TurnResult,
        command::TurnRequest,
        event::{CallCancelReason, StepPosition},
    },
    session::{
        CancelRequest, SessionState,
        answers::{Approval, NextStep},
        change::{Answer, SyntheticResult},
        compaction::{FailedCompaction, NewCompaction},
        compaction_rows::{Cost, Replacement},
        config_rows::NewConfig,
        counters::{Counter, TokenCounters},
        ending::TurnEnd,
        import::Import,
        import_rows::ImportRows,
        queue::MessageSelection,
        queue_rows::Withdrawal,
        revision::NewRevision,
        rows::Rows,
    },
    store::{
        answers::Submission,
        delete::Deletion,
        fork::{Copied, NewFork, PieceLimits, Source},
        queue::{Enqueued, NewQueued, QueueState},
    },
};

use crate::harness::{dice::Dice, payloads};

use super::{
    actors::Actor,
    history::{Queueing, Told},
    owner::Own,
    words::{self, ESTIMATOR, OVERHEAD},
};

/// An operation of anyone except the owner.
#[derive(Debug, Clone, Copy)]
pub(super) enum Visit {
    Execute,
    Enqueue,
    Unqueue,
    Answer,
    Cancel,
    Wait,
    TakeOver,
    Compact,
    Revert,
    Update,
    Import,
    Fork,
    Delete,
    Kill,
}

impl Actor {
    pub(super) async fn visit(&mut self, session: usize, deed: Visit) {
        match deed {
            Visit::Execute => Box::pin(self.execute(session)).await,
            Visit::Enqueue => Box::pin(self.enqueue(session)).await,
            Visit::Unqueue => self.unqueue(session).await,
            Visit::Answer => self.answer(session).await,
            Visit::Cancel => self.cancel(session).await,
            Visit::Wait => self.time_passes(session).await,
            Visit::TakeOver => self.take_over(session).await,
            Visit::Compact => Box::pin(self.compact(session)).await,
            Visit::Revert => self.revert(session).await,
            Visit::Update => self.update(session).await,
            Visit::Import => Box::pin(self.import(session)).await,
            Visit::Fork => Box::pin(self.fork(session)).await,
            // Deletion ends all activity, so it happens in a few rounds only.
            Visit::Delete if self.dice.chance(20) => self.delete(session).await,
            Visit::Delete => {}
            Visit::Kill => self.kill().await,
        }
    }

    /// A request id, sometimes one that other clients send too.
    fn request(&mut self, kind: &str, session: usize) -> String {
        if self.dice.chance(40) {
            format!("{}-{kind}-{}", self.key(session).session, self.scene.number() / 6)
        } else {
            self.name(kind, session)
        }
    }

    /// Starts a turn with input, and creates the session if it does not exist.
    async fn execute(&mut self, session: usize) {
        let key = self.key(session);
        let store = self.store.clone();
        let request = self.request("x", session);
        let turn = TurnId::new(self.name("turn", session));
        let rows = words::opening(&turn, true);
        let idempotency = words::request(&request);
        let asked = TurnRequest::default();
        let config = words::config("");
        let new = NewConfig { config: &config, tools_tokens: 0, estimator: ESTIMATOR };
        let granted = self
            .insist(async || {
                let head = store.head(&key, idempotency.request.as_ref()).await?;
                let revision = head.as_ref().map_or(1, |head| head.revision);
                let admission = words::admission(&turn, &rows, &idempotency, &asked, revision);
                match head {
                    Some(_) => store.admit(&key, &admission).await,
                    None => store.admit_new(&key, &admission, new).await,
                }
            })
            .await;
        if let Some(Some(grant)) = granted {
            let session_id = key.session.to_string();
            let turn = turn.to_string();
            self.tell(Told::Admitted { session: session_id, request, turn });
            self.granted(session, grant, "admitted");
        }
    }

    async fn enqueue(&mut self, session: usize) {
        let key = self.key(session);
        let store = self.store.clone();
        let request = self.request("q", session);
        let idempotency = words::request(&request);
        let asked = TurnRequest::default();
        // A repeated request has the parameters of the first one.
        let mut wishes = Dice::new(0, request.bytes().fold(0, |sum, byte| sum.wrapping_mul(31) + u64::from(byte)));
        let starts = wishes.chance(50);
        let delivery = if wishes.chance(85) { Delivery::Asap } else { Delivery::WhenIdle };
        let ttl = wishes.chance(10).then_some(Duration::ZERO);
        for _ in 0..3 {
            // Each repetition has another message id, as in production, where the replica assigns the id.
            let message = MessageId::new(self.name("q", session));
            let turn = TurnId::new(self.name("turn", session));
            let rows = words::opening(&turn, false);
            let Some(Some(head)) = self.ask(store.head(&key, None)).await else {
                return;
            };
            let admission = words::admission(&turn, &rows, &idempotency, &asked, head.revision);
            let new = NewQueued {
                message: &message,
                body: b"body",
                blobs: &[],
                delivery,
                starts_turn: starts,
                execute: None,
                ttl,
                limit: 20,
                idempotency: &idempotency,
            };
            let Some(enqueued) = self.ask(store.enqueue(&key, &new, starts.then_some(&admission))).await else {
                continue;
            };
            let Enqueued::Queued(place) = enqueued else {
                return;
            };
            let first = place.message == message;
            self.tell(Told::Queued(Queueing {
                session: key.session.to_string(),
                request: request.clone(),
                message: place.message.to_string(),
                pending: matches!(place.state, QueueState::Pending { .. }),
                asap: delivery == Delivery::Asap,
                met: place.turn.as_ref().map(TurnId::to_string),
                start: (starts && first).then_some((head.revision, place.grant.is_some())),
            }));
            if let Some(grant) = place.grant {
                self.granted(session, grant, "started");
            }
            // The response may be lost on its way to the client, which then sends the request again.
            if !self.dice.chance(self.habits.missed) {
                return;
            }
        }
    }

    async fn unqueue(&mut self, session: usize) {
        let key = self.key(session);
        let store = self.store.clone();
        let idempotency = words::request(&self.name("u", session));
        let Some(waiting) = self.ask(store.queued(&key, 0, 20, i64::MAX)).await else {
            return;
        };
        let ids: Vec<MessageId> = waiting.items.into_iter().map(|queued| queued.message).collect();
        let one: Vec<MessageId> = self.dice.pick(&ids).cloned().into_iter().collect();
        let why = if self.dice.chance(70) { Withdrawal::Cancelled } else { Withdrawal::Expired };
        let all = self.dice.chance(20);
        let which = if all { MessageSelection::All } else { MessageSelection::These(&one) };
        let gone = self.insist(async || store.unqueue(&key, which, why, b"", &idempotency).await).await;
        if let Some(gone) = gone {
            let messages = gone.messages.iter().map(MessageId::to_string).collect();
            self.tell(Told::Withdrew { session: key.session.to_string(), messages });
        }
    }

    /// Submits results for some of the waiting calls, sometimes twice for the same call.
    pub(super) async fn answer(&mut self, session: usize) {
        let key = self.key(session);
        let store = self.store.clone();
        let idempotency = words::request(&self.name("s", session));
        let Some(open) = self.ask(store.open_calls(&key)).await else {
            return;
        };
        let (mut answers, mut approvals): (Vec<Answer>, Vec<Approval>) = (Vec::new(), Vec::new());
        for call in open.iter().chain(open.first()) {
            if self.dice.chance(75) {
                match words::answer(call, self.dice.chance(70)) {
                    Ok(answer) => answers.push(answer),
                    Err(approval) => approvals.push(*approval),
                }
            }
        }
        if answers.is_empty() && approvals.is_empty() {
            return;
        }
        self.nap().await;
        let named: Vec<CallId> = open.iter().map(|open| open.pending.call.id.clone()).collect();
        let next = NextStep { started: self.dice.chance(80).then(Vec::new), size_offset: 10, revision: 1 };
        let id = uuid::Uuid::now_v7().to_string();
        let submission = Submission {
            id: &id,
            answers: &answers,
            approvals: &approvals,
            named: &named,
            idempotency: &idempotency,
            estimator: ESTIMATOR,
            overhead: OVERHEAD,
            next: &next,
        };
        if let Some(submitted) = self.insist(async || Box::pin(store.submit(&key, &submission)).await).await {
            let calls = submitted.accepted.iter().map(CallId::to_string).collect();
            self.tell(Told::Accepted { session: key.session.to_string(), calls });
            if let Some(grant) = submitted.grant {
                self.granted(session, grant, "answered");
            }
        }
    }

    async fn cancel(&mut self, session: usize) {
        let key = self.key(session);
        let store = self.store.clone();
        let idempotency = words::request(&self.request("c", session));
        let request = CancelRequest { cause: CancelCause::Requested, reason: String::new(), rollback: false };
        let cancelled = self.insist(async || store.cancel(&key, None, &request, &idempotency).await).await;
        let Some(turn) = cancelled.as_ref().and_then(|cancelled| cancelled.turn.clone()) else {
            return;
        };
        self.tell(Told::Cancelled { session: key.session.to_string(), turn: turn.to_string() });
        if let Some(fence) = cancelled.and_then(|cancelled| cancelled.fence)
            && !self.known.contains(&(session, fence.epoch))
        {
            let grant = contextd::store::grant::Grant { fence, turn, last_seq: Seq(0) };
            self.granted(session, grant, "cancelled");
        }
    }

    async fn take_over(&mut self, session: usize) {
        if self.dice.chance(60) {
            self.time_passes(session).await;
        }
        let key = self.key(session);
        let store = self.store.clone();
        let Some(candidates) = self.ask(store.candidates(true, 8, &[])).await else {
            return;
        };
        for candidate in candidates.into_iter().filter(|candidate| candidate.key == key) {
            if let Some(Some(grant)) = self.ask(store.takeover(&key, candidate.epoch)).await {
                self.granted(session, grant, "taken over");
            }
        }
    }

    async fn update(&mut self, session: usize) {
        let key = self.key(session);
        let store = self.store.clone();
        let request = self.name("o", session);
        let Some(Some(head)) = self.ask(store.head(&key, None)).await else {
            return;
        };
        let config = words::config(&request);
        let idempotency = words::request(&request);
        let new = NewConfig { config: &config, tools_tokens: 0, estimator: ESTIMATOR };
        let events = [Payload::SessionUpdated { revision: head.revision + 1, paths: Vec::new() }];
        let revision = NewRevision { new, from: head.revision, events: &events };
        if let Some(Some(updated)) = self.insist(async || store.update(&key, &revision, &idempotency).await).await {
            let session = key.session.to_string();
            self.tell(Told::Updated { session, request, revision: updated.revision });
        }
    }

    async fn import(&mut self, session: usize) {
        let key = self.key(session);
        let store = self.store.clone();
        let request = self.name("i", session);
        let Some(Some(tail)) = self.ask(store.tail(&key, None)).await else {
            return;
        };
        if tail.state != SessionState::Idle || tail.open_calls > 0 {
            return;
        }
        let said = |n: u32| {
            let id = format!("{request}-m{n}");
            words::message(&id, Role::User, vec![words::text("by hand", 6, Category::User)])
        };
        let mut rows = Rows::new(ESTIMATOR, 0);
        for n in [1, 2] {
            rows.message(said(n), StepPosition::default());
        }
        let idempotency = words::request(&request);
        let import = Import {
            fence: tail.version.fence(),
            context_version: tail.version.context,
            rows: &rows,
            with: ImportRows { calls: &[], answers: &[], blobs: &[], version_before: tail.version.transcript() },
            open_calls: 0,
        };
        let request = (&idempotency, "appended");
        if let Some(Some(_)) = self.insist(async || store.import(&key, &import, request).await).await {
            let messages = rows.messages.iter();
            let messages = messages.map(|it| it.message.id.to_string()).collect();
            self.tell(Told::Imported { session: key.session.to_string(), messages });
        }
    }

    async fn fork(&mut self, session: usize) {
        let key = self.key(session);
        let store = self.store.clone();
        let new = SessionId::new(self.name("f", session));
        let idempotency = words::request(&self.name("f", session));
        let Some(Some(seen)) = self.ask(store.session(&key)).await else {
            return;
        };
        let Ok(last @ 1..) = usize::try_from(seen.last_seq.0) else {
            return;
        };
        let at = Seq(i64::try_from(1 + self.dice.below(last)).unwrap());
        let Some(open) = self.ask(store.open_calls_at(&key, at)).await else {
            return;
        };
        let source = Source { key: &key, created: seen.created_at, at };
        let config = words::config("");
        let fork = NewFork {
            id: &new,
            config: NewConfig { config: &config, tools_tokens: 0, estimator: ESTIMATOR },
            claim: new.as_str(),
            lease: Duration::from_secs(30),
            most: PieceLimits { messages: 3, bytes: 1 << 20 },
        };
        let make = async || {
            let Some(mut copying) = store.claim_fork(source, &fork, &idempotency).await? else {
                return Ok(false);
            };
            while store.copy_piece(&mut copying).await? == Copied::Part {}
            store.open_fork(&copying).await
        };
        if open.is_empty()
            && let Some(true) = self.insist(make).await
        {
            let from = key.session.to_string();
            self.tell(Told::Forked { session: new.to_string(), from, at: at.0 });
        }
    }

    async fn delete(&mut self, session: usize) {
        let key = self.key(session);
        let store = self.store.clone();
        let idempotency = words::request(&self.name("d", session));
        let Some(Some(seen)) = self.ask(store.head(&key, None)).await else {
            return;
        };
        let cause = CancelCause::SessionDeleted;
        let outcome = CancelOutcome::Unknown;
        let ending = Ending::Cancelled { cause, outcome, reason: String::new(), undone: None };
        let result = TurnResult::default();
        let synthetic =
            SyntheticResult { text: "closed", tokens: 7, overhead: OVERHEAD, reason: CallCancelReason::TurnEnded };
        let end = TurnEnd { ending: &ending, result: &result, synthetic };
        let deletion = Deletion {
            unused_for: None,
            seen: &seen,
            revision: None,
            end: seen.live_turn().map(|_| &end),
            estimator: ESTIMATOR,
            retention: Duration::from_secs(600),
            idempotency: &idempotency,
        };
        if let Some(Some(seq)) = self.insist(async || store.delete(&key, &deletion).await).await {
            self.tell(Told::Deleted { session: key.session.to_string(), seq: seq.0 });
        }
    }

    /// Terminates a random connection of a replica.
    async fn kill(&mut self) {
        let sql = "select pg_terminate_backend(pid)
                     from (select pid from pg_stat_activity
                            where datname = current_database() and application_name = 'contextd' order by random() limit 1) one";
        self.client.execute(sql, &[]).await.unwrap();
    }

    /// Replaces the messages up to a random one by a summary, unless there was a concurrent compaction.
    async fn compact(&mut self, session: usize) {
        let key = self.key(session);
        let store = self.store.clone();
        let Some(Plan { seen, to, shift }) = self.plan(&key).await else {
            return;
        };
        let id = CompactionId::new(self.name("k", session));
        let idempotency = words::request(&self.name("kr", session));
        let begin = NewCompaction {
            compaction: &id,
            seen,
            info: b"",
            started: &payloads::compaction_started(id.as_str()),
            lease: store.lease_ttl(),
        };
        let begun = self.insist(async || store.begin_compaction(&key, &begin, &idempotency).await).await;
        if begun.is_none_or(|begun| begun.status != Some(CompactionState::Running)) {
            return;
        }
        self.nap().await;
        let words = vec![words::text("in short", 17, Category::User)];
        let summary = words::message(&format!("{id}-summary"), Role::User, words);
        let replacement = Replacement {
            from: Seq(1),
            to,
            kept: &[],
            hides_pinned: false,
            shift,
            rows: &payloads::compacted_rows(id.as_str(), ESTIMATOR, Some(summary)),
            info: b"",
            cost: &Cost::default(),
        };
        let swapped = self.insist(async || store.swap_compaction(&key, &id, &replacement).await).await;
        match swapped.and_then(|swapped| swapped.status) {
            Some(CompactionState::Applied | CompactionState::Reverted) => {
                let session = key.session.to_string();
                let compaction = id.to_string();
                self.tell(Told::Compacted { session, compaction, reverted: false });
            }
            Some(CompactionState::Planned | CompactionState::Running | CompactionState::Failed) | None => {
                let given_up =
                    FailedCompaction { rows: &payloads::given_up_rows(id.as_str()), info: b"", cost: &Cost::default() };
                self.ask(store.fail_compaction(&key, &id, &given_up)).await;
            }
        }
    }

    async fn plan(&mut self, key: &SessionKey) -> Option<Plan> {
        let sql = "select r.context_version, m.seq, m.role, m.is_summary, m.tokens::bigint, coalesce(k.from_seq, 0), coalesce(k.to_seq, 0),
                          coalesce(k.summary_message = m.message_id, false),
                          array(select p.category::bigint from parts p where p.session_id = $1 and p.message_id = m.message_id order by idx),
                          array(select p.tokens::bigint from parts p where p.session_id = $1 and p.message_id = m.message_id order by idx)
                     from session_run r join messages m using (tenant_id, session_id)
                     left join lateral (select * from compactions c where c.session_id = $1 and c.status = 2
                                         order by c.active_from_seq desc limit 1) k on true
                    where r.session_id = $1 and r.state <> 3 and m.voided_at_seq is null order by m.seq";
        let rows = self.client.query(sql, &[&key.session.as_str()]).await.unwrap();
        let number = |row: &tokio_postgres::Row, column: usize| row.get::<_, i64>(column);
        let closed = |row: &&tokio_postgres::Row| {
            let calls = row.get::<_, Vec<i64>>(8).contains(&4);
            !row.get::<_, bool>(3) && !calls && number(row, 1) > number(row, 6)
        };
        let ends: Vec<i64> = rows.iter().filter(closed).map(|row| number(row, 1)).collect();
        let to = *self.dice.pick(&ends)?;
        let mut shift = TokenCounters::default();
        for row in &rows {
            let seq = number(row, 1);
            let summary = row.get::<_, bool>(3);
            let covered = (number(row, 5)..=number(row, 6)).contains(&seq);
            let goes = if summary { row.get(7) } else { seq <= to && !covered };
            if goes {
                shift.messages(-1, -number(row, 4));
                for (category, tokens) in row.get::<_, Vec<i64>>(8).into_iter().zip(row.get::<_, Vec<i64>>(9)) {
                    shift.count(if summary { Counter::Summary } else { counter(category) }, -1, -tokens);
                }
            }
        }
        shift.messages(1, i64::from(OVERHEAD));
        shift.count(Counter::Summary, 1, 17);
        Some(Plan { seen: number(rows.first()?, 0), to: Seq(to), shift })
    }

    async fn revert(&mut self, session: usize) {
        let key = self.key(session);
        let store = self.store.clone();
        let idempotency = words::request(&self.name("v", session));
        let sql = "select c.compaction_id, r.context_version
                     from session_run r join compactions c using (tenant_id, session_id)
                    where r.session_id = $1 and c.status = 2 order by c.active_from_seq desc limit 1";
        let Some(row) = self.client.query_opt(sql, &[&key.session.as_str()]).await.unwrap() else {
            return;
        };
        let id = CompactionId::new(row.get::<_, String>(0));
        let seen = row.get(1);
        let reverted = payloads::compaction_reverted(id.as_str());
        let reverted =
            self.insist(async || store.revert_compaction(&key, &id, seen, &reverted, &idempotency).await).await;
        if reverted.is_some_and(|reverted| reverted.update.is_some()) {
            let session = key.session.to_string();
            let compaction = id.to_string();
            self.tell(Told::Compacted { session, compaction, reverted: true });
        }
    }

    /// Completes every live turn, including its pending messages.
    pub(super) async fn rest(&mut self) {
        for session in 0..self.scene.sessions.len() {
            let mut tries = 0;
            while self.goes_on(session).await {
                tries += 1;
                if tries > 60 {
                    let what = format!("session {} never rests", self.key(session).session);
                    return self.tell(Told::Refused { what });
                }
            }
        }
    }

    async fn goes_on(&mut self, session: usize) -> bool {
        let key = self.key(session);
        let store = self.store.clone();
        let Some(look) = self.ask(store.queue_snapshot(&key)).await else {
            return true;
        };
        let Some(look) = look.filter(|look| look.state.is_live()) else {
            return false;
        };
        let mine = self.held.get(&session).is_some_and(|hold| hold.fence == look.fence);
        if look.state == SessionState::AwaitingTools && self.dice.chance(50) {
            self.answer(session).await;
        } else if !mine {
            self.held.remove(&session);
            self.time_passes(session).await;
            self.take_over(session).await;
        } else if look.open_calls > 0 || look.cancelled {
            Box::pin(self.own(session, Own::Stop)).await;
        } else {
            let deed = if look.waiting.is_empty() { Own::Finish } else { Own::Take };
            Box::pin(self.own(session, deed)).await;
        }
        true
    }
}

/// The parameters of a compaction.
struct Plan {
    seen: i64,
    to: Seq,
    shift: TokenCounters,
}

fn counter(category: i64) -> Counter {
    match category {
        1 => Counter::User,
        2 => Counter::Assistant,
        3 => Counter::Reasoning,
        4 => Counter::ToolCalls,
        5 => Counter::ToolResults,
        6 => Counter::Media,
        7 => Counter::Summary,
        8 => Counter::Pinned,
        other => panic!("category {other}"),
    }
}
