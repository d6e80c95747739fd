//! Deletion of a session: it disappears at once for all clients, and its rows are removed later in batches.

use std::{sync::LazyLock, time::Duration};

use super::{
    Error, Store,
    admission::SessionHead,
    commit::{CommitMetadata, MAX_COMMIT_CONFLICTS, RequestResult},
    key::Key,
    named_parameters::Named,
    row::{duration, get, session_key},
    seen::SessionSnapshot,
};
use crate::{
    codec,
    model::{Seq, SessionKey, command::Idempotency},
    session::{deletion, ending::TurnEnd, fork},
};

/// The stored result of an idempotency key whose request deleted a session. Cannot be confused with an id.
pub const DELETED: &str = "session deleted";

/// Number of rows that one purge statement removes.
const BATCH: i64 = 500;

/// A request to delete a session.
#[derive(Debug, Clone)]
pub struct Deletion<'a> {
    /// The session as it was read. If it has advanced since then, nothing is done.
    pub seen: &'a SessionHead,
    /// Delete only if the configuration has this revision.
    pub revision: Option<i64>,
    /// How the running turn ends. `None` if no turn is running.
    pub end: Option<&'a TurnEnd<'a>>,
    /// The estimator that counts the synthetic tool results.
    pub estimator: &'a str,
    /// How long the rows are kept for clients that follow the session.
    pub retention: Duration,
    pub idempotency: &'a Idempotency,
    /// Delete only if no turn is running and the session was unused for this long, or for its own time to live if that
    /// is shorter. `None` to delete unconditionally.
    pub unused_for: Option<Duration>,
}

static PURGEABLE: LazyLock<Named> = named_alone!("sql/purgeable.sql");

/// Removes a batch of a session's rows from one table. The rows and the state are read in one snapshot, so an id that
/// was released and reused concurrently is left unchanged.
macro_rules! purge {
    ($($table:literal $(, $kept:literal)?);+ $(;)?) => {
        [$(concat!(
            "-- store::delete::purge ", $table, "
             delete from ", $table, " where ctid = any(array(
               select x.ctid from session_run r join ", $table, " x on x.tenant_id = $1 and x.session_id = $2", $(" and ", $kept,)? "
                where r.tenant_id = $1 and r.session_id = $2 and r.state = 3 and r.lease_until < now() limit $3))
             returning 1"
        )),+]
    };
}

/// All rows of a session, in an order in which no remaining row refers to a removed one. The idempotency keys of a
/// deletion are kept for clients that repeat it, and the last epoch for a new session with the same id. The session
/// row, which reserves the id, is removed last.
const PURGE: [&str; 13] = purge! {
    "partial_chunks"; "part_blobs"; "past_prunes"; "parts"; "messages"; "tool_calls"; "queue"; "events"; "turns"; "compactions"; "usage_totals";
    "session_revisions"; "idempotency", "x.request_id <> '' and x.result <> 'session deleted'"
};

/// Releases an id, and counts it if the tenant is being deleted. If the first statement removes nothing, either the id
/// is in use again or another replica removed the row; the other statements then change nothing.
pub(super) const FREE: [&str; 3] = [
    "-- store::delete::free
    delete from session_run r where r.tenant_id = $1 and r.session_id = $2 and r.state = 3 and r.lease_until < now()",
    "-- store::delete::free (count)
    update tenant_deletions d set sessions = d.sessions + 1
     where d.tenant_id = $1 and d.done_at is null
       and exists (select from session_activity a where a.tenant_id = $1 and a.session_id = $2)
       and not exists (select from session_run r where r.tenant_id = $1 and r.session_id = $2)",
    "-- store::delete::free (activity)
    delete from session_activity a
     where a.tenant_id = $1 and a.session_id = $2
       and not exists (select from session_run r where r.tenant_id = $1 and r.session_id = $2)",
];

impl Store {
    /// Ends a session, its turn and its queue in one transaction. Returns its newest seq, or `None` if the session has
    /// advanced since it was read, was used, or the request is known.
    pub async fn delete(&self, key: &SessionKey, deletion: &Deletion<'_>) -> Result<Option<Seq>, Error> {
        Box::pin(self.delete_as_seen(key, deletion)).await
    }

