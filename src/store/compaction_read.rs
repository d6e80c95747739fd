//! Compactions as they are read: the one in force, lists of them, and abandoned ones.

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    compaction::{expire, status},
    lock::lock_run,
    pipeline::Param,
    row::get,
    rows::Key,
};
use crate::{
    codec,
    model::{
        Compaction, CompactionId, CompactionState, MessageId, Seq, SessionId, SessionKey, TenantId,
        compaction::Summary,
    },
};

macro_rules! columns {
    () => {
        "select c.compaction_id, c.status, c.from_seq, c.to_seq, c.predecessor, c.summary_message, c.info, c.created_at, c.ended_at,
           (select e.at from events e where e.tenant_id = $1 and e.session_id = $2 and e.seq = c.reverted_at_seq) as reverted_at"
    };
}

/// What orders the compactions of a session by when they began: no clock of a replica, and so not
/// their ids. The version of the context only grows, and within one version the seq does. Those of
/// a program that did not note the seq stand before the others of their version. These are the
/// columns of the index `compactions_in_order`.
macro_rules! order {
    ($each:literal) => {
        concat!(
            "c.context_version",
            $each,
            ", coalesce(c.begun_at_seq, 0)",
            $each,
            ", c.created_at",
            $each,
            ", c.compaction_id",
            $each
        )
    };
}

/// The newest first.
pub(super) const LIST: &str = concat!(
    "-- store::compaction_read::list
",
    columns!(),
    "
      from compactions c
     where c.tenant_id = $1 and c.session_id = $2
       and ($3::text is null or row(",
    order!(""),
    ") < (select ",
    order!(""),
    " from compactions c where c.tenant_id = $1 and c.session_id = $2 and c.compaction_id = $3))
     order by ",
    order!(" desc"),
    " limit $4"
);
pub(super) const ONE: &str = concat!(
    "-- store::compaction_read::one
",
    columns!(),
    "
      from compactions c
     where c.tenant_id = $1 and c.session_id = $2 and c.compaction_id = $3"
);
pub(super) const NEWEST: &str = concat!(
    "-- store::compaction_read::newest
",
    columns!(),
    ", c.context_version
      from compactions c
     where c.tenant_id = $1 and c.session_id = $2 order by ",
    order!(" desc"),
    " limit 1"
);
pub(super) const IN_FORCE: &str = concat!(
    "-- store::compaction_read::in_force
",
    columns!(),
    "
      from compactions c
     where c.tenant_id = $1 and c.session_id = $2 and c.status = 2 order by c.active_from_seq desc limit 1"
);
/// Of all sessions: the index holds only those that run.
pub(super) const ABANDONED: &str = "-- store::compaction_read::abandoned
    select c.tenant_id, c.session_id from compactions c where c.status = 1 and c.lease_until < now() limit $1";

impl Store {
    /// The compactions of a session, the newest first, those after `before` in that order.
    pub async fn compactions(
        &self,
        key: &SessionKey,
        before: Option<&CompactionId>,
        limit: u32,
    ) -> Result<Vec<Compaction>, Error> {
        let key = Key::from(key);
        let before = before.map(CompactionId::as_str);
        let params: [Param<'_>; 4] = [&key.tenant, &key.session, &before, &i64::from(limit)];
        self.database
            .read(LIST, &params)
            .await?
            .iter()
            .map(compaction)
            .collect()
    }

    /// One compaction.
    pub async fn compaction(
        &self,
        key: &SessionKey,
        id: &CompactionId,
    ) -> Result<Option<Compaction>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read(ONE, &[&key.tenant, &key.session, &id.as_str()])
            .await?;
        rows.first().map(compaction).transpose()
    }

    /// The newest compaction, with the version of the context that it was made from.
    pub async fn newest_compaction(
        &self,
        key: &SessionKey,
    ) -> Result<Option<(Compaction, i64)>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read(NEWEST, &[&key.tenant, &key.session])
            .await?;
        rows.first()
            .map(|row| Ok((compaction(row)?, get(row, "context_version")?)))
            .transpose()
    }

    /// The compaction in force.
    pub async fn compaction_in_force(&self, key: &SessionKey) -> Result<Option<Compaction>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read(IN_FORCE, &[&key.tenant, &key.session])
            .await?;
        rows.first().map(compaction).transpose()
    }

    /// Sessions with a compaction whose lease ran out.
    pub async fn abandoned_compactions(&self, limit: u32) -> Result<Vec<SessionKey>, Error> {
        let rows = self.database.read(ABANDONED, &[&i64::from(limit)]).await?;
        let key = |row: &Row| {
            Ok(SessionKey::new(
                TenantId::new(get::<String>(row, "tenant_id")?),
                SessionId::new(get::<String>(row, "session_id")?),
            ))
        };
        rows.iter().map(key).collect()
    }

    /// Gives up the compaction of a session whose lease ran out; the context stays as it is.
    /// `failed`: the encoded `compaction_failed`.
    pub async fn expire_compaction(&self, key: &SessionKey, failed: &[u8]) -> Result<(), Error> {
        let key = Key::from(key);
        self.database
            .transact(&[lock_run(&key), expire(&key, &failed)?])
            .await
            .map(drop)
    }
}

/// What is encoded was written when it was begun or ended; the columns know what came of it.
fn compaction(row: &Row) -> Result<Compaction, Error> {
    let stored = codec::compaction::decode(get(row, "info")?)?;
    let range = get::<Option<i64>>(row, "from_seq")?.zip(get::<Option<i64>>(row, "to_seq")?);
    let message: Option<String> = get(row, "summary_message")?;
    let state = status(get(row, "status")?)?.into();
    Ok(Compaction {
        id: Some(CompactionId::new(get::<String>(row, "compaction_id")?)),
        state,
        range: range.map(|(from, to)| (Seq(from), Seq(to))),
        summary: stored
            .summary
            .zip(message)
            .map(|(summary, message)| Summary {
                message: MessageId::new(message),
                ..summary
            }),
        predecessor: get::<Option<String>>(row, "predecessor")?.map(CompactionId::new),
        failure: if state == CompactionState::Failed {
            Some(stored.failure.unwrap_or_else(codec::compaction::lost))
        } else {
            None
        },
        created_at: Some(get::<Timestamp>(row, "created_at")?),
        ended_at: get(row, "ended_at")?,
        reverted_at: get(row, "reverted_at")?,
        ..stored
    })
}
