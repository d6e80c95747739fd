//! Reads the ledger of a session: a few narrow rows, independent of the session's length.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    Error, Store,
    anchor::anchor,
    composite::{Composite, Composites},
    counters::counters,
    named_parameters::Named,
    number::{Number as _, enum_value},
    row::{count, get, last_seq},
    version::{Version, version},
};
use crate::{
    codec,
    model::{
        Anchor, CategoryCount, Ledger, Seq, SessionConfig, SessionKey, TurnId, UsagePurpose, UsageTotals,
        command::TurnRequest, ledger::ModelDependent,
    },
    session::{
        SessionState,
        counters::{Counter, TokenCounters},
    },
};

/// Token statistics of a session.
#[derive(Debug, Clone)]
pub struct Stats {
    /// The current configuration.
    pub config: SessionConfig,
    /// The settings in which the newest turn differs from its session.
    pub request: Option<TurnRequest>,
    /// The step of the running turn's next prompt; 0 if no turn is running.
    pub step: u32,
    /// The ledger of the live transcript.
    pub ledger: Ledger,
    /// The part of it that depends on the model.
    pub model_dependent: ModelDependent,
    /// Estimated size of the live transcript in tokens.
    pub context_tokens: i64,
    /// Version of the transcript and configuration.
    pub version: Version,
    /// The last measured call.
    pub anchor: Option<Anchor>,
    /// Average growth of prompts from call to call, in tokens.
    pub growth: Option<f64>,
    /// Queued messages and their approximate size.
    pub queued: CategoryCount,
    pub last_seq: Seq,
    /// Total usage by purpose and model; at most 100 entries.
    pub usage: Vec<UsageEntry>,
    /// The newest turns, newest first; at most 10.
    pub turns: Vec<TurnUsage>,
    /// Number of messages for which the model sees a summary or nothing.
    pub compacted: u32,
    /// Whether the session has compactions in any state.
    pub has_compactions: bool,
}

/// Usage for one purpose and one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageEntry {
    pub purpose: UsagePurpose,
    /// Model reference.
    pub model: String,
    pub totals: UsageTotals,
}

/// Usage of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnUsage {
    pub turn: TurnId,
    /// Number of steps begun.
    pub steps: u32,
    pub totals: UsageTotals,
}

/// Rows of other tables are read as arrays of composites: this takes one subquery each, and no aggregate is set up for
/// tables that may have no rows.
pub(super) static STATS: LazyLock<Named> = named_alone!("sql/stats.sql");

impl Store {
    /// Reads the token statistics of a session. Returns `None` if the session does not exist.
    pub async fn stats(&self, key: &SessionKey) -> Result<Option<Stats>, Error> {
        let rows = self.database.read_named_in(key, &STATS, &[]).await?;
        rows.first().map(stats).transpose()
    }
}

fn stats(row: &Row) -> Result<Stats, Error> {
    let tools = codec::tools::decode(get(row, "tools")?)?;
    let counters = counters(row)?;
    let ledger = ledger(&counters)?;
    let compactions: Vec<Option<i32>> = get(row, "compactions")?;
    Ok(Stats {
        config: codec::config::decode(get(row, "config")?, tools)?,
        request: get::<Option<&[u8]>>(row, "request")?.map(codec::turn::decode_request).transpose()?,
        step: if enum_value::<SessionState>(row, "state")?.is_live() { count(row, "step")? } else { 0 },
        ledger,
        model_dependent: model_dependent(row, &counters)?,
        context_tokens: counters.size(),
        version: version(row)?,
        anchor: anchor(row)?,
        growth: get(row, "growth")?,
        queued: queued(&get::<Vec<i32>>(row, "queued")?),
        last_seq: last_seq(row)?,
        usage: get::<Composites<'_>>(row, "usage")?.0.iter().map(spent).collect::<Result<_, _>>()?,
        turns: get::<Composites<'_>>(row, "turns")?.0.iter().map(turn).collect::<Result<_, _>>()?,
        compacted: compacted(&compactions, ledger.summary),
        has_compactions: !compactions.is_empty(),
    })
}

/// The number of hidden messages. `changes` has the change in the number of live messages by each applied compaction,
/// which includes its summary, and `None` for other compactions.
fn compacted(changes: &[Option<i32>], summary: CategoryCount) -> u32 {
    let change: i64 = changes.iter().flatten().map(|change| i64::from(*change)).sum();
    u32::try_from(i64::from(summary.parts) - change).unwrap_or_default()
}

/// The queued messages, given the size of each in bytes.
fn queued(bytes: &[i32]) -> CategoryCount {
    let sum: i64 = bytes.iter().map(|bytes| i64::from(*bytes)).sum();
    CategoryCount { tokens: sum / BYTES_PER_TOKEN, parts: u32::try_from(bytes.len()).unwrap_or(u32::MAX) }
}

/// Queued messages are not tokenized: this ratio is approximately right for text.
const BYTES_PER_TOKEN: i64 = 4;

fn ledger(counters: &TokenCounters) -> Result<Ledger, Error> {
    let count =
        |parts: i32| u32::try_from(parts).map_err(|_| Error::Corrupt(format!("a counter is negative: {parts}")));
    let held = |counter| {
        let (tokens, parts) = counters.of(counter);
        Ok::<_, Error>(CategoryCount { tokens, parts: count(parts)? })
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

/// Decodes it from the counters and the columns of `{model_dependent}` in `sql/fragments.sql`.
pub(super) fn model_dependent(row: &Row, counters: &TokenCounters) -> Result<ModelDependent, Error> {
    let has = |counter| counters.of(counter).1 > 0;
    Ok(ModelDependent {
        media: has(Counter::Media) || get(row, "has_blobs")?,
        reasoning: has(Counter::Reasoning),
        items: get(row, "has_items")?,
    })
}

fn spent(spent: &Composite<'_>) -> Result<UsageEntry, Error> {
    let purpose = UsagePurpose::of_number(spent.get(0)?)?;
    Ok(UsageEntry { purpose, model: spent.get(1)?, totals: totals(spent, 2)? })
}

fn turn(turn: &Composite<'_>) -> Result<TurnUsage, Error> {
    let steps: i32 = turn.get(1)?;
    Ok(TurnUsage {
        turn: TurnId::new(turn.get::<String>(0)?),
        steps: u32::try_from(steps).unwrap_or_default(),
        totals: totals(turn, 2)?,
    })
}

/// Decodes totals, starting at field `from`.
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
