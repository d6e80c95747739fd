//! The ledger as it is read: a few narrow rows, whatever the session's length.

use tokio_postgres::Row;

use super::{
    Error, Store,
    import::{Version, version},
    row::{count, get},
    rows::Key,
};
use crate::{
    codec,
    model::{
        Anchor, Held, Ledger, Seq, SessionConfig, SessionKey, TokenBasis, ToolSet, TurnId, UsagePurpose, UsageTotals,
    },
};

/// Where the tokens of a session are.
#[derive(Debug, Clone)]
pub struct Stats {
    /// The configuration in force.
    pub config: SessionConfig,
    /// What the newest turn told the model of in place of the session's tools.
    pub turn_tools: Option<ToolSet>,
    /// What the live transcript is made of.
    pub ledger: Ledger,
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

/// The columns of the last measured call, and the version of the context that it may be true of.
macro_rules! anchor_columns {
    () => {
        "r.context_version, r.anchor_model, r.anchor_version, r.anchor_input, r.anchor_output, r.anchor_tokens, r.anchor_estimated,
           r.anchor_basis, case when now() - r.anchor_at < interval '5 minutes' then r.anchor_cached end as anchor_cached"
    };
}
pub(super) use anchor_columns;

pub(super) const STATS: &str = concat!(
    "-- store::stats::stats
    select r.next_seq, r.epoch, r.op, r.revision, r.ctx_tokens, r.growth, ",
    anchor_columns!(),
    ", c.*, v.config, t.tools, q.queued, q.queued_bytes, u.purposes, u.models, u.sums, n.turns, n.steps, n.turn_sums, n.request, k.hidden, k.summed
      from session_run r
      join session_context c on c.tenant_id = $1 and c.session_id = $2
      join session_revisions v on v.tenant_id = $1 and v.session_id = $2 and v.revision = r.revision
      join toolsets t on t.tenant_id = $1 and t.toolset_id = v.toolset_id
      cross join lateral (
        select count(*)::int as queued, coalesce(sum(octet_length(q.body)), 0)::bigint as queued_bytes
          from queue q where q.tenant_id = $1 and q.session_id = $2 and q.status = 0) q
      cross join lateral (
        select coalesce(array_agg(u.purpose order by u.purpose, u.model), '{}') as purposes,
               coalesce(array_agg(u.model order by u.purpose, u.model), '{}') as models,
               coalesce(array_agg(u.calls order by u.purpose, u.model), '{}')
               || coalesce(array_agg(u.input_tokens order by u.purpose, u.model), '{}')
               || coalesce(array_agg(u.output_tokens order by u.purpose, u.model), '{}')
               || coalesce(array_agg(u.reasoning_tokens order by u.purpose, u.model), '{}')
               || coalesce(array_agg(u.cache_read_tokens order by u.purpose, u.model), '{}')
               || coalesce(array_agg(u.cache_write_tokens order by u.purpose, u.model), '{}') as sums
          from (select * from usage_totals u where u.tenant_id = $1 and u.session_id = $2 order by u.purpose, u.model limit 100) u) u
      cross join lateral (
        select coalesce(array_agg(n.turn_id order by n.first_seq desc), '{}') as turns,
               coalesce(array_agg(case when n.state = 1 then r.step else n.step_count end order by n.first_seq desc), '{}') as steps,
               coalesce(array_agg(n.calls order by n.first_seq desc), '{}')
               || coalesce(array_agg(n.input_tokens order by n.first_seq desc), '{}')
               || coalesce(array_agg(n.output_tokens order by n.first_seq desc), '{}')
               || coalesce(array_agg(n.reasoning_tokens order by n.first_seq desc), '{}')
               || coalesce(array_agg(n.cache_read_tokens order by n.first_seq desc), '{}')
               || coalesce(array_agg(n.cache_write_tokens order by n.first_seq desc), '{}') as turn_sums,
               (array_agg(n.request order by n.first_seq desc))[1] as request
          from (select * from turns n where n.tenant_id = $1 and n.session_id = $2 order by n.first_seq desc limit 10) n) n
      cross join lateral (
        select coalesce(-sum(k.delta_messages), 0)::int as hidden,
               coalesce((array_agg(k.summary_message is not null order by k.active_from_seq desc))[1], false) as summed
          from compactions k where k.tenant_id = $1 and k.session_id = $2 and k.status = 2) k
     where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3"
);

impl Store {
    /// Where a session's tokens are; none: there is no such session.
    pub async fn stats(&self, key: &SessionKey) -> Result<Option<Stats>, Error> {
        let key = Key::from(key);
        let rows = self.database.read(STATS, &[&key.tenant, &key.session]).await?;
        rows.first().map(stats).transpose()
    }
}

fn stats(row: &Row) -> Result<Stats, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    let tools = codec::tools::decode(get(row, "tools")?)?;
    let hidden: i32 = get(row, "hidden")?;
    let summaries = i32::from(get::<bool>(row, "summed")?);
    Ok(Stats {
        config: codec::config::decode(get(row, "config")?, tools)?,
        turn_tools: match get::<Option<Vec<u8>>>(row, "request")? {
            Some(request) => codec::turn::decode_request(&request)?.tools,
            None => None,
        },
        ledger: ledger(row)?,
        context_tokens: get(row, "ctx_tokens")?,
        version: version(row)?,
        anchor: anchor(row)?,
        growth: get(row, "growth")?,
        queued: Held { tokens: get::<i64>(row, "queued_bytes")? / BYTES_PER_TOKEN, parts: count(row, "queued")? },
        last_seq: Seq(next_seq - 1),
        usage: spent(row)?,
        turns: turns(row)?,
        compacted: u32::try_from(hidden.saturating_add(summaries)).unwrap_or_default(),
    })
}

