//! Turns as they are read: by their owner, and by clients.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    anchor::{anchor, anchor_columns},
    lease::ROLLBACK,
    listed::Listed,
    pipeline::Param,
    row::{count, get, turn_state},
    rows::Key,
};
use crate::{
    codec,
    model::{
        Anchor, CancelCause, MessageId, RequestId, Seq, SessionConfig, SessionKey, ToolSet, TurnId,
        TurnResult, TurnState, UsageTotals, command::TurnRequest,
    },
};

/// A request to cancel that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRequest {
    /// By what.
    pub cause: CancelCause,
    /// The canceller's words.
    pub reason: String,
    /// The turn's messages are to be taken back.
    pub rollback: bool,
}

/// A configuration and which one it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Its number.
    pub number: i64,
    /// The configuration.
    pub config: SessionConfig,
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
    /// A cancel was requested.
    pub cancel: Option<CancelRequest>,
    /// How much time is left; zero when it passed.
    pub time_left: Duration,
    /// How long ago its time was up; zero while it is not.
    pub overtime: Duration,
    /// The step began when the turn's time was up.
    pub late: bool,
    /// When it started.
    pub started_at: Timestamp,
    /// The database's time when this was read.
    pub read_at: Timestamp,
    /// What it does differently from its session.
    pub request: TurnRequest,
    /// The configuration that the step was made for.
    pub made_for: Revision,
    /// The session's configuration in force, if that is another one.
    pub newer: Option<Revision>,
    /// Tokens spent so far.
    pub totals: UsageTotals,
    /// The last assistant message.
    pub final_message: Option<MessageId>,
    /// Tokens of the live transcript.
    pub context_tokens: i64,
    /// Its version.
    pub context_version: i64,
    /// The last call that was measured.
    pub anchor: Option<Anchor>,
    /// The newest seq.
    pub last_seq: Seq,
    /// Messages wait for the turn.
    pub waiting: bool,
}

impl Owned {
    /// The configuration that the next step is to be made for.
    pub fn in_force(&self) -> &Revision {
        self.newer.as_ref().unwrap_or(&self.made_for)
    }

    /// From the start of the turn to this look at it.
    pub fn elapsed(&self) -> Duration {
        Duration::try_from(self.read_at.duration_since(self.started_at)).unwrap_or_default()
    }
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
    /// What it does differently from its session.
    pub request: TurnRequest,
    /// The configuration that its newest step was made for.
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
    /// It goes on, and its step began when its time was up.
    pub late: bool,
}

/// The revision that a step was made for, as its `step_started` says: the newest such event of the
/// turn `t`, which ends before `$seq`.
macro_rules! made_for {
    ($seq:literal) => {
        concat!(
            "lateral (select e.refs, e.at from events e
                       where e.tenant_id = $1 and e.session_id = $2 and e.seq >= t.first_seq and e.seq < ",
            $seq,
            " and e.turn_id = t.turn_id and e.kind = 'step_started' order by e.seq desc limit 1) e on true
           join session_revisions v on v.tenant_id = $1 and v.session_id = $2 and v.revision = coalesce(e.refs[1]::bigint, r.revision)
           join toolsets s on s.tenant_id = $1 and s.toolset_id = v.toolset_id"
        )
    };
}

pub(super) const OWNED: &str = concat!(
    "-- store::turn_read::owned
    select r.step, r.attempt, r.takeovers, r.open_calls, r.cancel, r.cancel_cause, r.cancel_reason, r.next_seq, r.ctx_tokens,
           ", anchor_columns!(), ",
           coalesce(extract(epoch from r.turn_deadline - now()), 0)::float8 as time_left, now() as read_at,
           t.started_at, t.request, t.final_message, t.calls, t.input_tokens, t.output_tokens, t.reasoning_tokens,
           t.cache_read_tokens, t.cache_write_tokens, v.revision, v.config, s.tools,
           coalesce(e.at >= r.turn_deadline, false) as late,
           exists (select from queue q where q.tenant_id = $1 and q.session_id = $2 and q.status = 0 and q.delivery <> 2) as waiting,
           w.revision as newer_revision, w.config as newer_config, u.tools as newer_tools
      from session_run r
      join turns t on t.tenant_id = $1 and t.session_id = $2 and t.turn_id = r.turn_id
      left join ",
    made_for!("r.next_seq"),
    "
      left join session_revisions w on w.tenant_id = $1 and w.session_id = $2 and w.revision = r.revision and w.revision <> v.revision
      left join toolsets u on u.tenant_id = $1 and u.toolset_id = w.toolset_id
     where r.tenant_id = $1 and r.session_id = $2 and r.epoch = $3 and r.state = 1 and r.owner = $4 and r.turn_id = $5"
);

