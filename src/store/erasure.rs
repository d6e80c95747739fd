//! The deletion of a tenant: asked for in one transaction, done in batches by whichever replica
//! holds it, so that any of them goes on where another one stopped.
//!
//! Sessions end as sessions do (`delete.rs`). What carries the tenant otherwise goes when there is
//! no session any more, and not before every replica refuses the tenant's calls.

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

/// So long after it was asked for every replica refuses the tenant's calls (none admits calls by what
/// it read longer than 10 s ago), and what was under way then has ended: a statement runs for 10 s at
/// most by default.
pub const SETTLED: Duration = Duration::from_secs(20);

/// Rows that one statement removes.
const BATCH: i64 = 500;

const NEWEST: &str = "-- store::erasure::erasure
    select tenant_id, asked_at, asked_by, done_at, sessions, blobs, blob_bytes, keys
      from tenant_deletions where tenant_id = $1 order by asked_at desc limit 1";

/// A tenant whose deletion goes on, or ended lately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    /// The tenant.
    pub tenant: TenantId,
    /// Nothing of it is left; whatever comes now is another tenant's.
    pub is_done: bool,
}

/// What a deletion removes beside sessions and their hot rows, table by table.
struct Erasure {
    /// The tables, in an order in which nothing that is left refers to what is gone.
    tables: &'static [&'static str],
    /// For each the statement that removes a batch of a tenant's rows, when it has no session any
    /// more and its calls have long been refused.
    batches: &'static [&'static str],
    /// Ends the deletion, if one snapshot has nothing of the tenant in any table.
    end: &'static str,
}

