//! The owner's writes: a step, the end of a turn. Each carries the turn, its owner and the fence
//! `(epoch, op)`; one that carries an old fence, or another turn or owner, changes nothing.

use std::{
    collections::BTreeSet,
    sync::LazyLock,
    time::{Duration, Instant},
};

use tokio_postgres::Row;

use super::{
    Error, Store,
    anchor::anchor_param,
    following::NextTurn,
    grant::Grant,
    lock::{GATE, LOCK_RUN},
    named_parameters::{self, Named},
    pipeline::{Param, Query},
    rollback,
    row::{ended_number, get, session_state},
    rows::{Key, Rows, signed},
    tool_call::{APPROVAL, CANCELLED, REQUESTED, WAITING, executor_number},
    written::{Ack, Fenced, Written},
};
use crate::{
    codec,
    model::{
        Anchor, CallId, Ending, Fence, MessageId, Payload, Seq, SessionKey, ToolExecutor,
        TurnFence, TurnResult, Usage, UsageTotals, command::TurnRequest, event::WaitsFor,
    },
};

/// A call that the model made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCall {
    /// Its id.
    pub id: CallId,
    /// The tool.
    pub name: String,
    /// Where it stands in the assistant message.
    pub part: usize,
    /// What becomes of it.
    pub fate: CallFate,
    /// How long a result or an approval is awaited.
    pub timeout: Duration,
    /// Who runs it.
    pub executor: ToolExecutor,
}

/// What becomes of a call that the model made.
#[derive(Debug, Clone, PartialEq)]
pub enum CallFate {
    /// The host is asked at once, for a result or an approval.
    Asked(WaitsFor),
    /// The host is asked in its turn.
    Later {
        /// For what.
        waits_for: WaitsFor,
        /// The event that asks.
        request: Box<Payload>,
    },
    /// It is closed without being run.
    NotRun,
}

impl CallFate {
    /// Whether it waits for something.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Asked(_) | Self::Later { .. } => true,
            Self::NotRun => false,
        }
    }

    fn status(&self) -> i16 {
        match self {
            Self::Asked(WaitsFor::Result { .. }) => REQUESTED,
            Self::Later {
                waits_for: WaitsFor::Result { .. },
                ..
            } => WAITING,
            Self::Asked(WaitsFor::Approval)
            | Self::Later {
                waits_for: WaitsFor::Approval,
                ..
            } => APPROVAL,
            Self::NotRun => CANCELLED,
        }
    }

    fn request(&self) -> Option<Vec<u8>> {
        match self {
            Self::Later {
                waits_for: _,
                request,
            } => Some(codec::event::encode(request).payload),
            Self::Asked(_) | Self::NotRun => None,
        }
    }
}

/// The calls of one assistant message, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The assistant message.
    pub message: MessageId,
    /// The tool message that will hold their results.
    pub results: MessageId,
    /// The calls.
    pub calls: Vec<NewCall>,
}

impl Batch {
    /// The calls that are to be run at once on MCP servers.
    pub fn requested(&self) -> BTreeSet<CallId> {
        let runs = |call: &&NewCall| {
            call.executor == ToolExecutor::Mcp
                && matches!(call.fate, CallFate::Asked(WaitsFor::Result { .. }))
        };
        let calls = self.calls.iter().filter(runs);
        calls.map(|call| call.id.clone()).collect()
    }
}

/// What a step cost, and what it wrote.
#[derive(Debug, Clone, Default)]
pub struct StepCost<'a> {
    /// Model reference.
    pub model: &'a str,
    /// The usage. `None` means no call was made.
    pub call: Option<Option<&'a Usage>>,
    /// The assistant message that was written.
    pub message: Option<&'a MessageId>,
    /// What the call measured. `None` means its provider reported nothing.
    pub measured: Option<Anchor>,
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

