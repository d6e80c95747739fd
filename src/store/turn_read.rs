//! Turns as they are read: by their owner, and by clients.

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    lease::ROLLBACK,
    pipeline::Param,
    row::{count, get, turn_state},
    rows::Key,
    stats::{anchor, anchor_columns},
};
use crate::{
    codec,
    model::{
        Anchor, CancelCause, MessageId, RequestId, Seq, SessionConfig, SessionKey, TurnId, TurnResult, TurnState,
        UsageTotals, command::TurnRequest,
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
    /// Somebody wants it cancelled.
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

/// The revision that a step was made for, as its `step_started` says: the newest such event of the turn `t`, which ends
/// before `$seq`.
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

/// The columns of a turn.
macro_rules! turns_select {
    () => {
        concat!(
            "select t.turn_id, t.state, r.state as run_state, t.request_id, t.request, t.started_at, t.ended_at, t.first_seq,
                    t.last_seq, t.step_count, t.final_message, t.calls, t.input_tokens, t.output_tokens, t.reasoning_tokens,
                    t.cache_read_tokens, t.cache_write_tokens, t.outcome, v.config, s.tools,
                    extract(epoch from coalesce(t.ended_at, now()) - t.started_at)::float8 as elapsed,
                    case when t.state = 1 then r.step else t.step_count end as steps_begun,
                    coalesce(t.state = 1 and e.at >= r.turn_deadline, false) as late
               from turns t
               join session_run r on r.tenant_id = $1 and r.session_id = $2 and r.state <> 3
               left join ",
            made_for!("coalesce(t.last_seq, r.next_seq)"),
            " where t.tenant_id = $1 and t.session_id = $2 "
        )
    };
}

impl Store {
    /// The turn as its owner needs it. Returns `None` if this replica no longer owns it under this epoch.
    pub async fn owned(&self, key: &SessionKey, turn: &TurnId, epoch: i64) -> Result<Option<Owned>, Error> {
        let key = Key::from(key);
        let params: [Param<'_>; 5] = [&key.tenant, &key.session, &epoch, &self.replica, &turn.as_str()];
        let rows = self.database.read(OWNED, &params).await?;
        rows.first().map(owned).transpose()
    }

    /// One turn; none: the session has no such turn.
    pub async fn turn(&self, key: &SessionKey, turn: &TurnId) -> Result<Option<Turn>, Error> {
        const SQL: &str = concat!("-- store::turn_read::turn\n", turns_select!(), "and t.turn_id = $3");
        let key = Key::from(key);
        let rows = self.database.read(SQL, &[&key.tenant, &key.session, &turn.as_str()]).await?;
        rows.first().map(turn_row).transpose()
    }

    /// The turns of a session that started before `before`, newest first.
    pub async fn turns(&self, key: &SessionKey, before: Seq, limit: u32) -> Result<Vec<Turn>, Error> {
        const SQL: &str = concat!(
            "-- store::turn_read::turns\n",
            turns_select!(),
            "and t.first_seq < $3 order by t.first_seq desc limit $4"
        );
        let key = Key::from(key);
        let rows = self.database.read(SQL, &[&key.tenant, &key.session, &before.0, &i64::from(limit)]).await?;
        rows.iter().map(turn_row).collect()
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
            config: codec::config::decode(get(row, "config")?, codec::tools::decode(get(row, "tools")?)?)?,
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
    let Some(number) = get::<Option<i64>>(row, "newer_revision")? else { return Ok(None) };
    let tools = codec::tools::decode(get(row, "newer_tools")?)?;
    Ok(Some(Revision { number, config: codec::config::decode(get(row, "newer_config")?, tools)? }))
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
    Ok(Some(CancelRequest { cause, reason: get(row, "cancel_reason")?, rollback: mode == ROLLBACK }))
}

fn turn_row(row: &Row) -> Result<Turn, Error> {
    let elapsed: f64 = get(row, "elapsed")?;
    Ok(Turn {
        id: TurnId::new(get::<String>(row, "turn_id")?),
        state: turn_state(get(row, "state")?, get(row, "run_state")?)?,
        request_id: get::<Option<String>>(row, "request_id")?.map(RequestId::new),
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
        late: get(row, "late")?,
    })
}
