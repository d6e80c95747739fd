//! Deletion of a tenant: requested in one transaction and carried out in batches by the replica that holds the
//! deletion, so that any replica can resume it.
//!
//! Sessions are deleted as usual (`delete.rs`). All other rows of the tenant are removed when it has no session left,
//! and not before every replica rejects the tenant's calls.

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    AdmittedAt, Error, Store, api_key,
    pipeline::{Param, Query},
    quota,
    row::{get, session_key},
};
use crate::model::{SessionKey, TenantDeletion, TenantId};

/// The time after the request when every replica rejects the tenant's calls (none admits calls by data read more than
/// 10 s ago) and calls in progress have ended (a statement runs for at most 10 s by default).
pub const SETTLED: Duration = Duration::from_secs(20);

/// Number of rows that one statement removes.
const BATCH: i64 = 500;

const NEWEST: &str = "-- store::erasure::erasure
    select tenant_id, asked_at, asked_by, done_at, sessions, blobs, blob_bytes, keys
      from tenant_deletions where tenant_id = $1 order by asked_at desc limit 1";

/// A tenant whose deletion is in progress or ended recently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    pub tenant: TenantId,
    /// Whether nothing of the tenant is left. Later data belongs to a new tenant with the same id.
    pub is_done: bool,
}

/// The rows that a deletion removes in addition to sessions and session rows, by table.
struct Erasure {
    /// The tables, in an order in which no remaining row refers to a removed one.
    tables: &'static [&'static str],
    /// For each table, the statements that remove a batch of a tenant's rows and, if required, count them first. They
    /// do nothing until the tenant has no session and its calls have been rejected for long enough.
    batches: &'static [&'static [&'static str]],
    /// Ends the deletion, if in one snapshot no table has rows of the tenant.
    end: &'static str,
}

/// The next rows of a tenant in a table.
macro_rules! batch {
    ($table:literal, $what:literal $(by $order:literal)?) => {
        concat!(
            "select ", $what, " from tenant_deletions d join ", $table, " x on x.tenant_id = d.tenant_id
              where d.tenant_id = $1 and d.done_at is null and d.asked_at < now() - make_interval(secs => $3)
                and not exists (select from session_run r where r.tenant_id = $1)", $(" order by x.", $order,)? " limit $2"
        )
    };
}

macro_rules! erasure {
    ($($table:literal $(counting $sums:literal adding $counts:literal by $order:literal)?);+ $(;)?) => {
        Erasure {
            tables: &[$($table),+],
            batches: &[$(&[
                $(concat!(
                    "-- store::erasure::count ", $table, "
                     update tenant_deletions d set ", $counts, "
                       from (select count(*) as number, ", $sums, " from (", batch!($table, "x.*" by $order), ") x) gone
                      where d.tenant_id = $1 and d.done_at is null and gone.number > 0"
                ),)?
                concat!(
                    "-- store::erasure::erase ", $table, "
                     delete from ", $table, " where ctid = any(array(", batch!($table, "x.ctid" $(by $order)?), ")) returning 1"
                )
            ]),+],
            end: concat!(
                "-- store::erasure::end_erasure
                 update tenant_deletions d set done_at = now(), worker = null
                  where d.tenant_id = $1 and d.done_at is null and d.asked_at < now() - make_interval(secs => $2)
                    and not exists (select from sessions x where x.tenant_id = $1)
                    and not exists (select from session_run x where x.tenant_id = $1)",
                $(" and not exists (select from ", $table, " x where x.tenant_id = $1)",)+
                " returning 1"
            ),
        }
    };
}

/// Tables of session data are included because some of their rows outlast the session.
const ERASURE: Erasure = erasure! {
    "attendance"; "partial_chunks"; "part_blobs"; "past_prunes"; "parts"; "messages"; "tool_calls"; "queue"; "events"; "turns";
    "compactions"; "usage_totals"; "session_revisions"; "session_activity"; "idempotency"; "toolsets"; "blob_chunks";
    "blobs" counting "sum(x.size_bytes) as bytes" adding "blobs = d.blobs + gone.number, blob_bytes = d.blob_bytes + gone.bytes" by "blob_id";
    "tenant_calibration"; "tenant_limits"; "tenant_running"; "tenant_use";
    "api_keys" counting "0 as bytes" adding "keys = d.keys + gone.number" by "key_id";
};

/// Returns the tables from which a deletion removes the tenant's rows.
#[doc(hidden)]
pub fn tables() -> Vec<&'static str> {
    let sessions = ["sessions", "session_run"];
    sessions.into_iter().chain(ERASURE.tables.iter().copied()).collect()
}

