//! The limits of tenants, and what they use of them, as replicas tell each other.

use std::{collections::BTreeMap, time::Duration};

use tokio_postgres::Row;

use super::{
    Error, Store,
    pipeline::{Param, Query},
    row::get,
};
use crate::model::{TenantId, TenantLimits};

pub(super) const NEXT_VERSION: &str = "-- store::quota::next_version
    update tenant_limits_version set version = version + 1";

/// What a tenant uses, by all replicas' account.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Used {
    /// Turns that run on other replicas.
    pub running_elsewhere: u64,
    /// How long it takes until the tokens that were spent are paid for.
    pub tokens_owed: Duration,
    /// Bytes stored, once they were measured.
    pub stored_bytes: Option<u64>,
}

impl Store {
    /// A number that is another one after each change of any tenant's limits.
    pub async fn limits_version(&self) -> Result<i64, Error> {
        const SQL: &str = "-- store::quota::limits_version
            select version from tenant_limits_version";
        let rows = self.aside().read(SQL, &[]).await?;
        let row = rows.first();
        get(
            row.ok_or_else(|| Error::Corrupt("the version of limits is not there".to_owned()))?,
            "version",
        )
    }

    /// The limits of all tenants that have their own.
    pub async fn tenant_limits(&self) -> Result<Vec<(TenantId, TenantLimits)>, Error> {
        const SQL: &str = "-- store::quota::tenant_limits
            select tenant_id, running_turns, requests_per_second, tokens_per_minute, stored_bytes from tenant_limits";
        let rows = self.aside().read(SQL, &[]).await?;
        rows.iter()
            .map(|row| Ok((tenant(row)?, limits(row)?)))
            .collect()
    }

