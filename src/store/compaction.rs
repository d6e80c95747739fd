//! Compactions: made aside under a lease of their own, put in force by comparing the context's
//! version, and taken back. What they change in the counters is a difference, so that it commutes
//! with the owner's appends.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    Error, Store,
    idempotency::{Remembered, Request, remembered},
    lock::lock_run,
    named_parameters::Named,
    pipeline::{Param, Query},
    row::{get, role_number},
    rows::{Key, RowColumns, message_info, signed},
};
use crate::{
    model::{
        CompactionId, CompactionState, Payload, RequestId, Seq, SessionKey, Usage, UsageTotals,
        command::Idempotency, event::StepPosition,
    },
    session::{counters::Shift, rows::NewMessage},
};

/// Where a compaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CompactionStatus {
    /// It is being made.
    Running,
    /// It is in force, or stands under a newer one.
    Applied,
    /// It was given up.
    Failed,
    /// It was taken back.
    Reverted,
}

impl From<CompactionStatus> for CompactionState {
    fn from(status: CompactionStatus) -> Self {
        match status {
            CompactionStatus::Running => Self::Running,
            CompactionStatus::Applied => Self::Applied,
            CompactionStatus::Failed => Self::Failed,
            CompactionStatus::Reverted => Self::Reverted,
        }
    }
}

/// What a compaction is begun with.
#[derive(Debug, Clone)]
pub struct Beginning<'a> {
    /// Its id.
    pub compaction: &'a CompactionId,
    /// The version of the context that it is made from.
    pub seen: i64,
    /// The encoded compaction.
    pub info: &'a [u8],
    /// The encoded `compaction_started`.
    pub started: &'a [u8],
    /// The encoded `compaction_failed` of one that is met with its lease past.
    pub expired: &'a [u8],
    /// Idempotency.
    pub idempotency: &'a Idempotency,
}

/// What stands in the transcript's place from now on.
#[derive(Debug, Clone)]
pub struct Replacement<'a> {
    /// The seq of the first message that it stands for.
    pub from: Seq,
    /// The seq of the last one.
    pub to: Seq,
    /// Messages in between that stay; beside those that are pinned, unless such are hidden.
    pub kept: &'a [Seq],
    /// Pinned messages that are not among `kept` are hidden too.
    pub hides_pinned: bool,
    /// What changes in the counters, the summary included.
    pub shift: Shift,
    /// The summary. `None` means messages are only left out.
    pub summary: Option<&'a NewMessage>,
    /// Which estimator counted the summary.
    pub estimator: &'a str,
    /// The encoded compaction.
    pub info: &'a [u8],
    /// The event of it.
    pub completed: &'a Payload,
    /// What it cost.
    pub cost: &'a Cost,
    /// How its calls are reported.
    pub accounts: Vec<Payload>,
}

/// What was spent on a compaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cost {
    /// The model that was called.
    pub model: String,
    /// The calls, those that failed too. `None` means it is not known.
    pub calls: Vec<Option<Usage>>,
}

impl Cost {
    /// All calls together.
    pub fn totals(&self) -> UsageTotals {
        self.calls
            .iter()
            .fold(UsageTotals::default(), |sum, usage| {
                sum.plus(usage.as_ref())
            })
    }
}

/// A compaction that is given up.
#[derive(Debug, Clone, Copy)]
pub struct GivenUp<'a> {
    /// The encoded compaction.
    pub info: &'a [u8],
    /// The encoded `compaction_failed`.
    pub failed: &'a [u8],
    /// What was spent on it.
    pub cost: &'a Cost,
    /// The encoded `usage_recorded` of its calls.
    pub accounts: &'a [Vec<u8>],
}

/// The head after a write that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The version of the context.
    pub context_version: i64,
    /// The newest seq.
    pub last_seq: Seq,
}

/// The outcome of a write, and how the session stands after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    /// The head as the write left it. `None` means nothing was written, the rest says why.
    pub moved: Option<Moved>,
    /// The version of the context. `None` means there is no such session.
    pub context_version: Option<i64>,
    /// Where the compaction stands. `None` means there is no such compaction. Repeated after a
    /// lost answer, this tells that it had landed.
    pub status: Option<CompactionStatus>,
    /// The compaction that runs.
    pub running: Option<CompactionId>,
    /// What the idempotency key led to.
    pub remembered: Option<Remembered>,
}

pub(super) static BEGIN: LazyLock<Named> = named_alone!("sql/begin_compaction.sql");
pub(super) static FAIL: LazyLock<Named> = named_alone!("sql/fail_compaction.sql");
pub(super) const RENEW: &str = "-- store::compaction::renew
    update compactions set lease_until = now() + make_interval(secs => $4)
     where tenant_id = $1 and session_id = $2 and compaction_id = $3 and status = 1 returning 1";
