//! Retention: removes data that was kept for long enough, in batches, each in a separate transaction. Any number of
//! replicas may sweep concurrently: each takes rows that no other replica has locked.

use std::{sync::LazyLock, time::Duration};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    named_parameters::{self, Named},
    pipeline::Param,
    row::{get, session_key},
};
use crate::{
    model::{Seq, SessionKey},
    session::old_events::{OldEvent, OldEvents, Removal},
};

/// Longer than any session has existed, so there is no limit.
pub const UNLIMITED: Duration = Duration::from_hours(100 * 365 * 24);

/// Removes idempotency keys, including the markers of deletions and the last epochs of deleted sessions: no process
/// acts on state that old.
static REQUESTS: LazyLock<Vec<Named>> = named!["sql/sweep/requests.sql"];

/// Removes queued messages that ended, after the references to their media. A repeated or partial sweep does no harm.
static QUEUE: LazyLock<Vec<Named>> = named!["sql/sweep/queue.sql"];

static EVENTS: LazyLock<Named> = named_alone!("sql/sweep/events.sql");
static REMOVE_EVENTS: LazyLock<Vec<Named>> = named!["sql/sweep/remove_events.sql"];

/// Sessions that were unused for their own time to live or that of the server, the longest unused first. Sessions that
/// are being deleted come first in this order and are left out, as are sessions with a running turn or with a message
/// that was queued since.
static UNUSED: LazyLock<Named> = named_alone!("sql/unused_sessions.sql");

/// Tool sets in key order.
static TOOL_SETS: LazyLock<Named> = named_alone!("sql/sweep/tool_sets.sql");
/// A configuration that is being stored keeps its tool set by the foreign key.
static REMOVE_TOOL_SETS: LazyLock<Vec<Named>> = named!["sql/sweep/remove_tool_sets.sql"];

/// Position of a walk over rows of all tenants, in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Walk {
    pub(super) tenant: String,
    pub(super) id: String,
}

/// Result of one batch of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    /// Number of removed rows.
    pub rows: u64,
    /// Whether there may be more to remove.
    pub more: bool,
}

/// Returns the statements with which sweeps find old data, by name, for tests of their plans.
#[doc(hidden)]
pub fn statements() -> Vec<(&'static str, &'static str)> {
    let alone = [("events", &EVENTS), ("unused", &UNUSED), ("tool_sets", &TOOL_SETS)];
    let batches = [("requests", &REQUESTS), ("queue", &QUEUE)];
    let alone = alone.into_iter().map(|(name, one)| (name, one.sql.as_str()));
    let batches = batches.into_iter().flat_map(|(name, all)| all.iter().map(move |one| (name, one.sql.as_str())));
    alone.chain(batches).collect()
}

impl Store {
    /// Removes at most `batch` idempotency keys older than `older`.
    pub async fn sweep_requests(&self, older: Duration, batch: u32) -> Result<Swept, Error> {
        self.sweep(&REQUESTS, older, batch).await
    }

    /// Removes at most `batch` queued messages that ended longer than `older` ago.
    pub async fn sweep_queue(&self, older: Duration, batch: u32) -> Result<Swept, Error> {
        self.sweep(&QUEUE, older, batch).await
    }