    /// Sets a tenant's own limits. Where there is none, the server's holds. What it owes was at the
    /// old rate: it is forgiven.
    pub async fn set_tenant_limits(
        &self,
        tenant: &TenantId,
        limits: &TenantLimits,
    ) -> Result<(), Error> {
        const SQL: &str = "-- store::quota::set_tenant_limits
            insert into tenant_limits (tenant_id, running_turns, requests_per_second, tokens_per_minute, stored_bytes)
            values ($1, $2, $3, $4, $5)
            on conflict (tenant_id) do update
               set running_turns = excluded.running_turns, requests_per_second = excluded.requests_per_second,
                   tokens_per_minute = excluded.tokens_per_minute, stored_bytes = excluded.stored_bytes, updated_at = now()";
        const FORGIVE: &str = "-- store::quota::forgive
            update tenant_use set tokens_due = '-infinity' where tenant_id = $1";
        let TenantLimits {
            running_turns,
            requests_per_second,
            tokens_per_minute,
            stored_bytes,
        } = *limits;
        let numbers = [
            running_turns,
            requests_per_second,
            tokens_per_minute,
            stored_bytes,
        ];
        let numbers = numbers.map(|limit| limit.map(number));
        let tenant = tenant.as_str();
        let mut params: Vec<Param<'_>> = vec![&tenant];
        params.extend(numbers.iter().map(|limit| limit as Param<'_>));
        let change = [
            Query::new(NEXT_VERSION, []),
            Query::new(SQL, params),
            Query::new(FORGIVE, [&tenant as Param<'_>]),
        ];
        self.database.transact(&change).await.map(drop)
    }

    /// Tells other replicas how many turns of these tenants run here, and how long the tokens that
    /// each spent since the last time take to be paid for.
    pub async fn report_use(
        &self,
        running: &BTreeMap<TenantId, u64>,
        spent: &BTreeMap<TenantId, Duration>,
    ) -> Result<(), Error> {
        const GONE: &str = "-- store::quota::report_gone: its own that run no more, and those of replicas that are gone
            delete from tenant_running
             where (replica_id = $1 and tenant_id <> all($2::text[])) or at < now() - interval '1 minute'";
        const RUNNING: &str = "-- store::quota::report_running
            insert into tenant_running (tenant_id, replica_id, turns)
            select u.tenant, $1, u.turns from unnest($2::text[], $3::bigint[]) as u(tenant, turns) order by u.tenant
            on conflict (tenant_id, replica_id) do update set turns = excluded.turns, at = now()";
        const SPENT: &str = "-- store::quota::report_spent
            insert into tenant_use as known (tenant_id, tokens_due)
            select u.tenant, now() + make_interval(secs => u.seconds) from unnest($1::text[], $2::float8[]) as u(tenant, seconds)
             order by u.tenant
            on conflict (tenant_id) do update
               set tokens_due = greatest(known.tokens_due, now()) + (excluded.tokens_due - now())";
        let replica = self.replica.as_str();
        let tenants: Vec<&str> = running.keys().map(TenantId::as_str).collect();
        let turns: Vec<i64> = running.values().copied().map(number).collect();
        let spenders: Vec<&str> = spent.keys().map(TenantId::as_str).collect();
        let seconds: Vec<f64> = spent.values().map(Duration::as_secs_f64).collect();
        let mut report = vec![Query::new(GONE, [&replica as Param<'_>, &tenants])];
        if !running.is_empty() {
            let params: [Param<'_>; 3] = [&replica, &tenants, &turns];
            report.push(Query::new(RUNNING, params));
        }
        if !spent.is_empty() {
            report.push(Query::new(SPENT, [&spenders as Param<'_>, &seconds]));
        }
        self.aside().transact(&report).await.map(drop)
    }

    /// What these tenants use. Replicas that have not reported for 10 seconds do not count.
    pub async fn tenant_use(&self, tenants: &[&str]) -> Result<BTreeMap<TenantId, Used>, Error> {
        const SQL: &str = "-- store::quota::tenant_use
            select t.tenant_id, u.stored_bytes,
                   coalesce(extract(epoch from greatest(u.tokens_due, now()) - now()), 0)::float8 as owed,
                   (select coalesce(sum(r.turns), 0)::bigint from tenant_running r
                     where r.tenant_id = t.tenant_id and r.replica_id <> $2 and r.at > now() - interval '10 seconds') as elsewhere
              from unnest($1::text[]) as t(tenant_id) left join tenant_use u on u.tenant_id = t.tenant_id";
        let replica = self.replica.as_str();
        let rows = self.aside().read(SQL, &[&tenants, &replica]).await?;
        rows.iter()
            .map(|row| {
                let owed: f64 = get(row, "owed")?;
                let used = Used {
                    running_elsewhere: get::<i64>(row, "elsewhere")?.unsigned_abs(),
                    tokens_owed: Duration::try_from_secs_f64(owed).unwrap_or(Duration::MAX),
                    stored_bytes: get::<Option<i64>>(row, "stored_bytes")?.map(i64::unsigned_abs),
                };
                Ok((tenant(row)?, used))
            })
            .collect()
    }

    /// The tenants among these that were not measured within that time, which are now this replica's
    /// to measure.
    pub async fn claim_measuring(
        &self,
        tenants: &[&str],
        every: Duration,
    ) -> Result<Vec<TenantId>, Error> {
        const SQL: &str = "-- store::quota::claim_measuring
            insert into tenant_use as known (tenant_id, measured_at)
            select u.tenant, now() from unnest($1::text[]) as u(tenant) order by u.tenant
            on conflict (tenant_id) do update set measured_at = now()
             where known.measured_at < now() - make_interval(secs => $2)
            returning tenant_id";
        let every = every.as_secs_f64();
        let params: Vec<Param<'_>> = vec![&tenants, &every];
        let rows = self.aside().write(&Query::new(SQL, params)).await?;
        rows.iter().map(tenant).collect()
    }

    /// Measures what a tenant has stored: its blobs, messages, events and queued messages. Reads
    /// lengths, which the rows hold; a gigabyte of text in parts of 1 KB takes seconds.
    pub async fn measure_storage(&self, tenant: &TenantId) -> Result<(), Error> {
        const SQL: &str = "-- store::quota::measure_storage
            update tenant_use
               set stored_bytes =
                   (select coalesce(sum(size_bytes), 0) from blobs where tenant_id = $1)
                 + (select coalesce(sum(octet_length(body) + coalesce(octet_length(rest), 0)), 0) from parts where tenant_id = $1)
                 + (select coalesce(sum(octet_length(info)), 0) from messages where tenant_id = $1)
                 + (select coalesce(sum(octet_length(payload)), 0) from events where tenant_id = $1)
                 + (select coalesce(sum(octet_length(body)), 0) from queue where tenant_id = $1)
             where tenant_id = $1";
        let tenant = tenant.as_str();
        let params: Vec<Param<'_>> = vec![&tenant];
        self.database
            .write(&Query::new(SQL, params))
            .await
            .map(drop)
    }
}

fn tenant(row: &Row) -> Result<TenantId, Error> {
    Ok(TenantId::new(get::<String>(row, "tenant_id")?))
}

fn limits(row: &Row) -> Result<TenantLimits, Error> {
    let limit = |column| -> Result<Option<u64>, Error> {
        Ok(get::<Option<i64>>(row, column)?.map(i64::unsigned_abs))
    };
    Ok(TenantLimits {
        running_turns: limit("running_turns")?,
        requests_per_second: limit("requests_per_second")?,
        tokens_per_minute: limit("tokens_per_minute")?,
        stored_bytes: limit("stored_bytes")?,
    })
}

/// As the database has numbers; none of these is larger.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