pub(super) static SWAP: LazyLock<Named> = named_alone!("sql/swap.sql");
pub(super) static REVERT: LazyLock<Named> = named_alone!("sql/revert.sql");
pub(super) const OUTCOME: &str = "-- store::compaction::outcome
    select r.context_version, c.status, n.compaction_id as running
      from session_run r
      left join compactions c on c.tenant_id = $1 and c.session_id = $2 and c.compaction_id = $3
      left join compactions n on n.tenant_id = $1 and n.session_id = $2 and n.status = 1
     where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3";

impl Store {
    /// Begins a compaction, unless one runs or the context is another one. One whose lease passed
    /// is failed first.
    pub async fn begin_compaction(
        &self,
        key: &SessionKey,
        begin: &Beginning<'_>,
    ) -> Result<Compacted, Error> {
        let key = Key::from(key);
        let lease = self.lease.as_secs_f64();
        let id = begin.compaction.as_str();
        let request = begin.idempotency.request.as_ref().map(RequestId::as_str);
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("compaction", &id),
            ("seen", &begin.seen),
            ("lease", &lease),
            ("info", &begin.info),
            ("payload", &begin.started),
            ("request_id", &request),
            ("request_hash", &begin.idempotency.hash),
        ];
        let known = Request::new(&key, request, &begin.idempotency.hash, "");
        let queries = [
            lock_run(&key),
            expire(&key, &begin.expired)?,
            BEGIN.query(&values)?,
            outcome(&key, &id),
            known.read(),
        ];
        compacted(&self.database.transact(&queries).await?, 2)
    }

    /// Renews the lease of a compaction. False: it no longer runs.
    pub async fn renew_compaction(
        &self,
        key: &SessionKey,
        compaction: &CompactionId,
    ) -> Result<bool, Error> {
        let key = Key::from(key);
        let id = compaction.as_str();
        let lease = self.lease.as_secs_f64();
        let params: Vec<Param<'_>> = vec![&key.tenant, &key.session, &id, &lease];
        Ok(!self.database.read(RENEW, &params).await?.is_empty())
    }

    /// Puts a compaction in force, if it still runs and the context has the version that it was
    /// made from.
    pub async fn swap_compaction(
        &self,
        key: &SessionKey,
        compaction: &CompactionId,
        replacement: &Replacement<'_>,
    ) -> Result<Compacted, Error> {
        let key = Key::from(key);
        let id = compaction.as_str();
        let kept: Vec<i64> = replacement.kept.iter().map(|seq| seq.0).collect();
        let rows = swap_rows(replacement);
        let Shift {
            messages,
            overhead,
            tokens,
            parts,
        } = replacement.shift;
        let tokens = tokens.as_slice();
        let parts = parts.as_slice();
        let summary = SummaryColumns::from(replacement.summary);
        let totals = replacement.cost.totals();
        let mut values = rows.values(&key);
        values.extend([
            ("compaction", &id as Param<'_>),
            ("from_seq", &replacement.from.0),
            ("to_seq", &replacement.to.0),
            ("shift_messages", &messages),
            ("shift_overhead", &overhead),
            ("shift_tokens", &tokens),
            ("shift_parts", &parts),
            ("info", &replacement.info),
        ]);
        values.extend([
            ("summary", &summary.id as Param<'_>),
            ("summary_role", &summary.role),
            ("summary_tokens", &summary.overhead),
            ("summary_info", &summary.info),
            ("kept", &kept),
            ("hides_pinned", &replacement.hides_pinned),
        ]);
        let queries = [
            lock_run(&key),
            spend(&key, &id, &replacement.cost.model, &totals, &false)?,
            SWAP.query(&values)?,
            outcome(&key, &id),
        ];
        compacted(&self.database.transact(&queries).await?, 2)
    }

    /// Gives a running compaction up.
    pub async fn fail_compaction(
        &self,
        key: &SessionKey,
        compaction: &CompactionId,
        given_up: &GivenUp<'_>,
    ) -> Result<Compacted, Error> {
        let key = Key::from(key);
        let id = compaction.as_str();
        let GivenUp {
            info,
            failed,
            cost,
            accounts,
        } = given_up;
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("compaction", &id),
            ("info", info),
            ("payload", failed),
            ("accounts", accounts),
        ];
        let totals = cost.totals();
        let charge = spend(&key, &id, &cost.model, &totals, &true)?;
        let queries = [
            lock_run(&key),
            charge,
            FAIL.query(&values)?,
            outcome(&key, &id),
        ];
        compacted(&self.database.transact(&queries).await?, 2)
    }

    /// Takes the newest applied compaction back, if it is this one and the context has the version
    /// that was seen.
    pub async fn revert_compaction(
        &self,
        key: &SessionKey,
        compaction: &CompactionId,
        seen: i64,
        reverted: &[u8],
        idempotency: &Idempotency,
    ) -> Result<Compacted, Error> {
        let key = Key::from(key);
        let id = compaction.as_str();
        let request = idempotency.request.as_ref().map(RequestId::as_str);
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("compaction", &id),
            ("seen", &seen),
            ("payload", &reverted),
            ("request_id", &request),
            ("request_hash", &idempotency.hash),
        ];
        let known = Request::new(&key, request, &idempotency.hash, "");
        let queries = [
            lock_run(&key),
            REVERT.query(&values)?,
            outcome(&key, &id),
            known.read(),
        ];
        compacted(&self.database.transact(&queries).await?, 1)
    }
}