/// The first one of each compares the fence and answers.
pub(super) static APPEND: LazyLock<Vec<Named>> = named![
    "sql/append/run.sql",
    "sql/rows/events.sql",
    "sql/rows/messages.sql",
    "sql/rows/parts.sql",
    "sql/rows/media.sql",
    "sql/append/calls.sql",
    "sql/append/turn.sql",
    "sql/rows/context.sql",
    "sql/rows/spend.sql",
    "sql/rows/chunks.sql",
];
pub(super) static RETRY: LazyLock<Vec<Named>> = named![
    "sql/retry/run.sql",
    "sql/rows/events.sql",
    "sql/rows/messages.sql",
    "sql/rows/parts.sql",
    "sql/retry/turn.sql",
    "sql/rows/spend.sql",
    "sql/rows/chunks.sql",
];
/// After the gate and the row lock.
pub(super) static FINISH: LazyLock<Vec<Named>> = named![
    head "sql/finish/head.sql";
    "sql/finish/run.sql",
    "sql/finish/events.sql",
    "sql/rows/messages.sql",
    "sql/rows/parts.sql",
    "sql/rows/media.sql",
    "sql/finish/turn.sql",
    "sql/rows/context.sql",
    "sql/rows/spend.sql",
    "sql/rows/chunks.sql",
    "sql/finish/session_used.sql",
];
/// After the gate and the row lock. The calls that are open stay so until all that counts them was
/// written.
pub(super) static STOP: LazyLock<Vec<Named>> = named![
    head "sql/stop/head.sql";
    "sql/stop/run.sql",
    "sql/rows/events.sql",
    "sql/stop/events.sql",
    "sql/rows/messages.sql",
    "sql/rows/parts.sql",
    "sql/rows/media.sql",
    "sql/stop/results.sql",
    "sql/stop/message.sql",
    "sql/stop/turn.sql",
    "sql/rows/context.sql",
    "sql/stop/context.sql",
    "sql/stop/calls.sql",
    "sql/rows/spend.sql",
    "sql/rows/chunks.sql",
    "sql/rows/session_used.sql",
    "sql/stop/queue.sql",
];
pub(super) const SETTLE: &str = "-- store::turn::settle
    select epoch, op, owner, written_by, turn_id, state, cancel, next_seq from session_run where tenant_id = $1 and session_id = $2";
