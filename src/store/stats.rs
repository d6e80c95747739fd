//! The ledger as it is read: a few narrow rows, whatever the session's length.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    Error, Store,
    anchor::anchor,
    composite::{Composite, Composites},
    counters::counters,
    named_parameters::Named,
    pipeline::Param,
    row::get,
    rows::Key,
    version::{Version, version},
};
use crate::{
    codec,
    model::{
        Anchor, Held, Ledger, Seq, SessionConfig, SessionKey, TurnId, UsagePurpose, UsageTotals,
        command::TurnRequest, ledger::ModelDependent,
    },
    session::counters::{Counter, Shift},
};

/// Where the tokens of a session are.
#[derive(Debug, Clone)]
pub struct Stats {
    /// The configuration in force.
    pub config: SessionConfig,
    /// What the newest turn wants otherwise than its session.
    pub request: Option<TurnRequest>,
    /// The step that the next prompt of the live turn is for; 0: no turn is live.
    pub step: u32,
    /// What the live transcript is made of.
    pub ledger: Ledger,
    /// The part of it that depends on the model that is called.
    pub holds: ModelDependent,
    /// Its size as estimated.
    pub context_tokens: i64,
    /// What the transcript is.
    pub version: Version,
    /// The last call that was measured.
    pub anchor: Option<Anchor>,
    /// Tokens by which prompts grow from call to call.
    pub growth: Option<f64>,
    /// Messages that wait, and about how large they are.
    pub queued: Held,
    /// The newest seq.
    pub last_seq: Seq,
    /// Everything ever spent, by purpose and model; at most 100 of these.
    pub usage: Vec<Spent>,
    /// The newest turns.
    pub turns: Vec<TurnSpent>,
    /// Messages that the model sees a summary of, or nothing.
    pub compacted: u32,
    /// There are compactions, of whatever state.
    pub has_compactions: bool,
}

/// What was spent for one purpose on one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    /// What for.
    pub purpose: UsagePurpose,
    /// Model reference.
    pub model: String,
    /// The sums.
    pub totals: UsageTotals,
}

/// What a turn has spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnSpent {
    /// Which.
    pub turn: TurnId,
    /// Steps begun.
    pub steps: u32,
    /// The sums.
    pub totals: UsageTotals,
}

/// Rows of other tables come as arrays of composites: a subquery for each, and no aggregate to be
/// set up where there may be none.
pub(super) static STATS: LazyLock<Named> = named_alone!("sql/stats.sql");

impl Store {
    /// Where a session's tokens are. Returns `None` if there is no such session.
    pub async fn stats(&self, key: &SessionKey) -> Result<Option<Stats>, Error> {
        let key = Key::from(key);
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
        ];
        let rows = self.database.read_named(&STATS, &values).await?;
        rows.first().map(stats).transpose()
    }
}

fn stats(row: &Row) -> Result<Stats, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    let tools = codec::tools::decode(get(row, "tools")?)?;
    let counters = counters(row)?;
    let ledger = ledger(&counters)?;
    let compactions: Vec<Option<i32>> = get(row, "compactions")?;
    Ok(Stats {
        config: codec::config::decode(get(row, "config")?, tools)?,
        request: get::<Option<&[u8]>>(row, "request")?
            .map(codec::turn::decode_request)
            .transpose()?,
        step: if get::<bool>(row, "live")? {
            u32::try_from(get::<i32>(row, "step")?).unwrap_or_default()
        } else {
            0
        },
        ledger,
        holds: model_dependent(row, &counters)?,
        context_tokens: counters.size(),
        version: version(row)?,
        anchor: anchor(row)?,
        growth: get(row, "growth")?,
        queued: queued(&get::<Vec<i32>>(row, "queued")?),
        last_seq: Seq(next_seq - 1),
        usage: get::<Composites<'_>>(row, "usage")?
            .0
            .iter()
            .map(spent)
            .collect::<Result<_, _>>()?,
        turns: get::<Composites<'_>>(row, "turns")?
            .0
            .iter()
            .map(turn)
            .collect::<Result<_, _>>()?,
        compacted: compacted(&compactions, ledger.summary),
        has_compactions: !compactions.is_empty(),
    })
}

/// Messages that are hidden, by what each compaction changed the number of live ones by if it is in
/// force. Summaries came with them.
fn compacted(changes: &[Option<i32>], summary: Held) -> u32 {
    let change: i64 = changes
        .iter()
        .flatten()
        .map(|change| i64::from(*change))
        .sum();
    u32::try_from(i64::from(summary.parts) - change).unwrap_or_default()
}

/// What waits, by the bytes of each message.
fn queued(bytes: &[i32]) -> Held {
    let sum: i64 = bytes.iter().map(|bytes| i64::from(*bytes)).sum();
    Held {
        tokens: sum / BYTES_PER_TOKEN,
        parts: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
    }
}

/// What waits is not taken apart: this is about right for text.
const BYTES_PER_TOKEN: i64 = 4;

fn ledger(counters: &Shift) -> Result<Ledger, Error> {
    let count = |parts: i32| {
        u32::try_from(parts).map_err(|_| Error::Corrupt(format!("a counter is {parts}")))
    };
    let held = |counter| {
        let (tokens, parts) = counters.of(counter);
        Ok::<_, Error>(Held {
            tokens,
            parts: count(parts)?,
        })
    };
    Ok(Ledger {
        messages: count(counters.messages)?,
        overhead: counters.overhead,
        user: held(Counter::User)?,
        assistant: held(Counter::Assistant)?,
        reasoning: held(Counter::Reasoning)?,
        tool_calls: held(Counter::ToolCalls)?,
        tool_results: held(Counter::ToolResults)?,
        media: held(Counter::Media)?,
        summary: held(Counter::Summary)?,
        pinned: held(Counter::Pinned)?,
        pruned: held(Counter::Pruned)?,
    })
}

/// By the counters, and the columns of `fragments/model_dependent.sql`.
pub(super) fn model_dependent(row: &Row, counters: &Shift) -> Result<ModelDependent, Error> {
    let has = |counter| counters.of(counter).1 > 0;
    Ok(ModelDependent {
        media: has(Counter::Media) || get(row, "has_blobs")?,
        reasoning: has(Counter::Reasoning),
        items: get(row, "has_items")?,
    })
}

fn spent(spent: &Composite<'_>) -> Result<Spent, Error> {
    let purpose = match spent.get(0)? {
        1_i16 => UsagePurpose::Turn,
        2 => UsagePurpose::Compaction,
        other => return Err(Error::Corrupt(format!("usage purpose {other}"))),
    };
    Ok(Spent {
        purpose,
        model: spent.get(1)?,
        totals: totals(spent, 2)?,
    })
}

fn turn(turn: &Composite<'_>) -> Result<TurnSpent, Error> {
    let steps: i32 = turn.get(1)?;
    Ok(TurnSpent {
        turn: TurnId::new(turn.get::<String>(0)?),
        steps: u32::try_from(steps).unwrap_or_default(),
        totals: totals(turn, 2)?,
    })
}

/// Sums, from this place on.
fn totals(row: &Composite<'_>, from: usize) -> Result<UsageTotals, Error> {
    let at = |place| row.get(from + place);
    Ok(UsageTotals {
        calls: at(0)?,
        input: at(1)?,
        output: at(2)?,
        reasoning: at(3)?,
        cache_read: at(4)?,
        cache_write: at(5)?,
    })
}
