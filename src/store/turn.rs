//! Turns: admission, and the owner's writes. Every owner's write carries the fence `(epoch, op)`; one that carries an old fence
//! changes nothing.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    pipeline::{Param, Query},
    row::{count, ended_number, get, turn_state},
    rows::{Key, Rows, signed},
    session::{ConfigParams, NewConfig, Remembered, SessionState},
};
use crate::{
    codec,
    model::{
        CallId, CancelCause, Ending, Fence, MessageId, RequestId, Seq, SessionConfig, SessionKey, TurnId, TurnResult,
        TurnState, Usage, UsageTotals,
        command::{Idempotency, TurnRequest},
    },
};

/// A turn to be admitted.
#[derive(Debug, Clone)]
pub struct Admission<'a> {
    /// Its id.
    pub turn: &'a TurnId,
    /// Its first events and its input.
    pub rows: &'a Rows,
    /// How long it may take.
    pub timeout: Duration,
    /// The revision that its first step was made for.
    pub revision: i64,
    /// Idempotency.
    pub idempotency: &'a Idempotency,
    /// What it does differently from its session.
    pub request: &'a TurnRequest,
    /// Model reference.
    pub model: &'a str,
}

/// The right to write for a session, as it was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The fence of the first statement.
    pub fence: Fence,
    /// The turn.
    pub turn: TurnId,
    /// The newest seq.
    pub last_seq: Seq,
}

/// What stands in the way of an admission, or what became of the request before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Where the session stands.
    pub state: SessionState,
    /// The live turn, or the last one.
    pub turn: Option<TurnId>,
    /// The newest seq.
    pub last_seq: Seq,
    /// The configuration's revision.
    pub revision: i64,
    /// What the idempotency key led to.
    pub remembered: Option<Remembered>,
}

/// A call that the model made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCall {
    /// Its id.
    pub id: CallId,
    /// The tool.
    pub name: String,
    /// Where it stands in the assistant message.
    pub part: usize,
    /// Whether it waits for a result; else it was closed without being run.
    pub open: bool,
    /// How long a result is awaited.
    pub timeout: Duration,
}

/// The calls of one assistant message, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The assistant message.
    pub message: MessageId,
    /// The tool message that will hold their results.
    pub results: MessageId,
    /// The calls.
    pub calls: Vec<NewCall>,
}

/// What a step cost, and what it wrote.
#[derive(Debug, Clone, Default)]
pub struct StepCost<'a> {
    /// Model reference.
    pub model: &'a str,
    /// The usage; none: no call was made.
    pub call: Option<Option<&'a Usage>>,
    /// The assistant message that was written.
    pub message: Option<&'a MessageId>,
}

/// The end of a turn, as it is written.
#[derive(Debug, Clone)]
pub struct End<'a> {
    /// How.
    pub ending: &'a Ending,
    /// What came of it.
    pub result: &'a TurnResult,
    /// The synthetic result of calls that are still open.
    pub synthetic: Synthetic<'a>,
}

/// The result that a call gets when it is closed without one.
#[derive(Debug, Clone, Copy)]
pub struct Synthetic<'a> {
    /// Its words.
    pub words: &'a str,
    /// Their tokens.
    pub tokens: u32,
    /// Tokens of a message beside its parts.
    pub overhead: u32,
    /// Why, in the events.
    pub reason: crate::model::event::CallCancelReason,
}

/// What the hot row says after an owner's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Where the session stands now.
    pub state: SessionState,
    /// Somebody wants the turn cancelled.
    pub cancelled: bool,
    /// The newest seq.
    pub last_seq: Seq,
}

/// What became of an owner's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is committed.
    Applied(Ack),
    /// Another owner has the session: nothing was written, and nothing more may be.
    Fenced,
}

/// What became of a write under a fence that may also depend on what others write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fenced {
    /// It is committed.
    Applied(Ack),
    /// The fence is in force, but a condition was not met: nothing was written.
    Refused,
    /// Another owner has the session.
    Gone,
}

/// A request to cancel that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRequest {
    /// By what.
    pub cause: CancelCause,
    /// The canceller's words.
    pub reason: String,
}

