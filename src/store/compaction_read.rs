//! Read access to compactions: the one in force, lists, and abandoned ones.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    Error, Store,
    named_parameters::Named,
    number::enum_value,
    row::{get, session_key},
};
use crate::{
    codec,
    model::{Compaction, CompactionId, CompactionState, MessageId, Seq, SessionKey, compaction::Summary},
};

/// Newest first.
pub(super) static LIST: LazyLock<Named> = named_alone!("sql/compactions/list.sql");
pub(super) static ONE: LazyLock<Named> = named_alone!("sql/compactions/one.sql");
pub(super) static NEWEST: LazyLock<Named> = named_alone!("sql/compactions/newest.sql");
pub(super) static IN_FORCE: LazyLock<Named> = named_alone!("sql/compactions/in_force.sql");
/// Reads all sessions: the index contains only running compactions.
pub(super) const ABANDONED: &str = "-- store::compaction_read::abandoned
    select c.tenant_id, c.session_id from compactions c where c.status = 1 and c.lease_until < now()
     order by random() limit $1";

impl Store {
    /// Lists the compactions of a session, newest first, starting after `before` in that order.
    pub async fn compactions(
        &self,
        key: &SessionKey,
        before: Option<&CompactionId>,
        limit: u32,
    ) -> Result<Vec<Compaction>, Error> {
        let (before, limit) = (before.map(CompactionId::as_str), i64::from(limit));
        let rows = self.database.read_named_in(key, &LIST, &[("before", &before), ("limit", &limit)]).await?;
        rows.iter().map(compaction).collect()
    }

    /// Reads one compaction.
    pub async fn compaction(&self, key: &SessionKey, id: &CompactionId) -> Result<Option<Compaction>, Error> {
        let rows = self.database.read_named_in(key, &ONE, &[("compaction", &id.as_str())]).await?;
        rows.first().map(compaction).transpose()
    }

    /// Reads the newest compaction, with the version of the context it was made from.
    pub async fn newest_compaction(&self, key: &SessionKey) -> Result<Option<(Compaction, i64)>, Error> {
        let rows = self.database.read_named_in(key, &NEWEST, &[]).await?;
        rows.first().map(|row| Ok((compaction(row)?, get(row, "context_version")?))).transpose()
    }

    /// Reads the compaction in force, and whether it replaces pinned messages too.
    pub async fn compaction_in_force(&self, key: &SessionKey) -> Result<Option<(Compaction, bool)>, Error> {
        let rows = self.database.read_named_in(key, &IN_FORCE, &[]).await?;
        rows.first().map(|row| Ok((compaction(row)?, get(row, "hides_pinned")?))).transpose()
    }

    /// Lists sessions with a compaction whose lease has expired, in random order.
    pub async fn abandoned_compactions(&self, limit: u32) -> Result<Vec<SessionKey>, Error> {
        let rows = self.database.read(ABANDONED, &[&i64::from(limit)]).await?;
        rows.iter().map(session_key).collect()
    }
}

/// Decodes a compaction. The encoded part was written when it began or ended; the columns have its current state.
fn compaction(row: &Row) -> Result<Compaction, Error> {
    let stored = codec::compaction::decode(get(row, "info")?)?;
    let range = get::<Option<i64>>(row, "from_seq")?.zip(get::<Option<i64>>(row, "to_seq")?);
    let message: Option<String> = get(row, "summary_message")?;
    let state = enum_value(row, "status")?;
    Ok(Compaction {
        id: Some(CompactionId::new(get::<String>(row, "compaction_id")?)),
        state,
        range: range.map(|(from, to)| (Seq(from), Seq(to))),
        summary: stored
            .summary
            .zip(message)
            .map(|(summary, message)| Summary { message: MessageId::new(message), ..summary }),
        predecessor: get::<Option<String>>(row, "predecessor")?.map(CompactionId::new),
        failure: (state == CompactionState::Failed)
            .then(|| stored.failure.unwrap_or_else(codec::compaction::replica_stopped_failure)),
        created_at: Some(get(row, "created_at")?),
        ended_at: get(row, "ended_at")?,
        reverted_at: get(row, "reverted_at")?,
        ..stored
    })
}