impl Store {
    /// Begins the deletion of a tenant and revokes its keys, unless a deletion is in progress. Returns the deletion.
    pub async fn begin_erasure(&self, tenant: &TenantId, asked_by: &str) -> Result<TenantDeletion, Error> {
        const BEGIN: &str = "-- store::erasure::begin
            insert into tenant_deletions (tenant_id, asked_by) values ($1, $2)
            on conflict (tenant_id) where done_at is null do nothing";
        const REVOKE: &str = "-- store::erasure::revoke
            update api_keys set revoked_at = now() where tenant_id = $1 and revoked_at is null";
        let id = tenant.as_str();
        let begin = [
            Query::new(quota::NEXT_VERSION, []),
            Query::new(api_key::NEXT_VERSION, []),
            Query::new(BEGIN, [&id as Param<'_>, &asked_by]),
            Query::new(REVOKE, [&id as Param<'_>]),
            Query::new(NEWEST, [&id as Param<'_>]),
        ];
        let answers = self.database.transact(&begin).await?;
        let row = answers.last().and_then(|rows| rows.first());
        deletion(row.ok_or_else(|| Error::Corrupt("the deletion of a tenant is missing".to_owned()))?)
    }

    /// Returns an error if the tenant is being deleted, or was deleted since the call was admitted. Used to explain why
    /// a statement created nothing.
    pub(super) async fn check_tenant(&self, tenant: &str) -> Result<(), Error> {
        const SQL: &str = "-- store::erasure::check_tenant
            select 1 from tenant_deletions d where d.tenant_id = $1 and (d.done_at is null or d.done_at > $2)";
        let known_at = AdmittedAt::current();
        let params: [Param<'_>; 2] = [&tenant, &known_at];
        let found = self.database.read(SQL, &params).await?;
        if found.is_empty() { Ok(()) } else { Err(Error::TenantDeleted(TenantId::new(tenant))) }
    }

    /// Reads the newest deletion of a tenant. Returns `None` if it was never deleted.
    pub async fn erasure(&self, tenant: &TenantId) -> Result<Option<TenantDeletion>, Error> {
        let rows = self.database.read(NEWEST, &[&tenant.as_str()]).await?;
        rows.first().map(deletion).transpose()
    }

    /// Lists the deletions in progress and those that ended after `since`.
    pub async fn erasures(&self, since: Option<Timestamp>) -> Result<Vec<Erased>, Error> {
        const SQL: &str = "-- store::erasure::erasures
            select tenant_id, done_at is not null as is_done from tenant_deletions where done_at is null or done_at > $1";
        let rows = self.reserved().read(SQL, &[&since]).await?;
        let erased = |row: &Row| {
            Ok(Erased { tenant: TenantId::new(get::<String>(row, "tenant_id")?), is_done: get(row, "is_done")? })
        };
        rows.iter().map(erased).collect()
    }

    /// Acquires the lease of a deletion, or renews it if this replica holds it. Returns false if another replica holds
    /// it or the deletion is complete.
    pub async fn hold_erasure(&self, tenant: &TenantId) -> Result<bool, Error> {
        const SQL: &str = "-- store::erasure::hold
            update tenant_deletions set worker = $2, worker_until = now() + make_interval(secs => $3)
             where tenant_id = $1 and done_at is null and (worker = $2 or worker_until < now())
            returning 1";
        let tenant = tenant.as_str();
        let lease = self.lease_ttl.as_secs_f64();
        let params: [Param<'_>; 3] = [&tenant, &self.replica, &lease];
        let rows = self.database.write(&Query::new(SQL, params)).await?;
        Ok(!rows.is_empty())
    }

    /// Lists at most `limit` sessions of a tenant that is being deleted.
    pub async fn sessions_to_erase(&self, tenant: &TenantId, limit: u32) -> Result<Vec<SessionKey>, Error> {
        const SQL: &str = "-- store::erasure::sessions_to_erase
            select tenant_id, session_id from sessions where tenant_id = $1 order by session_id limit $2";
        self.of_tenant(SQL, tenant, limit).await
    }

    /// Lists at most `limit` deleted sessions of a tenant that clients no longer need to follow.
    pub async fn sessions_to_purge(&self, tenant: &TenantId, limit: u32) -> Result<Vec<SessionKey>, Error> {
        const SQL: &str = "-- store::erasure::sessions_to_purge
            select tenant_id, session_id from session_run
             where tenant_id = $1 and state = 3 and lease_until < now() order by session_id limit $2";
        self.of_tenant(SQL, tenant, limit).await
    }

    async fn of_tenant(&self, sql: &'static str, tenant: &TenantId, limit: u32) -> Result<Vec<SessionKey>, Error> {
        let limit = i64::from(limit);
        let tenant = tenant.as_str();
        let rows = self.database.read(sql, &[&tenant, &limit]).await?;
        rows.iter().map(session_key).collect()
    }

    /// Removes the tenant's rows other than sessions, in batches, each in a separate transaction. Does nothing until
    /// the tenant has no session and its calls have been rejected for [`SETTLED`].
    pub async fn erase(&self, tenant: &TenantId) -> Result<(), Error> {
        let tenant = tenant.as_str();
        let settled = SETTLED.as_secs_f64();
        for batch in ERASURE.batches {
            let params: [Param<'_>; 3] = [&tenant, &BATCH, &settled];
            let batch: Vec<_> = batch.iter().map(|sql| Query::new(sql, params)).collect();
            while let answers = self.database.transact(&batch).await?
                && answers.last().is_some_and(|rows| !rows.is_empty())
            {}
        }
        Ok(())
    }

    /// Ends a deletion if nothing of the tenant is left. Returns false if something is left or it is too early.
    pub async fn end_erasure(&self, tenant: &TenantId) -> Result<bool, Error> {
        let tenant = tenant.as_str();
        let settled = SETTLED.as_secs_f64();
        let end = [Query::new(quota::NEXT_VERSION, []), Query::new(ERASURE.end, [&tenant as Param<'_>, &settled])];
        let answers = self.database.transact(&end).await?;
        Ok(answers.last().is_some_and(|rows| !rows.is_empty()))
    }
}

fn deletion(row: &Row) -> Result<TenantDeletion, Error> {
    let number = |column| -> Result<u64, Error> { Ok(get::<i64>(row, column)?.unsigned_abs()) };
    Ok(TenantDeletion {
        tenant: TenantId::new(get::<String>(row, "tenant_id")?),
        requested_at: get(row, "asked_at")?,
        requested_by: get(row, "asked_by")?,
        done_at: get::<Option<Timestamp>>(row, "done_at")?,
        sessions: number("sessions")?,
        blobs: number("blobs")?,
        blob_bytes: number("blob_bytes")?,
        keys: number("keys")?,
    })
}
