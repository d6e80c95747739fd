//! Retention: removes what was kept for long enough, a batch at a time, each a transaction of its
//! own. Any number of replicas may sweep at once: each takes rows that no other one has locked.

use std::{sync::LazyLock, time::Duration};

use tokio_postgres::Row;

use super::{
    Error, Store,
    named_parameters::Named,
    pipeline::Param,
    row::{get, session_key},
};
use crate::model::SessionKey;

/// Longer than any session has existed: no limit.
pub const UNLIMITED: Duration = Duration::from_hours(100 * 365 * 24);

/// Idempotency keys, the marks of deletions and the last epochs of deleted sessions among them: no
/// process acts for that long on what it knew of a session before.
static REQUESTS: LazyLock<Named> = named_alone!("sql/sweep_requests.sql");

/// Queued messages that ended, and what kept their media. What the live turn took stays, for a
/// rollback.
static QUEUE: LazyLock<Named> = named_alone!("sql/sweep_queue.sql");

/// The oldest events of the session whose oldest event is the oldest of all, up to the first that
/// is young enough or of the live turn. Those that other rows refer to stay without being shown:
/// when a result was pruned or a compaction reverted, which revision a turn was made for, what it was
/// doing when it was cancelled, and each change of the configuration.
static EVENTS: LazyLock<Named> = named_alone!("sql/sweep_events.sql");

/// Sessions that were not used for their own time to live, or for that of the server, the
/// longest unused first. One that is being deleted stands before them all and is left out, as are
/// live ones and those in which a message was queued meanwhile.
static UNUSED: LazyLock<Named> = named_alone!("sql/unused_sessions.sql");

/// Tool sets in the order of their keys. One that no configuration refers to is marked when that is
/// first seen and removed after that `age`; a configuration that is just being stored holds its
/// tool set by the foreign key.
static TOOL_SETS: LazyLock<Named> = named_alone!("sql/sweep_tool_sets.sql");

/// How far a walk over all tool sets has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolSetWalk {
    tenant: String,
    tool_set: String,
}

/// What one batch of a sweep removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    /// Rows.
    pub rows: u64,
    /// There may be more to remove.
    pub more: bool,
}

/// The statements of all sweeps, by name. Tests look at their plans.
#[doc(hidden)]
pub fn statements() -> [(&'static str, &'static str); 5] {
    [
        ("requests", &REQUESTS.sql),
        ("queue", &QUEUE.sql),
        ("events", &EVENTS.sql),
        ("unused", &UNUSED.sql),
        ("tool_sets", &TOOL_SETS.sql),
    ]
}

impl Store {
    /// Removes idempotency keys that are older than this, at most `batch` of them.
    pub async fn sweep_requests(&self, older: Duration, batch: u32) -> Result<Swept, Error> {
        self.sweep(&REQUESTS, older, batch).await
    }

    /// Removes queued messages that ended longer ago than this, at most `batch` of them.
    pub async fn sweep_queue(&self, older: Duration, batch: u32) -> Result<Swept, Error> {
        self.sweep(&QUEUE, older, batch).await
    }

    async fn sweep(
        &self,
        statement: &'static Named,
        older: Duration,
        batch: u32,
    ) -> Result<Swept, Error> {
        let older = older.as_secs_f64();
        let limit = i64::from(batch);
        let removed = self
            .database
            .write(&statement.query(&[("age", &older as Param<'_>), ("most", &limit)])?)
            .await?
            .len();
        Ok(Swept {
            rows: removed as u64,
            more: removed >= batch as usize,
        })
    }

    /// Removes events of one session that are older than this, at most `batch` of them.
    pub async fn sweep_events(&self, older: Duration, batch: u32) -> Result<Swept, Error> {
        let older = older.as_secs_f64();
        let limit = i64::from(batch);
        let rows = self
            .database
            .write(&EVENTS.query(&[("age", &older as Param<'_>), ("most", &limit)])?)
            .await?;
        let swept = |row: &Row| {
            let (sessions, events): (i64, i64) = (get(row, "sessions")?, get(row, "events")?);
            Ok(Swept {
                rows: u64::try_from(events).unwrap_or_default(),
                more: sessions > 0,
            })
        };
        rows.first().map_or(
            Ok(Swept {
                rows: 0,
                more: false,
            }),
            swept,
        )
    }

    /// Looks at the next tool sets of all tenants and removes those that no configuration has
    /// referred to for this long. `None` means the walk is at its end.
    pub async fn sweep_tool_sets(
        &self,
        walk: &ToolSetWalk,
        unused_for: Duration,
        batch: u32,
    ) -> Result<Option<(u64, ToolSetWalk)>, Error> {
        let unused_for = unused_for.as_secs_f64();
        let limit = i64::from(batch);
        let sweep = TOOL_SETS.query(&[
            ("tenant", &walk.tenant as Param<'_>),
            ("tool_set", &walk.tool_set),
            ("age", &unused_for),
            ("most", &limit),
        ])?;
        let rows = self.database.write(&sweep).await?;
        let swept = |row: &Row| {
            let swept: i64 = get(row, "swept")?;
            let next = ToolSetWalk {
                tenant: get(row, "tenant_id")?,
                tool_set: get(row, "toolset_id")?,
            };
            Ok((u64::try_from(swept).unwrap_or_default(), next))
        };
        rows.first().map(swept).transpose()
    }

    /// Idle sessions that were not used for this long, or for their own time to live if that is
    /// shorter; at most `limit` of them.
    pub async fn unused_sessions(
        &self,
        unused_for: Duration,
        limit: u32,
    ) -> Result<Vec<SessionKey>, Error> {
        let unused_for = unused_for.as_secs_f64();
        let limit = i64::from(limit);
        let values = [("ttl", &unused_for as Param<'_>), ("most", &limit)];
        self.database
            .read_named(&UNUSED, &values)
            .await?
            .iter()
            .map(session_key)
            .collect()
    }
}