/// A turn as its owner needs it.
#[derive(Debug, Clone)]
pub struct Owned {
    /// The step it is at.
    pub step: u32,
    /// The attempt at it.
    pub attempt: u32,
    /// Takeovers without progress.
    pub takeovers: u32,
    /// Calls that wait for results.
    pub open_calls: u32,
    /// Somebody wants it cancelled.
    pub cancel: Option<CancelRequest>,
    /// How much time is left; zero when it passed.
    pub time_left: Duration,
    /// When it started.
    pub started_at: Timestamp,
    /// The database's time when this was read.
    pub read_at: Timestamp,
    /// What it does differently from its session.
    pub request: TurnRequest,
    /// The session's configuration in force.
    pub config: SessionConfig,
    /// Its revision.
    pub revision: i64,
    /// Tokens spent so far.
    pub totals: UsageTotals,
    /// The last assistant message.
    pub final_message: Option<MessageId>,
    /// Tokens of the live transcript.
    pub context_tokens: i64,
    /// The newest seq.
    pub last_seq: Seq,
}

/// A turn as clients see it.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Its id.
    pub id: TurnId,
    /// Where it stands.
    pub state: TurnState,
    /// The request that started it.
    pub request_id: Option<RequestId>,
    /// Model reference.
    pub model: String,
    /// What it does differently from its session.
    pub request: TurnRequest,
    /// The session's configuration in force.
    pub config: SessionConfig,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The seq of its first event.
    pub first_seq: Seq,
    /// The seq of its terminal event.
    pub last_seq: Option<Seq>,
    /// What came of it so far, without finish reason and last usage.
    pub so_far: TurnResult,
    /// How it ended, encoded.
    pub outcome: Option<Vec<u8>>,
}

/// Takes the gate between enqueue and the end of a turn.
pub(super) const GATE: &str = "-- store::turn::gate
    select 1 from sessions where tenant_id = $1 and session_id = $2 for update";

/// Locks the hot row, so that the next statement sees everything that was committed under the lock.
pub(super) const LOCK_RUN: &str = "-- store::turn::lock_run
    select 1 from session_run where tenant_id = $1 and session_id = $2 for no key update";

/// A long statement, the shared tails behind it, and what it answers.
macro_rules! statement {
    ($($file:literal),+; $answer:literal) => { concat!($(include_str!($file)),+, $answer) };
}

pub(super) const ADMIT: &str = statement!("sql/admit.sql", "sql/rows.sql", "sql/grown.sql", "sql/context_delta.sql";
    " select f.epoch, f.op, f.turn_id, f.next_seq from f");
pub(super) const ADMIT_NEW: &str = statement!("sql/admit_new.sql", "sql/rows.sql", "sql/grown.sql", "sql/new_context.sql";
    " select f.epoch, f.op, f.turn_id, f.next_seq from f");
pub(super) const APPEND: &str = statement!("sql/append.sql", "sql/rows.sql", "sql/grown.sql", "sql/context_delta.sql", "sql/spent.sql";
    " select f.state, f.cancel, f.next_seq from f");
pub(super) const FINISH: &str = statement!("sql/finish.sql", "sql/rows.sql", "sql/grown.sql", "sql/context_delta.sql", "sql/spent.sql";
    " select f.state, f.cancel, f.next_seq from f");
pub(super) const STOP: &str = statement!("sql/stop.sql", "sql/rows.sql", "sql/grown_by_stop.sql", "sql/context_delta.sql", "sql/spent.sql";
    " select f.state, f.cancel, f.next_seq from f");
pub(super) const STANDING: &str = "-- store::turn::standing
    select r.state, r.turn_id, r.next_seq, r.revision, i.req_hash, i.result
      from session_run r
      left join idempotency i on i.tenant_id = $1 and i.session_id = $2 and i.request_id = $3
     where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3";
pub(super) const SETTLE: &str = "-- store::turn::settle
    select epoch, op, state, cancel, next_seq from session_run where tenant_id = $1 and session_id = $2";
pub(super) const OWNED: &str = "-- store::turn::owned
    select r.step, r.attempt, r.takeovers, r.open_calls, r.cancel, r.cancel_cause, r.cancel_reason, r.next_seq, r.ctx_tokens, r.revision,
           coalesce(extract(epoch from r.turn_deadline - now()), 0)::float8 as time_left, now() as read_at,
           t.started_at, t.request, t.final_message, t.calls, t.input_tokens, t.output_tokens, t.reasoning_tokens,
           t.cache_read_tokens, t.cache_write_tokens, v.config, s.tools
      from session_run r
      join turns t on t.tenant_id = $1 and t.session_id = $2 and t.turn_id = r.turn_id
      join session_revisions v on v.tenant_id = $1 and v.session_id = $2 and v.revision = r.revision
      join toolsets s on s.tenant_id = $1 and s.toolset_id = v.toolset_id
     where r.tenant_id = $1 and r.session_id = $2 and r.epoch = $3 and r.state = 1";