/// What waits is not taken apart: this is about right for text.
const BYTES_PER_TOKEN: i64 = 4;

fn ledger(row: &Row) -> Result<Ledger, Error> {
    let held =
        |tokens: &str, parts: &str| Ok::<_, Error>(Held { tokens: get(row, tokens)?, parts: count(row, parts)? });
    Ok(Ledger {
        messages: count(row, "messages")?,
        overhead: get(row, "overhead_tokens")?,
        user: held("user_tokens", "user_parts")?,
        assistant: held("assistant_tokens", "assistant_parts")?,
        reasoning: held("reasoning_tokens", "reasoning_parts")?,
        tool_calls: held("tool_call_tokens", "tool_call_parts")?,
        tool_results: held("tool_result_tokens", "tool_result_parts")?,
        media: held("media_tokens", "media_parts")?,
        summary: held("summary_tokens", "summary_parts")?,
        pinned: held("pinned_tokens", "pinned_parts")?,
        pruned: held("pruned_tokens", "pruned_parts")?,
    })
}

/// The last measured call; none: there was none, or a version of contextd measured it that did not say for which model.
pub(super) fn anchor(row: &Row) -> Result<Option<Anchor>, Error> {
    let Some(model) = get::<Option<String>>(row, "anchor_model")? else { return Ok(None) };
    let Some(version) = get::<Option<i64>>(row, "anchor_version")? else { return Ok(None) };
    let Some(described) = get::<Option<i64>>(row, "anchor_tokens")? else { return Ok(None) };
    let number = |column| {
        Ok::<_, Error>(get::<Option<i32>>(row, column)?.and_then(|n| u32::try_from(n).ok()).unwrap_or_default())
    };
    Ok(Some(Anchor {
        model,
        version,
        input: number("anchor_input")?,
        output: number("anchor_output")?,
        described,
        cached: number("anchor_cached")?,
        estimated: number("anchor_estimated")?,
        basis: basis(get(row, "anchor_basis")?)?,
    }))
}

/// How a prediction was obtained, as a number.
pub(super) fn basis_number(basis: TokenBasis) -> i64 {
    match basis {
        TokenBasis::Actual => 1,
        TokenBasis::Calibrated => 2,
        TokenBasis::Tokenizer => 3,
        TokenBasis::Heuristic => 4,
    }
}

fn basis(number: Option<i16>) -> Result<TokenBasis, Error> {
    match number {
        Some(1) => Ok(TokenBasis::Actual),
        Some(2) => Ok(TokenBasis::Calibrated),
        Some(3) => Ok(TokenBasis::Tokenizer),
        Some(4) | None => Ok(TokenBasis::Heuristic),
        Some(other) => Err(Error::Corrupt(format!("token basis {other}"))),
    }
}

fn spent(row: &Row) -> Result<Vec<Spent>, Error> {
    let purposes: Vec<i16> = get(row, "purposes")?;
    let models: Vec<String> = get(row, "models")?;
    let sums: Vec<i64> = get(row, "sums")?;
    let purpose = |number| match number {
        1 => Ok(UsagePurpose::Turn),
        2 => Ok(UsagePurpose::Compaction),
        other => Err(Error::Corrupt(format!("usage purpose {other}"))),
    };
    let rows = purposes.len();
    let spent = purposes.into_iter().zip(models).enumerate();
    spent
        .map(|(n, (number, model))| Ok(Spent { purpose: purpose(number)?, model, totals: totals(&sums, n, rows) }))
        .collect()
}

fn turns(row: &Row) -> Result<Vec<TurnSpent>, Error> {
    let ids: Vec<String> = get(row, "turns")?;
    let steps: Vec<i32> = get(row, "steps")?;
    let sums: Vec<i64> = get(row, "turn_sums")?;
    let rows = ids.len();
    let turn = |(n, (id, steps)): (usize, (String, i32))| TurnSpent {
        turn: TurnId::new(id),
        steps: u32::try_from(steps).unwrap_or_default(),
        totals: totals(&sums, n, rows),
    };
    Ok(ids.into_iter().zip(steps).enumerate().map(turn).collect())
}

/// The sums of the n-th of so many rows. They stand column after column: calls, input, output, reasoning, cache read, cache write.
fn totals(sums: &[i64], n: usize, rows: usize) -> UsageTotals {
    let at = |column: usize| sums.get(column * rows + n).copied().unwrap_or_default();
    UsageTotals { calls: at(0), input: at(1), output: at(2), reasoning: at(3), cache_read: at(4), cache_write: at(5) }
}
