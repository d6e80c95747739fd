//! The end of a session: at once for everybody who asks for it, and row by row for the disk.

use std::{sync::LazyLock, time::Duration};

use super::{
    Error, Store,
    commit::{Committed, Led, Races, Remember},
    idempotency::Remembered,
    named_parameters::Named,
    pipeline::{Param, Query},
    row::{count, get, session_key, session_state},
    rows::Key,
    seen::SeenSession,
};
use crate::{
    codec,
    model::{Fence, RequestId, Seq, SessionKey, TurnId, command::Idempotency},
    session::{SessionState, deletion, ending::End, fork},
};

/// What an idempotency key led to that ended a session. No id looks like it.
pub const DELETED: &str = "session deleted";

/// Rows that one statement of the purge removes.
const BATCH: i64 = 500;

/// A session as it was seen by whoever wants it deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    /// Where it stands.
    pub state: SessionState,
    /// Its fence.
    pub fence: Fence,
    /// Its configuration's revision.
    pub revision: i64,
    /// The live turn.
    pub turn: Option<TurnId>,
    /// Calls that wait.
    pub open_calls: u32,
    /// What the idempotency key led to.
    pub remembered: Option<Remembered>,
}

/// A deletion.
#[derive(Debug, Clone)]
pub struct Deletion<'a> {
    /// The session as it was seen; if it moved since then, nothing is done.
    pub seen: &'a Doomed,
    /// Only under this revision.
    pub revision: Option<i64>,
    /// How the live turn ends. `None` means there is none.
    pub end: Option<&'a End<'a>>,
    /// Which estimator counts the synthetic results.
    pub estimator: &'a str,
    /// How long the rows stay for those who follow the session.
    pub stay: Duration,
    /// Idempotency.
    pub idempotency: &'a Idempotency,
    /// Only if no turn is live and the session was not used for this long, or for its own time to
    /// live if that is shorter. `None` means in any case.
    pub unused_for: Option<Duration>,
}

pub(super) const DOOMED: &str = "-- store::delete::doomed
    select r.state, r.epoch, r.op, r.revision, r.turn_id, r.open_calls, i.req_hash, i.result
      from session_run r
      left join idempotency i on i.tenant_id = $1 and i.session_id = $2 and i.request_id = $3
     where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3";
static PURGEABLE: LazyLock<Named> = named_alone!("sql/purgeable.sql");

/// Removes a batch of a session's rows from one table. The rows and the state are one snapshot: an
/// id that was set free and taken again meanwhile is left alone.
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

/// Everything of a session, in an order in which nothing that is left refers to what is gone. What
/// remembers a deletion stays for whoever repeats it, and how far the epoch got for whoever takes
/// the id; the hot row, which keeps the id taken, goes last.
const PURGE: [&str; 13] = purge! {
    "partial_chunks"; "part_blobs"; "past_prunes"; "parts"; "messages"; "tool_calls"; "queue"; "events"; "turns"; "compactions"; "usage_totals";
    "session_revisions"; "idempotency", "x.request_id <> '' and x.result <> 'session deleted'"
};