    /// Runs the statements in order. The rows returned by the last one are the removed rows.
    async fn sweep(&self, statements: &'static [Named], older: Duration, batch: u32) -> Result<Swept, Error> {
        let older = older.as_secs_f64();
        let limit = i64::from(batch);
        let mut removed = 0;
        for statement in statements {
            let values = [("age", &older as Param<'_>), ("most", &limit)];
            removed = self.database.write(&statement.query(&values)?).await?.len();
        }
        Ok(Swept { rows: removed as u64, more: removed >= batch as usize })
    }

    /// Removes at most `batch` events of one session that are older than `older`.
    pub async fn sweep_events(&self, older: Duration, batch: u32) -> Result<Swept, Error> {
        let age = older.as_secs_f64();
        let limit = i64::from(batch);
        let values = [("age", &age as Param<'_>), ("most", &limit)];
        let rows = self.database.read_named(&EVENTS, &values).await?;
        let Some(row) = rows.first() else {
            return Ok(Swept { rows: 0, more: false });
        };
        let events: Vec<OldEvent> =
            rows.iter().filter_map(|row| old_event(row).transpose()).collect::<Result<_, _>>()?;
        let old = OldEvents {
            first: Seq(get(row, "first")?),
            live_from: get::<Option<i64>>(row, "live_from")?.map(Seq),
            is_full: events.len() >= batch as usize,
            events,
        };
        let Removal { gone, from, since } = old.remove(older, get(row, "now")?);
        let key = session_key(row)?;
        let gone: Vec<i64> = gone.iter().map(|seq| seq.0).collect();
        let was_from: Option<i64> = get(row, "events_from")?;
        let was_since: Timestamp = get(row, "since")?;
        let values = [
            ("tenant", &key.tenant.as_str() as Param<'_>),
            ("session", &key.session.as_str()),
            ("gone", &gone),
            ("age", &age),
            ("from", &from.0),
            ("until", &since),
            ("was_from", &was_from),
            ("since", &was_since),
        ];
        let remove = named_parameters::queries(&REMOVE_EVENTS, &values)?;
        self.database.transact(&remove).await?;
        Ok(Swept { rows: gone.len() as u64, more: true })
    }

    /// Checks the next tool sets of all tenants. A tool set without a reference from any configuration is marked, and
    /// removed if it is still unreferenced after `unused_for`. Returns `None` at the end of the walk.
    pub async fn sweep_tool_sets(
        &self,
        walk: &Walk,
        unused_for: Duration,
        batch: u32,
    ) -> Result<Option<(u64, Walk)>, Error> {
        let age = unused_for.as_secs_f64();
        let limit = i64::from(batch);
        let values = [("tenant", &walk.tenant as Param<'_>), ("tool_set", &walk.id), ("age", &age), ("most", &limit)];
        let rows = self.database.read_named(&TOOL_SETS, &values).await?;
        let (mut tenants, mut tool_sets, mut unused) = (vec![], vec![], vec![]);
        let (mut old_tenants, mut old_tool_sets) = (vec![], vec![]);
        for row in &rows {
            let (tenant, tool_set): (&str, &str) = (get(row, "tenant_id")?, get(row, "toolset_id")?);
            let (used, marked): (bool, bool) = (get(row, "used")?, get(row, "marked")?);
            if used == marked {
                tenants.push(tenant);
                tool_sets.push(tool_set);
                unused.push(!used);
            } else if !used && get(row, "old")? {
                old_tenants.push(tenant);
                old_tool_sets.push(tool_set);
            }
        }
        let mut removed = 0;
        if !tenants.is_empty() || !old_tenants.is_empty() {
            let values = [
                ("tenants", &tenants as Param<'_>),
                ("tool_sets", &tool_sets),
                ("unused", &unused),
                ("old_tenants", &old_tenants),
                ("old_tool_sets", &old_tool_sets),
                ("age", &age),
            ];
            let remove = named_parameters::queries(&REMOVE_TOOL_SETS, &values)?;
            let answers = self.database.transact(&remove).await?;
            removed = answers.last().map_or(0, Vec::len) as u64;
        }
        let next = |row: &Row| Ok((removed, Walk { tenant: get(row, "tenant_id")?, id: get(row, "toolset_id")? }));
        rows.last().map(next).transpose()
    }

    /// Lists at most `limit` idle sessions that were unused for `unused_for`, or for their own time to live if that is
    /// shorter.
    pub async fn unused_sessions(&self, unused_for: Duration, limit: u32) -> Result<Vec<SessionKey>, Error> {
        let unused_for = unused_for.as_secs_f64();
        let limit = i64::from(limit);
        let values = [("ttl", &unused_for as Param<'_>), ("most", &limit)];
        self.database.read_named(&UNUSED, &values).await?.iter().map(session_key).collect()
    }
}

/// Decodes an event. Returns `None` for a session without events.
fn old_event(row: &Row) -> Result<Option<OldEvent>, Error> {
    let Some(seq) = get::<Option<i64>>(row, "seq")? else {
        return Ok(None);
    };
    Ok(Some(OldEvent {
        seq: Seq(seq),
        at: get(row, "at")?,
        kind: get(row, "kind")?,
        of_last_step: get(row, "of_last_step")?,
    }))
}
