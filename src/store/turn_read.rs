//! Read access to turns, for their owner and for clients.

use std::{
    collections::BTreeMap,
    sync::LazyLock,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    admitted::Read,
    anchor::anchor,
    bounded_page::BoundedPage,
    counters::counters,
    event::totals,
    key::Key,
    message::{LIVE_WITHIN, NOW, visible_transcript},
    named_parameters::Named,
    owned::{OwnedTurn, Revision, VisibleTranscript},
    pipeline::Param,
    row::{count, duration, get, last_seq, turn_state},
    seen::cancel_request,
    session_cache::CachedSession,
    session_memory::{PrepareInput, SessionMemory, StoredSize, WaitingTurn},
};
use crate::{
    codec,
    model::{
        CallId, MessageId, RequestId, Seq, SessionConfig, SessionKey, ToolSet, TurnFence, TurnId, TurnResult,
        TurnState, command::TurnRequest,
    },
    session::Version,
};

/// A turn as clients see it.
#[derive(Debug, Clone)]
pub struct Turn {
    pub id: TurnId,
    pub state: TurnState,
    /// The request that started it.
    pub request_id: Option<RequestId>,
    /// The settings in which it differs from its session.
    pub request: TurnRequest,
    /// The configuration for which its newest step was prepared.
    pub config: SessionConfig,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Seq of its first event.
    pub first_seq: Seq,
    /// Seq of its terminal event.
    pub last_seq: Option<Seq>,
    /// Its result so far, without finish reason and last usage.
    pub so_far: TurnResult,
    /// Its encoded outcome.
    pub outcome: Option<Vec<u8>>,
    /// Whether it is running and its current step began after its deadline.
    pub late: bool,
}

pub(super) static OWNED: LazyLock<Named> = named_alone!("sql/turns/owned.sql");

static TURN: LazyLock<Named> = named_alone!("sql/turns/one.sql");

/// A page of turns, truncated at the size limit. The configuration of a revision is read and counted with its first
/// turn.
static TURNS: LazyLock<Named> = named_alone!("sql/turns/list.sql");