impl Store {
    /// A session as a deletion has to see it. `None` means there is none.
    pub async fn doomed(
        &self,
        key: &SessionKey,
        request: Option<&RequestId>,
    ) -> Result<Option<Doomed>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read(
                DOOMED,
                &[&key.tenant, &key.session, &request.map(RequestId::as_str)],
            )
            .await?;
        rows.first().map(doomed).transpose()
    }

    /// Ends a session, its turn and its queue, in one transaction. The newest seq. `None` means it
    /// moved since it was seen, it was used, or the request is known.
    pub async fn delete(
        &self,
        key: &SessionKey,
        deletion: &Deletion<'_>,
    ) -> Result<Option<Seq>, Error> {
        Box::pin(self.delete_as_seen(key, deletion)).await
    }

    async fn delete_as_seen(
        &self,
        key: &SessionKey,
        deletion: &Deletion<'_>,
    ) -> Result<Option<Seq>, Error> {
        let dropped = codec::event::encode_dropped_with_session();
        let wanted = deletion::Deletion {
            fence: deletion.seen.fence,
            turn: deletion.seen.turn.as_ref().zip(deletion.end.copied()),
            revision: deletion.revision,
            dropped: &dropped,
            stay: deletion.stay,
        };
        let commit = Committed {
            estimator: deletion.estimator,
            request: Some(Remember {
                request: deletion.idempotency,
                led: Led::To(DELETED),
                is_new: true,
            }),
            ..Committed::default()
        };
        let mut races = Races::over("a deletion");
        loop {
            if let Some(request) = &deletion.idempotency.request
                && self.remembered(key, request).await?.is_some()
            {
                return Ok(None);
            }
            let Some((seen, open)) = self.read_session_and_calls(key).await? else {
                return Ok(None);
            };
            // A commit that finds the session unchanged has seen how long ago it was used.
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
            let seen = (seen.version, &seen.session);
            if let Some(deleted) = self.commit(key, seen, &change, &commit).await? {
                return Ok(Some(deleted.last_seq));
            }
            races.lost()?;
        }
    }

    /// For how long a session was not used, and its own time to live.
    async fn unused(
        &self,
        key: &SessionKey,
    ) -> Result<Option<(Duration, Option<Duration>)>, Error> {
        const SQL: &str = "-- store::delete::unused: messages that wait are a use
            select extract(epoch from now() - greatest(a.updated_at,
                     (select max(q.enqueued_at) from queue q where q.tenant_id = $1 and q.session_id = $2 and q.status = 0)))::float8 as unused,
                   extract(epoch from a.ttl)::float8 as ttl
              from session_activity a where a.tenant_id = $1 and a.session_id = $2 and a.updated_at > '-infinity'";
        let key = Key::from(key);
        let rows = self
            .database
            .read(SQL, &[&key.tenant, &key.session])
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let own = get::<Option<f64>>(row, "ttl")?;
        Ok(Some((seconds(get(row, "unused")?), own.map(seconds))))
    }

    /// Takes the live turn from its owner, for a session that is to be deleted: it moves no further
    /// but to its end. False: no turn is live, it was taken before, or the configuration is
    /// another than the one that was named.
    pub async fn seize(&self, key: &SessionKey, revision: Option<i64>) -> Result<bool, Error> {
        let seize = |seen: &SeenSession| deletion::seize(&seen.session, revision, self.heir());
        let seized = self.change(key, seize, &Committed::default()).await?;
        Ok(seized.is_some())
    }

    /// Whether a deleted session keeps this id taken.
    pub async fn is_deleted(&self, key: &SessionKey) -> Result<bool, Error> {
        const SQL: &str = "-- store::delete::is_deleted
            select 1 from session_run where tenant_id = $1 and session_id = $2 and state = 3";
        let key = Key::from(key);
        Ok(!self
            .database
            .read(SQL, &[&key.tenant, &key.session])
            .await?
            .is_empty())
    }

    /// Deleted sessions that are not followed any more. They stand after all others of their tenant
    /// in the order of use; tenants are found by going from one to the next, so that no other
    /// session is looked at.
    pub async fn purgeable(&self, limit: u32) -> Result<Vec<SessionKey>, Error> {
        self.database
            .read_named(&PURGEABLE, &[("most", &i64::from(limit) as Param<'_>)])
            .await?
            .iter()
            .map(session_key)
            .collect()
    }

    /// Removes what a deleted session left, in batches, each a transaction of its own, and sets its
    /// id free at the end. A fork that was never completed is given up first. Whoever does so at the same time is no
    /// hindrance.
    pub async fn purge(&self, key: &SessionKey) -> Result<(), Error> {
        const FREE: &str = "-- store::delete::free
            with free as (
              delete from session_run r
               where r.tenant_id = $1 and r.session_id = $2 and r.state = 3 and r.lease_until < now() returning 1),
            counted as (
              update tenant_deletions d set sessions = d.sessions + 1 from free where d.tenant_id = $1 and d.done_at is null)
            delete from session_activity a using free where a.tenant_id = $1 and a.session_id = $2";
        let abandon = |seen: &SeenSession| fork::abandon(&seen.session);
        Box::pin(self.change(key, abandon, &Committed::default())).await?;
        let key = Key::from(key);
        for batch in PURGE {
            let batch = Query::new(batch, vec![&key.tenant as Param<'_>, &key.session, &BATCH]);
            while !self.database.write(&batch).await?.is_empty() {}
        }
        self.database
            .write(&Query::new(
                FREE,
                vec![&key.tenant as Param<'_>, &key.session],
            ))
            .await
            .map(drop)
    }
}

fn doomed(row: &tokio_postgres::Row) -> Result<Doomed, Error> {
    let state = session_state(get(row, "state")?)?;
    let hash: Option<String> = get(row, "req_hash")?;
    let result: Option<String> = get(row, "result")?;
    Ok(Doomed {
        state,
        fence: Fence {
            epoch: get(row, "epoch")?,
            op: get(row, "op")?,
        },
        revision: get(row, "revision")?,
        turn: get::<Option<String>>(row, "turn_id")?
            .filter(|_| state.is_live())
            .map(TurnId::new),
        open_calls: count(row, "open_calls")?,
        remembered: hash
            .zip(result)
            .map(|(hash, result)| Remembered { hash, result }),
    })
}