    async fn delete_as_seen(&self, key: &SessionKey, deletion: &Deletion<'_>) -> Result<Option<Seq>, Error> {
        let dropped = codec::event::encode_dropped_with_session();
        let wanted = deletion::Deletion {
            fence: deletion.seen.fence,
            turn: deletion.seen.live_turn().zip(deletion.end.copied()),
            revision: deletion.revision,
            dropped: &dropped,
            stay: deletion.retention,
        };
        let commit =
            CommitMetadata::counted_by(deletion.estimator).storing(deletion.idempotency, RequestResult::Text(DELETED));
        for _ in 0..MAX_COMMIT_CONFLICTS {
            if let Some(request) = &deletion.idempotency.request
                && self.stored_request(key, request).await?.is_some()
            {
                return Ok(None);
            }
            let Some((seen, open)) = self.read_session_and_calls(key).await? else {
                return Ok(None);
            };
            // If the commit finds the session unchanged, the time of its last use is unchanged too.
            if let Some(limit) = deletion.unused_for {
                let Some((unused, own)) = self.unused(key).await? else {
                    return Ok(None);
                };
                if !deletion::is_unused(&seen.session, unused, limit, own) {
                    return Ok(None);
                }
            }
            let Some(change) = deletion::delete(&seen.session, &open, &wanted) else {
                return Ok(None);
            };
            if let Some(deleted) = self.commit(key, seen.before(), &change, &commit).await? {
                return Ok(Some(deleted.last_seq));
            }
        }
        Err(Error::Conflict("concurrent writes prevented the deletion of a session".to_owned()))
    }

    /// How long a session has been unused, and its own time to live.
    async fn unused(&self, key: &SessionKey) -> Result<Option<(Duration, Option<Duration>)>, Error> {
        const SQL: &str = "-- store::delete::unused: messages that wait are a use
            select extract(epoch from now() - greatest(a.updated_at,
                     (select max(q.enqueued_at) from queue q where q.tenant_id = $1 and q.session_id = $2 and q.status = 0)))::float8 as unused,
                   extract(epoch from a.ttl)::float8 as ttl
              from session_activity a where a.tenant_id = $1 and a.session_id = $2 and a.updated_at > '-infinity'";
        let rows = self.database.read_in(key, SQL, &[]).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let own = get::<Option<f64>>(row, "ttl")?;
        let own = own.map(|own| Duration::try_from_secs_f64(own).unwrap_or_default());
        Ok(Some((duration(row, "unused")?, own)))
    }

    /// Takes the running turn from its owner for a session that is about to be deleted: the turn can then only end.
    /// Returns false if no turn is running, it was already taken, or the configuration has another revision than
    /// `revision`.
    pub async fn seize(&self, key: &SessionKey, revision: Option<i64>) -> Result<bool, Error> {
        let seize =
            |seen: &SessionSnapshot| deletion::take_over_for_deletion(&seen.session, revision, self.next_owner());
        let seized = self.change(key, seize, &CommitMetadata::default()).await?;
        Ok(seized.is_some())
    }

    /// Returns whether a deleted session still reserves this id.
    pub async fn is_deleted(&self, key: &SessionKey) -> Result<bool, Error> {
        const SQL: &str = "-- store::delete::is_deleted
            select 1 from session_run where tenant_id = $1 and session_id = $2 and state = 3";
        Ok(!self.database.read_in(key, SQL, &[]).await?.is_empty())
    }

    /// Lists deleted sessions that clients no longer need to follow. They come after all other sessions of their tenant
    /// in the order of use, and tenants are found one after another by index lookups, so no other session is read.
    pub async fn purgeable(&self, limit: u32) -> Result<Vec<SessionKey>, Error> {
        let rows = self.database.read_named(&PURGEABLE, &[("most", &i64::from(limit))]).await?;
        rows.iter().map(session_key).collect()
    }

    /// Removes the rows of a deleted session in batches, each in a separate transaction, and then releases its id. A
    /// fork that was never completed is abandoned first. May run concurrently on several replicas.
    pub async fn purge(&self, key: &SessionKey) -> Result<(), Error> {
        let abandon = |seen: &SessionSnapshot| fork::abandon(&seen.session);
        Box::pin(self.change(key, abandon, &CommitMetadata::default())).await?;
        for batch in PURGE {
            while !self.database.write_in(key, batch, &[&BATCH]).await?.is_empty() {}
        }
        let key = Key::from(key);
        let free = FREE.map(|sql| key.query(sql, &[]));
        self.database.transact(&free).await.map(drop)
    }
}