impl Store {
    /// The owner's append: rows, calls, what the step cost. With calls left open the turn waits and
    /// the lease is released in the same statement.
    pub async fn append(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        batch: Option<&Batch>,
    ) -> Result<Written, Error> {
        let key = Key::from(key);
        let spent = Spent::from(cost);
        let calls = Calls::from(batch);
        let lease = self.lease.as_secs_f64();
        let message = cost.message.map(MessageId::as_str);
        let fence = FenceValues::new(self, right);
        let mut values = rows.values(&key);
        values.extend(fence.values());
        values.extend(spent.values());
        values.extend(calls.values());
        values.extend([
            ("lease", &lease as Param<'_>),
            ("final_message", &message),
            ("measured", &spent.measured),
        ]);
        let is_needed = |name: &str| match name {
            "store::turn::append_calls" => batch.is_some(),
            name => rows.need(name) && spent.need(name),
        };
        let queries = named_parameters::queries(&APPEND, &values, is_needed)?;
        self.owner_write(&key, right, &queries).await
    }

    /// Repeats the step as its next attempt. The rows are events of the attempt that failed. The
    /// turn goes on with what `fallback` asks for, also under its next owner.
    pub async fn retry(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        fallback: Option<&TurnRequest>,
    ) -> Result<Written, Error> {
        let key = Key::from(key);
        let request = fallback.map(codec::turn::encode_request);
        let model = fallback.and_then(|request| request.model.as_deref());
        let spent = Spent::from(cost);
        let lease = self.lease.as_secs_f64();
        let fence = FenceValues::new(self, right);
        let mut values = rows.values(&key);
        values.extend(fence.values());
        values.extend(spent.values());
        values.extend([
            ("lease", &lease as Param<'_>),
            ("fallback_request", &request),
            ("fallback_model", &model),
        ]);
        let is_needed = |name: &str| rows.need(name) && spent.need(name);
        let queries = named_parameters::queries(&RETRY, &values, is_needed)?;
        self.owner_write(&key, right, &queries).await
    }

    /// The last step: commits its message in any case, and ends the turn as completed if no message
    /// waits for it and no client cancelled.
    pub async fn finish(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        end: &End<'_>,
    ) -> Result<Written, Error> {
        self.finish_and_start(key, right, rows, cost, end, None)
            .await
            .map(|(written, _)| written)
    }

    /// The same; when that ends the turn, the next one begins in the same transaction.
    pub async fn finish_and_start(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        end: &End<'_>,
        next: Option<&NextTurn<'_>>,
    ) -> Result<(Written, Option<Grant>), Error> {
        let key = Key::from(key);
        let spent = Spent::from(cost);
        let ended = Ended::from(end);
        let message = cost.message.map(MessageId::as_str);
        let lease = self.lease.as_secs_f64();
        let fence = FenceValues::new(self, right);
        let mut values = rows.values(&key);
        values.extend(fence.values());
        values.extend(spent.values());
        values.extend([
            ("step_count", &ended.steps as Param<'_>),
            ("final_message", &message),
            ("lease", &lease),
        ]);
        values.extend([
            ("payload", &ended.payload as Param<'_>),
            ("outcome", &ended.outcome),
            ("measured", &spent.measured),
        ]);
        let is_needed = |name: &str| rows.need(name) && spent.need(name);
        let session = || vec![&key.tenant as Param<'_>, &key.session];
        let mut queries = vec![Query::new(GATE, session()), Query::new(LOCK_RUN, session())];
        let own = queries.len();
        queries.extend(named_parameters::queries(&FINISH, &values, is_needed)?);
        self.end_and_start(&key, right, (queries, own), next).await
    }

    /// Every other end: closes what is open and ends the turn, whatever waits in the queue.
    pub async fn stop(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        end: &End<'_>,
    ) -> Result<Written, Error> {
        self.stop_and_start(key, right, rows, cost, end, None)
            .await
            .map(|(written, _)| written)
    }

    /// The same, and the next turn begins in the same transaction.
    pub async fn stop_and_start(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        end: &End<'_>,
        next: Option<&NextTurn<'_>>,
    ) -> Result<(Written, Option<Grant>), Error> {
        let key = Key::from(key);
        let spent = Spent::from(cost);
        let ended = Ended::from(end);
        let message = cost.message.map(MessageId::as_str);
        let tokens = signed(end.synthetic.tokens);
        let overhead = signed(end.synthetic.overhead);
        let closed = codec::event::encode_call_cancelled(end.synthetic.reason);
        let fence = FenceValues::new(self, right);
        let mut values = rows.values(&key);
        values.extend(fence.values());
        values.extend(spent.values());
        values.extend([
            ("measured", &spent.measured as Param<'_>),
            ("step_count", &ended.steps),
            ("final_message", &message),
            ("kind", &ended.kind),
            ("payload", &ended.payload),
            ("outcome", &ended.outcome),
            ("turn_state", &ended.state),
        ]);
        values.extend([
            ("closed_words", &end.synthetic.words as Param<'_>),
            ("closed_tokens", &tokens),
            ("closed_overhead", &overhead),
            ("closed_payload", &closed),
        ]);
        let is_needed = |name: &str| match name {
            "store::turn::unstart" => !matches!(end.ending, Ending::Completed(_)),
            name => rows.need(name) && spent.need(name),
        };
        let session = || vec![&key.tenant as Param<'_>, &key.session];
        let mut queries = vec![Query::new(GATE, session()), Query::new(LOCK_RUN, session())];
        let mut own = queries.len();
        queries.extend(named_parameters::queries(&STOP, &values, is_needed)?);
        if let Ending::Cancelled {
            undone: Some(_), ..
        } = end.ending
        {
            queries.extend(rollback::queries(
                &key,
                &right.fence,
                [&fence.owner, &fence.turn],
            )?);
            own = queries.len() - 1;
        }
        self.end_and_start(&key, right, (queries, own), next).await
    }

    async fn owner_write(
        &self,
        key: &Key,
        right: TurnFence<'_>,
        queries: &[Query<'_>],
    ) -> Result<Written, Error> {
        match self.fenced_write(key, right, queries, 0).await? {
            Fenced::Applied(ack) => Ok(Written::Applied(ack)),
            Fenced::Gone => Ok(Written::Fenced),
            Fenced::Refused => Err(Error::Corrupt(format!(
                "an owner's write with the fence {right:?} was refused"
            ))),
        }
    }

    /// Repeats a write whose answer was lost, unchanged, for as long as the lease may last; then
    /// looks whether it had landed. The statement `own` compares the fence and answers.
    pub(super) async fn fenced_write(
        &self,
        key: &Key,
        right: TurnFence<'_>,
        queries: &[Query<'_>],
        own: usize,
    ) -> Result<Fenced, Error> {
        self.fenced_answers(key, right, queries, own)
            .await
            .map(|(fenced, _)| fenced)
    }

    /// The same. The rows of the last statement come back with it, if that is another one.
    pub(super) async fn fenced_answers(
        &self,
        key: &Key,
        right: TurnFence<'_>,
        queries: &[Query<'_>],
        own: usize,
    ) -> Result<(Fenced, Vec<Row>), Error> {
        let give_up = Instant::now() + self.lease;
        let mut pause = Duration::from_millis(20);
        loop {
            let result = match queries {
                [single] => self.database.write(single).await.map(|rows| vec![rows]),
                _ => self.database.transact(queries).await,
            };
            match result {
                Ok(mut answers) => match answers.get(own).and_then(|rows| rows.first()) {
                    Some(row) => {
                        let applied = Fenced::Applied(ack(row)?);
                        return Ok((
                            applied,
                            answers.drain(own + 1..).next_back().unwrap_or_default(),
                        ));
                    }
                    None => return Ok((self.settle(key, right).await?, Vec::new())),
                },
                Err(error) if error.is_transient() && Instant::now() + pause < give_up => {
                    tracing::warn!(%error, "no answer to a write; repeating it");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a write that now changes nothing had landed before: the fence of its turn has moved
    /// by exactly one operation, and it was this replica that moved it.
    async fn settle(&self, key: &Key, right: TurnFence<'_>) -> Result<Fenced, Error> {
        let rows = self
            .database
            .read(SETTLE, &[&key.tenant, &key.session])
            .await?;
        let Some(row) = rows.first() else {
            return Ok(Fenced::Gone);
        };
        let now = Fence {
            epoch: get(row, "epoch")?,
            op: get(row, "op")?,
        };
        let is_turn = get::<Option<&str>>(row, "turn_id")? == Some(right.turn.as_str());
        let is_mine =
            |column| Ok::<_, Error>(get::<Option<&str>>(row, column)? == Some(self.replica()));
        if is_turn && now == right.fence.next() && is_mine("written_by")? {
            Ok(Fenced::Applied(ack(row)?))
        } else if is_turn && now == right.fence && is_mine("owner")? {
            Ok(Fenced::Refused)
        } else {
            Ok(Fenced::Gone)
        }
    }
}

/// What an owner's write carries: the fence, the owner and its turn.
pub(super) struct FenceValues<'a> {
    fence: Fence,
    owner: &'a str,
    turn: &'a str,
}

impl<'a> FenceValues<'a> {
    pub(super) fn new(store: &'a Store, right: TurnFence<'a>) -> Self {
        Self {
            fence: right.fence,
            owner: store.replica(),
            turn: right.turn.as_str(),
        }
    }

    /// Those of the fragment `fence`.
    pub(super) fn values(&self) -> [(&'static str, Param<'_>); 4] {
        [
            ("epoch", &self.fence.epoch),
            ("op", &self.fence.op),
            ("owner", &self.owner),
            ("turn", &self.turn),
        ]
    }
}

struct Spent<'a> {
    model: &'a str,
    totals: [i64; 6],
    measured: Option<Vec<i64>>,
}

impl<'a> From<&StepCost<'a>> for Spent<'a> {
    fn from(cost: &StepCost<'a>) -> Self {
        let totals = cost
            .call
            .map(|usage| UsageTotals::default().plus(usage))
            .unwrap_or_default();
        let UsageTotals {
            calls,
            input,
            output,
            reasoning,
            cache_read,
            cache_write,
        } = totals;
        Self {
            model: cost.model,
            totals: [calls, input, output, reasoning, cache_read, cache_write],
            measured: cost.measured.as_ref().map(anchor_param),
        }
    }
}

impl Spent<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 7] {
        let [calls, input, output, reasoning, cache_read, cache_write] = &self.totals;
        [
            ("model", &self.model),
            ("calls", calls),
            ("input_tokens", input),
            ("output_tokens", output),
            ("reasoning_tokens", reasoning),
            ("cache_read_tokens", cache_read),
            ("cache_write_tokens", cache_write),
        ]
    }

    /// Whether a statement of that name has something to write.
    fn need(&self, statement: &str) -> bool {
        statement != "store::usage::spend" || self.totals[0] > 0
    }
}

#[derive(Default)]
struct Calls {
    ids: Vec<String>,
    names: Vec<String>,
    parts: Vec<i32>,
    ords: Vec<i32>,
    timeouts: Vec<f64>,
    executors: Vec<i16>,
    statuses: Vec<i16>,
    requests: Vec<Option<Vec<u8>>>,
    message: String,
    results: String,
}

impl From<Option<&Batch>> for Calls {
    fn from(batch: Option<&Batch>) -> Self {
        let Some(Batch {
            message,
            results,
            calls,
        }) = batch
        else {
            return Self::default();
        };
        let mut columns = Self {
            message: message.as_str().to_owned(),
            results: results.as_str().to_owned(),
            ..Self::default()
        };
        for (
            ord,
            NewCall {
                id,
                name,
                part,
                fate,
                timeout,
                executor,
            },
        ) in (0..).zip(calls)
        {
            columns.ids.push(id.as_str().to_owned());
            columns.names.push(name.clone());
            columns.parts.push(i32::try_from(*part).unwrap_or(i32::MAX));
            columns.ords.push(ord);
            columns.timeouts.push(timeout.as_secs_f64());
            columns.executors.push(executor_number(*executor));
            columns.statuses.push(fate.status());
            columns.requests.push(fate.request());
        }
        columns
    }
}

impl Calls {
    fn values(&self) -> [(&'static str, Param<'_>); 10] {
        [
            ("call_ids", &self.ids),
            ("call_names", &self.names),
            ("call_parts", &self.parts),
            ("call_ords", &self.ords),
            ("call_timeouts", &self.timeouts),
            ("call_executors", &self.executors),
            ("call_statuses", &self.statuses),
            ("call_requests", &self.requests),
            ("calls_message", &self.message),
            ("results_message", &self.results),
        ]
    }
}

pub(super) struct Ended {
    pub(super) steps: i32,
    kind: &'static str,
    pub(super) payload: Vec<u8>,
    pub(super) outcome: Vec<u8>,
    state: i16,
}

impl From<&End<'_>> for Ended {
    fn from(end: &End<'_>) -> Self {
        let payload = crate::model::Payload::TurnEnded {
            ending: end.ending.clone(),
            result: end.result.clone(),
        };
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

fn ack(row: &Row) -> Result<Ack, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    Ok(Ack {
        state: session_state(get(row, "state")?)?,
        cancelled: get::<i16>(row, "cancel")? != 0,
        last_seq: Seq(next_seq - 1),
    })
}
