//! The end of a turn, which its owner writes. It carries the turn, its owner and the fence
//! `(epoch, op)`; one that carries an old fence, or another turn or owner, changes nothing.

use std::sync::LazyLock;

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
    rows::{Key, RowColumns, signed},
    written::{Ack, Fenced, Written},
};
use crate::{
    codec,
    model::{Ending, Fence, MessageId, Seq, SessionKey, TurnFence, TurnResult, UsageTotals},
    session::{cost::StepCost, rows::Rows},
};

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
        let rows = RowColumns::from(rows);
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
        let rows = RowColumns::from(rows);
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
        self.insist(|| async {
            let mut answers = match queries {
                [single] => vec![self.database.write(single).await?],
                _ => self.database.transact(queries).await?,
            };
            let Some(row) = answers.get(own).and_then(|rows| rows.first()) else {
                return Ok((self.settle(key, right).await?, Vec::new()));
            };
            let applied = Fenced::Applied(ack(row)?);
            let last = answers.drain(own + 1..).next_back();
            Ok((applied, last.unwrap_or_default()))
        })
        .await
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
        let UsageTotals {
            calls,
            input,
            output,
            reasoning,
            cache_read,
            cache_write,
        } = cost.totals();
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
