//! The ledger as it is read: a few narrow rows, whatever the session's length.

use tokio_postgres::Row;

use super::{
    Error, Store,
    anchor::{anchor, anchor_columns},
    composite::{Composite, Composites},
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
    /// What of it depends on the model that is called.
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

/// What of a live transcript depends on the model that is called; `c` are the counters of the
/// session. Media in tool results are not counted apart: there are some if a part refers to a blob.
/// The subquery is ordered so that it is read by the key.
macro_rules! model_dependent_columns {
    ($session:literal) => {
        concat!(
            "c.media_parts > 0
             or coalesce((select true from part_blobs b where b.tenant_id = $1 and b.session_id = ",
            $session,
            " order by b.message_id, b.idx, b.blob_id limit 1), false) as has_media, c.reasoning_parts > 0 as has_reasoning"
        )
    };
}
pub(super) use model_dependent_columns;

/// Rows of other tables come as arrays of composites: a subquery for each, and no aggregate to be
/// set up where there may be none.
pub(super) const STATS: &str = concat!(
    "-- store::stats::stats
    select r.next_seq, r.live, r.step + case when r.open_calls > 0 then 1 else 0 end as step, r.epoch, r.op, r.revision, r.ctx_tokens, r.growth, ",
    anchor_columns!(),
    ", ",
    model_dependent_columns!("$2"),
    ", array[c.overhead_tokens, c.user_tokens, c.assistant_tokens, c.reasoning_tokens, c.tool_call_tokens, c.tool_result_tokens,
           c.media_tokens, c.summary_tokens, c.pinned_tokens, c.pruned_tokens] as tokens,
           array[c.messages, c.user_parts, c.assistant_parts, c.reasoning_parts, c.tool_call_parts, c.tool_result_parts,
           c.media_parts, c.summary_parts, c.pinned_parts, c.pruned_parts] as parts,
           v.config, t.tools,
           array(select octet_length(q.body) from queue q where q.tenant_id = $1 and q.session_id = $2 and q.status = 0) as queued,
           array(select row(u.purpose, u.model, u.calls, u.input_tokens, u.output_tokens, u.reasoning_tokens, u.cache_read_tokens,
                            u.cache_write_tokens)
                   from usage_totals u where u.tenant_id = $1 and u.session_id = $2 order by u.purpose, u.model limit 100) as usage,
           array(select row(n.turn_id, case when n.state = 1 then r.step else n.step_count end, n.calls, n.input_tokens,
                            n.output_tokens, n.reasoning_tokens, n.cache_read_tokens, n.cache_write_tokens)
                   from turns n where n.tenant_id = $1 and n.session_id = $2 order by n.first_seq desc limit 10) as turns,
           (select n.request from turns n where n.tenant_id = $1 and n.session_id = $2 order by n.first_seq desc limit 1) as request,
           array(select case when k.status = 2 then k.delta_messages end
                   from compactions k where k.tenant_id = $1 and k.session_id = $2) as compactions
      from session_run r
      join session_context c on c.tenant_id = $1 and c.session_id = $2
      join session_revisions v on v.tenant_id = $1 and v.session_id = $2 and v.revision = r.revision
      join toolsets t on t.tenant_id = $1 and t.toolset_id = v.toolset_id
     where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3"
);

impl Store {
    /// Where a session's tokens are. Returns `None` if there is no such session.
    pub async fn stats(&self, key: &SessionKey) -> Result<Option<Stats>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read(STATS, &[&key.tenant, &key.session])
            .await?;
        rows.first().map(stats).transpose()
    }
}

fn stats(row: &Row) -> Result<Stats, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    let tools = codec::tools::decode(get(row, "tools")?)?;
    let ledger = ledger(row)?;
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
        holds: model_dependent(row)?,
        context_tokens: get(row, "ctx_tokens")?,
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

/// The counters stand in two columns, in this order.
fn ledger(row: &Row) -> Result<Ledger, Error> {
    let (tokens, parts): (Vec<i64>, Vec<i32>) = (get(row, "tokens")?, get(row, "parts")?);
    let counts: Result<Vec<u32>, _> = parts.into_iter().map(u32::try_from).collect();
    let counted = counts.ok().zip(<[i64; 10]>::try_from(tokens).ok());
    let Some((Ok([messages, parts @ ..]), [overhead, tokens @ ..])) =
        counted.map(|(counts, tokens)| (<[u32; 10]>::try_from(counts), tokens))
    else {
        return Err(Error::Corrupt("the counters of a context".to_owned()));
    };
    let held = |n: usize| Held {
        tokens: tokens[n],
        parts: parts[n],
    };
    Ok(Ledger {
        messages,
        overhead,
        user: held(0),
        assistant: held(1),
        reasoning: held(2),
        tool_calls: held(3),
        tool_results: held(4),
        media: held(5),
        summary: held(6),
        pinned: held(7),
        pruned: held(8),
    })
}

/// The columns of [`model_dependent_columns`].
pub(super) fn model_dependent(row: &Row) -> Result<ModelDependent, Error> {
    Ok(ModelDependent {
        media: get(row, "has_media")?,
        reasoning: get(row, "has_reasoning")?,
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