/// The events, and the parts of the summary; its message is written by the statement.
fn swap_rows<'a>(replacement: &'a Replacement<'_>) -> RowColumns<'a> {
    let mut rows = RowColumns::new(replacement.estimator);
    for event in std::iter::once(replacement.completed).chain(&replacement.accounts) {
        rows.event(StepPosition::default(), event);
    }
    if let Some(summary) = replacement.summary {
        rows.parts_of(summary);
    }
    rows
}

#[derive(Default)]
struct SummaryColumns<'a> {
    id: Option<&'a str>,
    role: i16,
    overhead: i32,
    info: Vec<u8>,
}

impl<'a> From<Option<&'a NewMessage>> for SummaryColumns<'a> {
    fn from(summary: Option<&'a NewMessage>) -> Self {
        let Some(message) = summary else {
            return Self::default();
        };
        Self {
            id: Some(message.id.as_str()),
            role: role_number(message.role),
            overhead: signed(message.overhead),
            info: message_info(message),
        }
    }
}

/// What the calls for a compaction cost, with the write that ends it and before it: for as long as
/// it runs, so that it is counted once. What cannot come in force since the context is another one
/// is counted when it is given up. The turn that is live then has spent it: the one that the
/// `usage_recorded` of these calls name.
pub(super) static SPEND: LazyLock<Named> = named_alone!("sql/compaction_spend.sql");

/// The running compaction whose lease passed is given up; the context stays as it is.
pub(super) fn expire<'a>(key: &'a Key, failed: &'a &'a [u8]) -> Result<Query<'a>, Error> {
    const NOTHING: &[&[u8]] = &[];
    let values: [(&'static str, Param<'a>); 6] = [
        ("tenant", &key.tenant),
        ("session", &key.session),
        ("compaction", &None::<&str>),
        ("info", &None::<&[u8]>),
        ("payload", failed),
        ("accounts", &NOTHING),
    ];
    Ok(FAIL.query(&values)?)
}

fn spend<'a>(
    key: &'a Key,
    compaction: &'a &'a str,
    model: &'a String,
    usage: &'a UsageTotals,
    given_up: &'a bool,
) -> Result<Query<'a>, Error> {
    let UsageTotals {
        calls,
        input,
        output,
        reasoning,
        cache_read,
        cache_write,
    } = usage;
    let values: [(&'static str, Param<'a>); 11] = [
        ("tenant", &key.tenant),
        ("session", &key.session),
        ("compaction", compaction),
        ("model", model),
        ("calls", calls),
        ("input_tokens", input),
        ("output_tokens", output),
        ("reasoning_tokens", reasoning),
        ("cache_read_tokens", cache_read),
        ("cache_write_tokens", cache_write),
        ("given_up", given_up),
    ];
    Ok(SPEND.query(&values)?)
}

fn outcome<'a>(key: &'a Key, compaction: &'a &'a str) -> Query<'a> {
    Query::new(
        OUTCOME,
        vec![&key.tenant as Param<'_>, &key.session, compaction],
    )
}

pub(super) fn status(number: i16) -> Result<CompactionStatus, Error> {
    match number {
        1 => Ok(CompactionStatus::Running),
        2 => Ok(CompactionStatus::Applied),
        3 => Ok(CompactionStatus::Failed),
        4 => Ok(CompactionStatus::Reverted),
        other => Err(Error::Corrupt(format!("compaction status {other}"))),
    }
}

/// Answers in the order of the transactions above: what the write gave stands at `at`, after it the
/// outcome, and after that the idempotency key where there is one.
fn compacted(answers: &[Vec<Row>], at: usize) -> Result<Compacted, Error> {
    let row = |at: usize| answers.get(at).and_then(|rows| rows.first());
    let written = row(at);
    let outcome = row(at + 1);
    let known = row(at + 2);
    let number: Option<i16> = outcome.map(|row| get(row, "status")).transpose()?.flatten();
    let running: Option<String> = outcome
        .map(|row| get(row, "running"))
        .transpose()?
        .flatten();
    Ok(Compacted {
        moved: written.map(moved).transpose()?,
        context_version: outcome.map(|row| get(row, "context_version")).transpose()?,
        status: number.map(status).transpose()?,
        running: running.map(CompactionId::new),
        remembered: known.map(remembered).transpose()?,
    })
}

pub(super) fn moved(row: &Row) -> Result<Moved, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    Ok(Moved {
        context_version: get(row, "context_version")?,
        last_seq: Seq(next_seq - 1),
    })
}