macro_rules! erasure {
    ($($table:literal $(returning $gone:literal adding $counts:literal)?);+ $(;)?) => {
        Erasure {
            tables: &[$($table),+],
            batches: &[$(concat!(
                "-- store::erasure::erase ", $table, "
                 with gone as (
                   delete from ", $table, " where ctid = any(array(
                     select x.ctid from tenant_deletions d join ", $table, " x on x.tenant_id = d.tenant_id
                      where d.tenant_id = $1 and d.done_at is null and d.asked_at < now() - make_interval(secs => $3)
                        and not exists (select from session_run r where r.tenant_id = $1) limit $2))
                   returning 1", $(", ", $gone,)? ")",
                $(", counted as (
                   update tenant_deletions d set ", $counts, "
                    where d.tenant_id = $1 and d.done_at is null and exists (select from gone))",)?
                " select 1 from gone"
            )),+],
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

/// Of what belongs to sessions only that is found here which outlasts them.
const ERASURE: Erasure = erasure! {
    "attendance"; "partial_chunks"; "part_blobs"; "past_prunes"; "parts"; "messages"; "tool_calls"; "queue"; "events"; "turns";
    "compactions"; "usage_totals"; "session_revisions"; "session_activity"; "idempotency"; "toolsets"; "blob_chunks";
    "blobs" returning "size_bytes"
        adding "blobs = d.blobs + (select count(*) from gone), blob_bytes = d.blob_bytes + (select sum(size_bytes) from gone)";
    "tenant_calibration"; "tenant_limits"; "tenant_running"; "tenant_use";
    "api_keys" returning "key_id" adding "keys = d.keys + (select count(*) from gone)";
};

/// The tables that a deletion empties of a tenant.
#[doc(hidden)]
pub fn tables() -> Vec<&'static str> {
    let sessions = ["sessions", "session_run"];
    sessions
        .into_iter()
        .chain(ERASURE.tables.iter().copied())
        .collect()
}

impl Store {
    /// Begins the deletion of a tenant, unless one goes on: its keys are revoked. The deletion.
    pub async fn begin_erasure(
        &self,
        tenant: &TenantId,
        asked_by: &str,
    ) -> Result<TenantDeletion, Error> {
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
        deletion(row.ok_or_else(|| Error::Corrupt("a deletion is not there".to_owned()))?)
    }

    /// An error if the tenant is being deleted, or was since the call was admitted: why a statement
    /// created nothing.
    pub(super) async fn check_tenant(&self, tenant: &str) -> Result<(), Error> {
        const SQL: &str = "-- store::erasure::check_tenant
            select 1 from tenant_deletions d where d.tenant_id = $1 and (d.done_at is null or d.done_at > $2)";
        let known_at = AdmittedAt::current();
        let params: [Param<'_>; 2] = [&tenant, &known_at];
        let found = self.database.read(SQL, &params).await?;
        if found.is_empty() {
            Ok(())
        } else {
            Err(Error::TenantDeleted(TenantId::new(tenant)))
        }
    }

    /// The newest deletion of a tenant. `None`: it was never deleted.
    pub async fn erasure(&self, tenant: &TenantId) -> Result<Option<TenantDeletion>, Error> {
        let rows = self.database.read(NEWEST, &[&tenant.as_str()]).await?;
        rows.first().map(deletion).transpose()
    }

    /// The deletions of tenants that go on, and those that ended after that.
    pub async fn erasures(&self, since: Option<Timestamp>) -> Result<Vec<Erased>, Error> {
        const SQL: &str = "-- store::erasure::erasures
            select tenant_id, done_at is not null as is_done from tenant_deletions where done_at is null or done_at > $1";
        let rows = self.aside().read(SQL, &[&since]).await?;
        let erased = |row: &Row| {
            Ok(Erased {
                tenant: TenantId::new(get::<String>(row, "tenant_id")?),
                is_done: get(row, "is_done")?,
            })
        };
        rows.iter().map(erased).collect()
    }

    /// Takes a deletion for one lease, or longer if it is this replica's. False: another one has
    /// it, or it is done.
    pub async fn hold_erasure(&self, tenant: &TenantId) -> Result<bool, Error> {
        const SQL: &str = "-- store::erasure::hold
            update tenant_deletions set worker = $2, worker_until = now() + make_interval(secs => $3)
             where tenant_id = $1 and done_at is null and (worker = $2 or worker_until < now())
            returning 1";
        let tenant = tenant.as_str();
        let lease = self.lease.as_secs_f64();
        let params: [Param<'_>; 3] = [&tenant, &self.replica, &lease];
        let rows = self.database.write(&Query::new(SQL, params)).await?;
        Ok(!rows.is_empty())
    }

    /// Sessions of a tenant that is being deleted, at most so many.
    pub async fn sessions_to_erase(
        &self,
        tenant: &TenantId,
        limit: u32,
    ) -> Result<Vec<SessionKey>, Error> {
        const SQL: &str = "-- store::erasure::sessions_to_erase
            select tenant_id, session_id from sessions where tenant_id = $1 order by session_id limit $2";
        self.of_tenant(SQL, tenant, limit).await
    }

    /// Deleted sessions of a tenant that are not followed any more, at most so many.
    pub async fn sessions_to_purge(
        &self,
        tenant: &TenantId,
        limit: u32,
    ) -> Result<Vec<SessionKey>, Error> {
        const SQL: &str = "-- store::erasure::sessions_to_purge
            select tenant_id, session_id from session_run
             where tenant_id = $1 and state = 3 and lease_until < now() order by session_id limit $2";
        self.of_tenant(SQL, tenant, limit).await
    }

    async fn of_tenant(
        &self,
        sql: &'static str,
        tenant: &TenantId,
        limit: u32,
    ) -> Result<Vec<SessionKey>, Error> {
        let limit = i64::from(limit);
        let tenant = tenant.as_str();
        let rows = self.database.read(sql, &[&tenant, &limit]).await?;
        rows.iter().map(session_key).collect()
    }

    /// Removes what a tenant has beside sessions, in batches, each a transaction of its own, once it
    /// has no session and its calls have long been refused; until then nothing.
    pub async fn erase(&self, tenant: &TenantId) -> Result<(), Error> {
        let tenant = tenant.as_str();
        let settled = SETTLED.as_secs_f64();
        for batch in ERASURE.batches {
            let params: [Param<'_>; 3] = [&tenant, &BATCH, &settled];
            let batch = Query::new(batch, params);
            while !self.database.write(&batch).await?.is_empty() {}
        }
        Ok(())
    }

    /// Ends a deletion if nothing of the tenant is left. False: something is, or it is too early.
    pub async fn end_erasure(&self, tenant: &TenantId) -> Result<bool, Error> {
        let tenant = tenant.as_str();
        let settled = SETTLED.as_secs_f64();
        let end = [
            Query::new(quota::NEXT_VERSION, []),
            Query::new(ERASURE.end, [&tenant as Param<'_>, &settled]),
        ];
        let answers = self.database.transact(&end).await?;
        Ok(answers.last().is_some_and(|rows| !rows.is_empty()))
    }
}

fn deletion(row: &Row) -> Result<TenantDeletion, Error> {
    let number = |column| -> Result<u64, Error> { Ok(get::<i64>(row, column)?.unsigned_abs()) };
    Ok(TenantDeletion {
        tenant: TenantId::new(get::<String>(row, "tenant_id")?),
        asked_at: get(row, "asked_at")?,
        asked_by: get(row, "asked_by")?,
        done_at: get::<Option<Timestamp>>(row, "done_at")?,
        sessions: number("sessions")?,
        blobs: number("blobs")?,
        blob_bytes: number("blob_bytes")?,
        keys: number("keys")?,
    })
}