impl Store {
    /// Reads the data that a turn's owner needs. Returns `None` if this replica no longer owns the turn under this
    /// epoch.
    pub async fn owned(&self, key: &SessionKey, turn: &TurnId, epoch: i64) -> Result<Option<OwnedTurn>, Error> {
        let values: [(&str, Param<'_>); 3] = [("epoch", &epoch), ("owner", &self.replica), ("turn", &turn.as_str())];
        let rows = self.database.read_named_in(key, &OWNED, &values).await?;
        rows.first().map(owned).transpose()
    }

    /// Like [`Store::owned`], with the transcript that the model sees, on one connection. The two are not read in the
    /// same snapshot. The transcript is read up to `most_bytes`.
    pub async fn owned_with_transcript(
        &self,
        key: &SessionKey,
        turn: &TurnId,
        epoch: i64,
        most_bytes: usize,
    ) -> Result<(Option<OwnedTurn>, VisibleTranscript), Error> {
        let of = Key::from(key);
        let owner: [(&str, Param<'_>); 3] = [("epoch", &epoch), ("owner", &self.replica), ("turn", &turn.as_str())];
        let most = i64::try_from(most_bytes).unwrap_or(i64::MAX);
        let page: [(&str, Param<'_>); 4] =
            [("at", &NOW.0), ("place", &0_i64), ("limit", &None::<i64>), ("most_bytes", &most)];
        let queries = [of.named(&OWNED, &owner)?, of.named(&LIVE_WITHIN, &page)?];
        let asked = Instant::now();
        let all = self.database.read_together(&queries).await?;
        let rows = |index: usize| all.get(index).map_or([].as_slice(), Vec::as_slice);
        let seen = visible_transcript(rows(1))?;
        let Some(row) = rows(0).first() else {
            return Ok((None, seen));
        };
        let owned = owned(row)?;
        if seen.bytes < most_bytes && self.session_cache.has_room_for(seen.bytes) {
            let at = owned.read_at;
            let bytes = |column| get::<i32>(row, column).map(|bytes| bytes.unsigned_abs() as usize);
            let bytes =
                StoredSize { messages: seen.bytes, config: bytes("config_bytes")?, request: bytes("request_bytes")? };
            let memory = SessionMemory::of_owned(&owned, &seen, (turn, bytes), Read { at, sent_at: asked });
            let version = Version(get(row, "version")?);
            if let Some(memory) = memory {
                self.session_cache.attach(key, version, memory);
            }
        }
        Ok((Some(owned), seen))
    }

    /// Like [`Store::owned_with_transcript`], from memory after the owner's last commit on this replica. Returns `None`
    /// if the turn is not in memory or the transcript has at least `most_bytes`.
    pub fn cached_turn(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        most_bytes: usize,
    ) -> Option<(OwnedTurn, VisibleTranscript)> {
        let CachedSession { session, memory, .. } = self.session_cache.remembered(key)?;
        let is_own = session.is_owned_by(&self.replica);
        is_own.then(|| memory.owned(&session, right, most_bytes))?
    }

    /// Returns the state from which a turn starts in an idle session, from memory. Returns `None` if the session is not
    /// in memory or not idle.
    pub fn cached_idle(&self, key: &SessionKey) -> Option<PrepareInput> {
        let CachedSession { session, memory, .. } = self.session_cache.remembered(key)?;
        memory.idle(&session)
    }

    /// Returns the waiting turn of a session, from memory. Returns `None` if it is not in memory or does not wait for
    /// results of all these calls.
    pub fn cached_waiting_turn(&self, key: &SessionKey, calls: &[CallId]) -> Option<WaitingTurn> {
        let CachedSession { session, memory, .. } = self.session_cache.remembered(key)?;
        memory.waiting(&session, calls)
    }

    /// Reads one turn. Returns `None` if the session has no such turn.
    pub async fn turn(&self, key: &SessionKey, turn: &TurnId) -> Result<Option<Turn>, Error> {
        let rows = self.database.read_named_in(key, &TURN, &[("turn", &turn.as_str())]).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let config = codec::config::decode(get(row, "config")?, codec::tools::decode(get(row, "tools")?)?)?;
        turn_row(row, config).map(Some)
    }

    /// Lists the turns of a session that started before `before`, newest first: at most `limit` turns with at most
    /// `bytes` of stored size, but at least one. Configurations are read without tools, once per revision.
    pub async fn turns(
        &self,
        key: &SessionKey,
        before: Seq,
        limit: u32,
        bytes: i64,
    ) -> Result<BoundedPage<Turn>, Error> {
        let values: [(&str, Param<'_>); 3] = [("before", &before.0), ("limit", &i64::from(limit)), ("bytes", &bytes)];
        let rows = self.database.read_named_in(key, &TURNS, &values).await?;
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
                config.ok_or_else(|| Error::Corrupt(format!("configuration revision {revision} is missing")))?,
            )?);
        }
        BoundedPage::new(items, &rows)
    }
}

fn owned(row: &Row) -> Result<OwnedTurn, Error> {
    let takeovers: i16 = get(row, "takeovers")?;
    let time_left: f64 = get(row, "time_left")?;
    Ok(OwnedTurn {
        step: count(row, "step")?,
        attempt: count(row, "attempt")?,
        completed_steps: count(row, "step_count")?,
        takeovers: u32::try_from(takeovers).unwrap_or_default(),
        open_calls: count(row, "open_calls")?,
        cancel: cancel_request(row)?,
        time_left: Duration::try_from_secs_f64(time_left).unwrap_or_default(),
        overtime: Duration::try_from_secs_f64(-time_left).unwrap_or_default(),
        late: get(row, "late")?,
        started_at: get(row, "started_at")?,
        read_at: get(row, "read_at")?,
        request: codec::turn::decode_request(get(row, "request")?)?,
        prepared_for: Revision {
            number: get(row, "revision")?,
            config: codec::config::decode(get(row, "config")?, codec::tools::decode(get(row, "tools")?)?)?,
        },
        newer: newer(row)?,
        totals: totals(get(row, "totals")?)?,
        final_message: get::<Option<String>>(row, "final_message")?.map(MessageId::new),
        context_tokens: counters(row)?.size(),
        context_version: get(row, "context_version")?,
        anchor: anchor(row)?,
        last_seq: last_seq(row)?,
        waiting: get(row, "waiting")?,
        trace: get(row, "trace")?,
    })
}

fn newer(row: &Row) -> Result<Option<Revision>, Error> {
    let Some(number) = get::<Option<i64>>(row, "newer_revision")? else {
        return Ok(None);
    };
    let tools = codec::tools::decode(get(row, "newer_tools")?)?;
    Ok(Some(Revision { number, config: codec::config::decode(get(row, "newer_config")?, tools)? }))
}

fn turn_row(row: &Row, config: SessionConfig) -> Result<Turn, Error> {
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
            total_usage: totals(get(row, "totals")?)?,
            elapsed: duration(row, "elapsed")?,
            ..TurnResult::default()
        },
        outcome: get(row, "outcome")?,
        late: get(row, "late")?,
    })
}
