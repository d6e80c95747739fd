//! Limits of tenants and their use, exchanged between replicas through the database.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    AdmittedAt, Error, Store,
    admitted::Read,
    named_parameters::Named,
    pipeline::{Param, Query},
    row::{get, tenant_id},
};
use crate::model::{TenantId, TenantLimits};

pub(super) const NEXT_VERSION: &str = "-- store::quota::next_version
    update tenant_limits_version set version = version + 1";

/// How long the report of a replica counts.
const MAX_REPORT_AGE: Duration = Duration::from_secs(10);
/// How long the report of a replica that is gone is kept.
const REPORT_RETENTION: Duration = Duration::from_mins(1);

static USE: LazyLock<Named> = named_alone!("sql/tenants/use.sql");
static LIMIT: LazyLock<Named> = named_alone!("sql/tenants/limit.sql");
static SPENT: LazyLock<Named> = named_alone!("sql/tenants/spent.sql");

/// The use of a tenant, as reported by all replicas.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Used {
    /// Running turns on other replicas.
    pub running_elsewhere: u64,
    /// Expected cost of the model calls in progress on other replicas.
    pub reserved_elsewhere: Duration,
    /// Time until the spent tokens are within the rate limit.
    pub tokens_owed: Duration,
    /// Stored bytes at the last measurement plus bytes written since. `None` if never measured.
    pub stored_bytes: Option<u64>,
    /// Bytes written since the last measurement, or since counting began.
    pub written_bytes: u64,
}

impl Store {
    /// Reads a version number that changes with every change of a tenant's limits and with every deletion.
    pub async fn limits_version(&self) -> Result<(i64, Read), Error> {
        const SQL: &str = "-- store::quota::limits_version
            select version, now() as at from tenant_limits_version";
        self.read_version(SQL, "limits").await
    }

    /// Reads the limits of all tenants that have their own.
    pub async fn tenant_limits(&self) -> Result<Vec<(TenantId, TenantLimits)>, Error> {
        const SQL: &str = "-- store::quota::tenant_limits
            select tenant_id, running_turns, requests_per_second, tokens_per_minute, stored_bytes from tenant_limits";
        let rows = self.reserved().read(SQL, &[]).await?;
        rows.iter().map(|row| Ok((tenant_id(row)?, limits(row)?))).collect()
    }

    /// Sets a tenant's own limits. The server's default is used for limits that are not set. Tokens owed at the old
    /// rate are forgiven.
    pub async fn set_tenant_limits(&self, tenant: &TenantId, limits: &TenantLimits) -> Result<(), Error> {
        const FORGIVE: &str = "-- store::quota::forgive
            update tenant_use set tokens_due = '-infinity' where tenant_id = $1";
        let TenantLimits { running_turns, requests_per_second, tokens_per_minute, stored_bytes } = *limits;
        let numbers = [running_turns, requests_per_second, tokens_per_minute, stored_bytes];
        let numbers = numbers.map(|limit| limit.map(number));
        let tenant = tenant.as_str();
        let [running, requests, tokens, bytes] = &numbers;
        let known_at = AdmittedAt::current();
        let limit = LIMIT.query(&[
            ("tenant", &tenant),
            ("running_turns", running),
            ("requests_per_second", requests),
            ("tokens_per_minute", tokens),
            ("stored_bytes", bytes),
            ("known_at", &known_at),
        ])?;
        let change = [Query::new(NEXT_VERSION, []), limit, Query::new(FORGIVE, [&tenant as Param<'_>])];
        let answers = self.database.transact(&change).await?;
        if answers.get(1).is_none_or(Vec::is_empty) {
            self.check_tenant(tenant).await?;
        }
        Ok(())
    }

    /// Reports this replica's use: running turns and the expected cost of model calls in progress per tenant, and the
    /// cost of tokens spent since the last report. `known_at` is when deletions were read.
    pub async fn report_use(
        &self,
        known_at: Option<Timestamp>,
        running: &BTreeMap<TenantId, (u64, Duration)>,
        spent: &BTreeMap<TenantId, Duration>,
    ) -> Result<(), Error> {
        const GONE: &str = "-- store::quota::report_gone: its own that run no more, and those of replicas that are gone
            delete from tenant_running
             where (replica_id = $1 and tenant_id <> all($2::text[])) or at < now() - make_interval(secs => $3)";
        const RUNNING: &str = "-- store::quota::report_running
            insert into tenant_running (tenant_id, replica_id, turns, reserved_seconds)
            select u.tenant, $1, u.turns, u.reserved from unnest($2::text[], $3::bigint[], $4::float8[]) as u(tenant, turns, reserved)
             where exists (select from sessions s where s.tenant_id = u.tenant)
             order by u.tenant
            on conflict (tenant_id, replica_id) do update
               set turns = excluded.turns, reserved_seconds = excluded.reserved_seconds, at = now()";
        let replica = self.replica.as_str();
        let tenants: Vec<&str> = running.keys().map(TenantId::as_str).collect();
        let turns: Vec<i64> = running.values().map(|(turns, _)| number(*turns)).collect();
        let reserved: Vec<f64> = running.values().map(|(_, reserved)| reserved.as_secs_f64()).collect();
        let spenders: Vec<&str> = spent.keys().map(TenantId::as_str).collect();
        let seconds: Vec<f64> = spent.values().map(Duration::as_secs_f64).collect();
        let gone: [Param<'_>; 3] = [&replica, &tenants, &REPORT_RETENTION.as_secs_f64()];
        let mut report = vec![Query::new(GONE, gone)];
        if !running.is_empty() {
            let params: [Param<'_>; 4] = [&replica, &tenants, &turns, &reserved];
            report.push(Query::new(RUNNING, params));
        }
        if !spent.is_empty() {
            report.push(SPENT.query(&[("tenants", &spenders), ("seconds", &seconds), ("known_at", &known_at)])?);
        }
        self.reserved().transact(&report).await.map(drop)
    }

    /// Reads the use of these tenants. Replicas that have not reported for some seconds are ignored.
    pub async fn tenant_use(&self, tenants: &[&str]) -> Result<BTreeMap<TenantId, Used>, Error> {
        let age = MAX_REPORT_AGE.as_secs_f64();
        let values: [(&str, Param<'_>); 3] = [("tenants", &tenants), ("replica", &self.replica), ("age", &age)];
        let rows = self.reserved().read_named(&USE, &values).await?;
        rows.iter()
            .map(|row| {
                let used = Used {
                    running_elsewhere: get::<i64>(row, "turns")?.unsigned_abs(),
                    reserved_elsewhere: seconds(get(row, "reserved")?),
                    tokens_owed: seconds(get(row, "owed")?),
                    stored_bytes: get::<Option<i64>>(row, "stored_bytes")?.map(at_least_none),
                    written_bytes: at_least_none(get(row, "written_bytes")?),
                };
                Ok((tenant_id(row)?, used))
            })
            .collect()
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// A count that corrections may have made negative, as at least 0.
fn at_least_none(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or_default()
}

fn limits(row: &Row) -> Result<TenantLimits, Error> {
    let limit = |column| -> Result<Option<u64>, Error> { Ok(get::<Option<i64>>(row, column)?.map(i64::unsigned_abs)) };
    Ok(TenantLimits {
        running_turns: limit("running_turns")?,
        requests_per_second: limit("requests_per_second")?,
        tokens_per_minute: limit("tokens_per_minute")?,
        stored_bytes: limit("stored_bytes")?,
    })
}

/// As a column value. None of these numbers exceeds the maximum.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