/// The columns of these turns. Their tools, which are large, are left out of lists.
macro_rules! turns_select {
    ($turns:literal, $tools:literal) => {
        concat!(
            "select t.turn_id, t.state, r.state as run_state, t.request_id, t.request, t.started_at, t.ended_at, t.first_seq,
                    t.last_seq, t.step_count, t.final_message, t.calls, t.input_tokens, t.output_tokens, t.reasoning_tokens,
                    t.cache_read_tokens, t.cache_write_tokens, t.outcome, v.revision, v.config, ",
            $tools,
            " as tools,
                    extract(epoch from coalesce(t.ended_at, now()) - t.started_at)::float8 as elapsed,
                    case when t.state = 1 then r.step else t.step_count end as steps_begun,
                    coalesce(t.state = 1 and e.at >= r.turn_deadline, false) as late
               from (",
            $turns,
            ") t
               join session_run r on r.tenant_id = $1 and r.session_id = $2 and r.state <> 3
               left join ",
            made_for!("coalesce(t.last_seq, r.next_seq)")
        )
    };
}

/// A page of turns, cut where it would be too large; a revision's configuration is read and counted
/// with its first turn.
const TURNS: &str = concat!(
    "-- store::turn_read::turns: $3 before this seq $4 most turns $5 most bytes
    select b.turn_id, b.state, b.run_state, b.request_id, b.request, b.started_at, b.ended_at, b.first_seq, b.last_seq, b.step_count,
           b.final_message, b.calls, b.input_tokens, b.output_tokens, b.reasoning_tokens, b.cache_read_tokens, b.cache_write_tokens,
           b.outcome, b.revision, b.config, b.elapsed, b.steps_begun, b.late, b.page_rows
      from (select a.*, case when a.nth = 1 then a.whole_config end as config, count(*) over () as page_rows,
                   row_number() over w as n,
                   sum(octet_length(a.request) + coalesce(octet_length(a.outcome), 0)
                       + case when a.nth = 1 then octet_length(a.whole_config) else 0 end) over w as bytes
              from (select p.turn_id, p.state, p.run_state, p.request_id, p.request, p.started_at, p.ended_at, p.first_seq, p.last_seq,
                           p.step_count, p.final_message, p.calls, p.input_tokens, p.output_tokens, p.reasoning_tokens,
                           p.cache_read_tokens, p.cache_write_tokens, p.outcome, p.revision, p.config as whole_config, p.elapsed,
                           p.steps_begun, p.late, row_number() over (partition by p.revision order by p.first_seq desc) as nth
                      from (",
    turns_select!(
        "select * from turns n where n.tenant_id = $1 and n.session_id = $2 and n.first_seq < $3
                            order by n.first_seq desc limit $4",
        "null::bytea"
    ),
    ") p) a
            window w as (order by a.first_seq desc)) b
     where b.bytes <= $5 or b.n = 1 order by b.first_seq desc"
);

impl Store {
    /// The turn as its owner needs it. Returns `None` if this replica no longer owns it under this
    /// epoch.
    pub async fn owned(
        &self,
        key: &SessionKey,
        turn: &TurnId,
        epoch: i64,
    ) -> Result<Option<Owned>, Error> {
        let key = Key::from(key);
        let params: [Param<'_>; 5] = [
            &key.tenant,
            &key.session,
            &epoch,
            &self.replica,
            &turn.as_str(),
        ];
        let rows = self.database.read(OWNED, &params).await?;
        rows.first().map(owned).transpose()
    }

    /// One turn. `None` means the session has no such turn.
    pub async fn turn(&self, key: &SessionKey, turn: &TurnId) -> Result<Option<Turn>, Error> {
        const SQL: &str = concat!(
            "-- store::turn_read::turn\n",
            turns_select!(
                "select * from turns n where n.tenant_id = $1 and n.session_id = $2 and n.turn_id = $3",
                "s.tools"
            )
        );
        let key = Key::from(key);
        let rows = self
            .database
            .read(SQL, &[&key.tenant, &key.session, &turn.as_str()])
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let config = codec::config::decode(
            get(row, "config")?,
            codec::tools::decode(get(row, "tools")?)?,
        )?;
        turn_row(row, config).map(Some)
    }

    /// The turns of a session that started before `before`, newest first: at most `limit`, and as
    /// many as take up at most `bytes` as they are stored, but at least one. Their
    /// configurations come without tools, each revision's once.
    pub async fn turns(
        &self,
        key: &SessionKey,
        before: Seq,
        limit: u32,
        bytes: i64,
    ) -> Result<Listed<Turn>, Error> {
        let key = Key::from(key);
        let params: [Param<'_>; 5] = [
            &key.tenant,
            &key.session,
            &before.0,
            &i64::from(limit),
            &bytes,
        ];
        let rows = self.database.read(TURNS, &params).await?;
        let mut configs: BTreeMap<i64, SessionConfig> = BTreeMap::new();
        let mut items = Vec::with_capacity(rows.len());
        for row in &rows {
            let revision = get(row, "revision")?;
            if let Some(config) = get::<Option<&[u8]>>(row, "config")? {
                configs.insert(revision, codec::config::decode(config, ToolSet::default())?);
            }
            let config = configs.get(&revision).cloned();
            items.push(turn_row(
                row,
                config.ok_or_else(|| Error::Corrupt(format!("revision {revision} is missing")))?,
            )?);
        }
        Listed::new(items, &rows)
    }
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
    let time_left: f64 = get(row, "time_left")?;
    Ok(Owned {
        step: count(row, "step")?,
        attempt: count(row, "attempt")?,
        takeovers: u32::try_from(takeovers).unwrap_or_default(),
        open_calls: count(row, "open_calls")?,
        cancel: cancel_request(row)?,
        time_left: Duration::try_from_secs_f64(time_left).unwrap_or_default(),
        overtime: Duration::try_from_secs_f64(-time_left).unwrap_or_default(),
        late: get(row, "late")?,
        started_at: get(row, "started_at")?,
        read_at: get(row, "read_at")?,
        request: codec::turn::decode_request(get(row, "request")?)?,
        made_for: Revision {
            number: get(row, "revision")?,
            config: codec::config::decode(
                get(row, "config")?,
                codec::tools::decode(get(row, "tools")?)?,
            )?,
        },
        newer: newer(row)?,
        totals: totals(row)?,
        final_message: get::<Option<String>>(row, "final_message")?.map(MessageId::new),
        context_tokens: get(row, "ctx_tokens")?,
        context_version: get(row, "context_version")?,
        anchor: anchor(row)?,
        last_seq: Seq(next_seq - 1),
        waiting: get(row, "waiting")?,
    })
}

fn newer(row: &Row) -> Result<Option<Revision>, Error> {
    let Some(number) = get::<Option<i64>>(row, "newer_revision")? else {
        return Ok(None);
    };
    let tools = codec::tools::decode(get(row, "newer_tools")?)?;
    Ok(Some(Revision {
        number,
        config: codec::config::decode(get(row, "newer_config")?, tools)?,
    }))
}

fn cancel_request(row: &Row) -> Result<Option<CancelRequest>, Error> {
    let mode: i16 = get(row, "cancel")?;
    if mode == 0 {
        return Ok(None);
    }
    let cause = match get::<i16>(row, "cancel_cause")? {
        1 => CancelCause::Requested,
        2 => CancelCause::Interrupted,
        3 => CancelCause::Disconnected,
        4 => CancelCause::SessionDeleted,
        other => return Err(Error::Corrupt(format!("cancel cause {other}"))),
    };
    Ok(Some(CancelRequest {
        cause,
        reason: get(row, "cancel_reason")?,
        rollback: mode == ROLLBACK,
    }))
}

fn turn_row(row: &Row, config: SessionConfig) -> Result<Turn, Error> {
    let elapsed: f64 = get(row, "elapsed")?;
    Ok(Turn {
        id: TurnId::new(get::<String>(row, "turn_id")?),
        state: turn_state(get(row, "state")?, get(row, "run_state")?)?,
        request_id: get::<Option<String>>(row, "request_id")?.map(RequestId::new),
        request: codec::turn::decode_request(get(row, "request")?)?,
        config,
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
        late: get(row, "late")?,
    })
}