impl Store {
    /// Starts a turn in an existing, idle session. None: it is not idle, the request is known, or the configuration changed since
    /// it was read; [`Store::standing`] tells.
    pub async fn admit(&self, key: &SessionKey, admission: &Admission<'_>) -> Result<Option<Grant>, Error> {
        let (key, bound) = (Key::from(key), AdmissionParams::new(self, admission));
        let mut params = admission.rows.params(&key);
        params.extend(bound.params());
        match self.database.write(&Query::new(ADMIT, params)).await {
            Ok(rows) => rows.first().map(grant).transpose(),
            Err(Error::Duplicate(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a session with its first turn. None: the session exists.
    pub async fn admit_new(
        &self,
        key: &SessionKey,
        admission: &Admission<'_>,
        new: &NewConfig<'_>,
    ) -> Result<Option<Grant>, Error> {
        let (key, bound, config) = (Key::from(key), AdmissionParams::new(self, admission), ConfigParams::from(new));
        let mut params = admission.rows.params(&key);
        params.extend(bound.params());
        params.extend([&config.toolset_id as Param<'_>, &config.config, &config.tools, &config.tokens]);
        let rows = self.database.write(&Query::new(ADMIT_NEW, params)).await?;
        rows.first().map(grant).transpose()
    }

    /// Where a session stands and what became of a request; none: there is no such session.
    pub async fn standing(&self, key: &SessionKey, request: Option<&RequestId>) -> Result<Option<Standing>, Error> {
        let key = Key::from(key);
        let rows = self.database.read(STANDING, &[&key.tenant, &key.session, &request.map(RequestId::as_str)]).await?;
        rows.first().map(standing).transpose()
    }

    /// The owner's append: rows, calls, what the step cost. With calls left open the turn waits and the lease is released in the
    /// same statement. `advance`: the rows begin the next step.
    pub async fn append(
        &self,
        key: &SessionKey,
        fence: Fence,
        rows: &Rows,
        cost: &StepCost<'_>,
        batch: Option<&Batch>,
        advance: bool,
    ) -> Result<Written, Error> {
        let (key, spent, calls) = (Key::from(key), Spent::from(cost), Calls::from(batch));
        let (steps, message, lease) =
            (i32::from(advance), cost.message.map(MessageId::as_str), self.lease.as_secs_f64());
        let mut params = rows.params(&key);
        params.extend([&fence.epoch as Param<'_>, &fence.op]);
        params.extend(spent.params());
        params.extend([&steps as Param<'_>, &message]);
        params.extend(calls.params());
        params.push(&lease);
        self.owner_write(&key, fence, &[Query::new(APPEND, params)]).await
    }

    /// The last step: commits its message in any case, and ends the turn as completed if no message waits for it and nobody
    /// cancelled.
    pub async fn finish(
        &self,
        key: &SessionKey,
        fence: Fence,
        rows: &Rows,
        cost: &StepCost<'_>,
        end: &End<'_>,
    ) -> Result<Written, Error> {
        let (key, spent, ended) = (Key::from(key), Spent::from(cost), Ended::from(end));
        let (message, lease) = (cost.message.map(MessageId::as_str), self.lease.as_secs_f64());
        let mut params = rows.params(&key);
        params.extend([&fence.epoch as Param<'_>, &fence.op]);
        params.extend(spent.params());
        params.extend([&ended.steps as Param<'_>, &message, &ended.payload, &ended.outcome, &lease]);
        let gate = Query::new(GATE, vec![&key.tenant as Param<'_>, &key.session]);
        self.owner_write(&key, fence, &[gate, Query::new(FINISH, params)]).await
    }

    /// Every other end: closes what is open and ends the turn, whatever waits in the queue.
    pub async fn stop(
        &self,
        key: &SessionKey,
        fence: Fence,
        rows: &Rows,
        cost: &StepCost<'_>,
        end: &End<'_>,
    ) -> Result<Written, Error> {
        let (key, spent, ended) = (Key::from(key), Spent::from(cost), Ended::from(end));
        let message = cost.message.map(MessageId::as_str);
        let (tokens, overhead) = (signed(end.synthetic.tokens), signed(end.synthetic.overhead));
        let closed = codec::event::encode_call_cancelled(end.synthetic.reason);
        let mut params = rows.params(&key);
        params.extend([&fence.epoch as Param<'_>, &fence.op]);
        params.extend(spent.params());
        params.extend([&ended.steps as Param<'_>, &message, &ended.kind, &ended.payload, &ended.outcome, &ended.state]);
        params.extend([&end.synthetic.words as Param<'_>, &tokens, &overhead, &closed]);
        let session = || vec![&key.tenant as Param<'_>, &key.session];
        let queries = [Query::new(GATE, session()), Query::new(LOCK_RUN, session()), Query::new(STOP, params)];
        self.owner_write(&key, fence, &queries).await
    }

    async fn owner_write(&self, key: &Key, fence: Fence, queries: &[Query<'_>]) -> Result<Written, Error> {
        match self.fenced_write(key, fence, queries).await? {
            Fenced::Applied(ack) => Ok(Written::Applied(ack)),
            Fenced::Gone => Ok(Written::Fenced),
            Fenced::Refused => Err(Error::Corrupt(format!("an owner's write with the fence {fence:?} was refused"))),
        }
    }

    /// Repeats a write whose answer was lost, unchanged, for as long as the lease may last; then looks whether it had landed.
    pub(super) async fn fenced_write(&self, key: &Key, fence: Fence, queries: &[Query<'_>]) -> Result<Fenced, Error> {
        let give_up = Instant::now() + self.lease;
        let mut pause = Duration::from_millis(20);
        loop {
            let result = match queries {
                [single] => self.database.write(single).await,
                _ => self.database.transact(queries).await.map(|mut rows| rows.pop().unwrap_or_default()),
            };
            match result {
                Ok(rows) => match rows.first() {
                    Some(row) => return Ok(Fenced::Applied(ack(row)?)),
                    None => return self.settle(key, fence).await,
                },
                Err(error) if error.is_transient() && Instant::now() + pause < give_up => {
                    tracing::warn!(%error, "a write gave no answer; repeating it");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a write that now changes nothing had landed before: its fence has moved by exactly one operation.
    async fn settle(&self, key: &Key, fence: Fence) -> Result<Fenced, Error> {
        let rows = self.database.read(SETTLE, &[&key.tenant, &key.session]).await?;
        let Some(row) = rows.first() else { return Ok(Fenced::Gone) };
        let now = Fence { epoch: get(row, "epoch")?, op: get(row, "op")? };
        if now == fence.next() {
            Ok(Fenced::Applied(ack(row)?))
        } else if now == fence {
            Ok(Fenced::Refused)
        } else {
            Ok(Fenced::Gone)
        }
    }

    /// The turn as its owner needs it; none: the fence is no longer in force.
    pub async fn owned(&self, key: &SessionKey, epoch: i64) -> Result<Option<Owned>, Error> {
        let key = Key::from(key);
        let rows = self.database.read(OWNED, &[&key.tenant, &key.session, &epoch]).await?;
        rows.first().map(owned).transpose()
    }

    /// One turn; none: the session has no such turn.
    pub async fn turn(&self, key: &SessionKey, turn: &TurnId) -> Result<Option<Turn>, Error> {
        const SQL: &str = concat!("-- store::turn::turn\n", turns_select!(), "and t.turn_id = $3");
        let key = Key::from(key);
        let rows = self.database.read(SQL, &[&key.tenant, &key.session, &turn.as_str()]).await?;
        rows.first().map(turn_row).transpose()
    }

    /// The turns of a session that started before `before`, newest first.
    pub async fn turns(&self, key: &SessionKey, before: Seq, limit: u32) -> Result<Vec<Turn>, Error> {
        const SQL: &str = concat!(
            "-- store::turn::turns\n",
            turns_select!(),
            "and t.first_seq < $3 order by t.first_seq desc limit $4"
        );
        let key = Key::from(key);
        let rows = self.database.read(SQL, &[&key.tenant, &key.session, &before.0, &i64::from(limit)]).await?;
        rows.iter().map(turn_row).collect()
    }
}

/// The columns of a turn.
macro_rules! turns_select {
    () => {
        "select t.turn_id, t.state, r.state as run_state, t.request_id, t.request, t.model, t.started_at, t.ended_at, t.first_seq,
                t.last_seq, t.step_count, t.final_message, t.calls, t.input_tokens, t.output_tokens, t.reasoning_tokens,
                t.cache_read_tokens, t.cache_write_tokens, t.outcome, v.config, s.tools,
                extract(epoch from coalesce(t.ended_at, now()) - t.started_at)::float8 as elapsed,
                case when t.state = 1 then r.step else t.step_count end as steps_begun
           from turns t
           join session_run r on r.tenant_id = $1 and r.session_id = $2 and r.state <> 3
           join session_revisions v on v.tenant_id = $1 and v.session_id = $2 and v.revision = r.revision
           join toolsets s on s.tenant_id = $1 and s.toolset_id = v.toolset_id
          where t.tenant_id = $1 and t.session_id = $2 "
    };
}
use turns_select;

struct AdmissionParams<'a> {
    turn: &'a str,
    owner: &'a str,
    lease: f64,
    timeout: f64,
    revision: i64,
    request_id: Option<&'a str>,
    hash: &'a str,
    request: Vec<u8>,
    model: &'a str,
}

impl<'a> AdmissionParams<'a> {
    fn new(store: &'a Store, admission: &Admission<'a>) -> Self {
        Self {
            turn: admission.turn.as_str(),
            owner: &store.replica,
            lease: store.lease.as_secs_f64(),
            timeout: admission.timeout.as_secs_f64(),
            revision: admission.revision,
            request_id: admission.idempotency.request.as_ref().map(RequestId::as_str),
            hash: &admission.idempotency.hash,
            request: codec::turn::encode_request(admission.request),
            model: admission.model,
        }
    }

    /// $27 to $35
    fn params(&self) -> [Param<'_>; 9] {
        [
            &self.turn,
            &self.owner,
            &self.lease,
            &self.timeout,
            &self.revision,
            &self.request_id,
            &self.hash,
            &self.request,
            &self.model,
        ]
    }
}

struct Spent<'a> {
    model: &'a str,
    totals: [i64; 6],
}

impl<'a> From<&StepCost<'a>> for Spent<'a> {
    fn from(cost: &StepCost<'a>) -> Self {
        let totals = cost.call.map(|usage| UsageTotals::default().plus(usage)).unwrap_or_default();
        let UsageTotals { calls, input, output, reasoning, cache_read, cache_write } = totals;
        Self { model: cost.model, totals: [calls, input, output, reasoning, cache_read, cache_write] }
    }
}

impl Spent<'_> {
    /// $29 to $35
    fn params(&self) -> Vec<Param<'_>> {
        std::iter::once(&self.model as Param<'_>).chain(self.totals.iter().map(|total| total as Param<'_>)).collect()
    }
}

#[derive(Default)]
struct Calls {
    ids: Vec<String>,
    names: Vec<String>,
    parts: Vec<i32>,
    ords: Vec<i32>,
    timeouts: Vec<f64>,
    open: Vec<bool>,
    message: String,
    results: String,
}

impl From<Option<&Batch>> for Calls {
    fn from(batch: Option<&Batch>) -> Self {
        let Some(Batch { message, results, calls }) = batch else { return Self::default() };
        let mut columns =
            Self { message: message.as_str().to_owned(), results: results.as_str().to_owned(), ..Self::default() };
        for (ord, NewCall { id, name, part, open, timeout }) in (0..).zip(calls) {
            columns.ids.push(id.as_str().to_owned());
            columns.names.push(name.clone());
            columns.parts.push(i32::try_from(*part).unwrap_or(i32::MAX));
            columns.ords.push(ord);
            columns.timeouts.push(timeout.as_secs_f64());
            columns.open.push(*open);
        }
        columns
    }
}

impl Calls {
    /// $38 to $45
    fn params(&self) -> [Param<'_>; 8] {
        [&self.ids, &self.names, &self.parts, &self.ords, &self.timeouts, &self.open, &self.message, &self.results]
    }
}

struct Ended {
    steps: i32,
    kind: &'static str,
    payload: Vec<u8>,
    outcome: Vec<u8>,
    state: i16,
}

impl From<&End<'_>> for Ended {
    fn from(end: &End<'_>) -> Self {
        let payload = crate::model::Payload::TurnEnded { ending: end.ending.clone(), result: end.result.clone() };
        let encoded = codec::event::encode(&payload);
        Self {
            steps: signed(end.result.step_count),
            kind: encoded.kind,
            payload: encoded.payload,
            outcome: codec::turn::encode_outcome(end.ending, end.result),
            state: ended_number(end.ending.state()),
        }
    }
}

pub(super) fn grant(row: &Row) -> Result<Grant, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    Ok(Grant {
        fence: Fence { epoch: get(row, "epoch")?, op: get(row, "op")? },
        turn: TurnId::new(get::<String>(row, "turn_id")?),
        last_seq: Seq(next_seq - 1),
    })
}

fn standing(row: &Row) -> Result<Standing, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    let hash: Option<String> = get(row, "req_hash")?;
    let result: Option<String> = get(row, "result")?;
    Ok(Standing {
        state: SessionState::from_number(get(row, "state")?)?,
        turn: get::<Option<String>>(row, "turn_id")?.map(TurnId::new),
        last_seq: Seq(next_seq - 1),
        revision: get(row, "revision")?,
        remembered: hash.zip(result).map(|(hash, result)| Remembered { hash, result }),
    })
}

fn ack(row: &Row) -> Result<Ack, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    Ok(Ack {
        state: SessionState::from_number(get(row, "state")?)?,
        cancelled: get::<i16>(row, "cancel")? != 0,
        last_seq: Seq(next_seq - 1),
    })
}

fn totals(row: &Row) -> Result<UsageTotals, Error> {
    Ok(UsageTotals {
        calls: get(row, "calls")?,
        input: get(row, "input_tokens")?,
        output: get(row, "output_tokens")?,
        reasoning: get(row, "reasoning_tokens")?,
        cache_read: get(row, "cache_read_tokens")?,
        cache_write: get(row, "cache_write_tokens")?,
    })
}

fn owned(row: &Row) -> Result<Owned, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    let takeovers: i16 = get(row, "takeovers")?;
    Ok(Owned {
        step: count(row, "step")?,
        attempt: count(row, "attempt")?,
        takeovers: u32::try_from(takeovers).unwrap_or_default(),
        open_calls: count(row, "open_calls")?,
        cancel: cancel_request(row)?,
        time_left: Duration::try_from_secs_f64(get(row, "time_left")?).unwrap_or_default(),
        started_at: get(row, "started_at")?,
        read_at: get(row, "read_at")?,
        request: codec::turn::decode_request(get(row, "request")?)?,
        config: codec::config::decode(get(row, "config")?, codec::tools::decode(get(row, "tools")?)?)?,
        revision: get(row, "revision")?,
        totals: totals(row)?,
        final_message: get::<Option<String>>(row, "final_message")?.map(MessageId::new),
        context_tokens: get(row, "ctx_tokens")?,
        last_seq: Seq(next_seq - 1),
    })
}

fn cancel_request(row: &Row) -> Result<Option<CancelRequest>, Error> {
    if get::<i16>(row, "cancel")? == 0 {
        return Ok(None);
    }
    let cause = match get::<i16>(row, "cancel_cause")? {
        1 => CancelCause::Requested,
        other => return Err(Error::Corrupt(format!("cancel cause {other}"))),
    };
    Ok(Some(CancelRequest { cause, reason: get(row, "cancel_reason")? }))
}

fn turn_row(row: &Row) -> Result<Turn, Error> {
    let elapsed: f64 = get(row, "elapsed")?;
    Ok(Turn {
        id: TurnId::new(get::<String>(row, "turn_id")?),
        state: turn_state(get(row, "state")?, get(row, "run_state")?)?,
        request_id: get::<Option<String>>(row, "request_id")?.map(RequestId::new),
        model: get(row, "model")?,
        request: codec::turn::decode_request(get(row, "request")?)?,
        config: codec::config::decode(get(row, "config")?, codec::tools::decode(get(row, "tools")?)?)?,
        started_at: get(row, "started_at")?,
        ended_at: get(row, "ended_at")?,
        first_seq: Seq(get(row, "first_seq")?),
        last_seq: get::<Option<i64>>(row, "last_seq")?.map(Seq),
        so_far: TurnResult {
            step_count: count(row, "steps_begun")?,
            final_message: get::<Option<String>>(row, "final_message")?.map(MessageId::new),
            total_usage: totals(row)?,
            elapsed: Duration::try_from_secs_f64(elapsed).unwrap_or_default(),
            ..TurnResult::default()
        },
        outcome: get(row, "outcome")?,
    })
}
