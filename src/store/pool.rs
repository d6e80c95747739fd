//! The connection pools of one process, and how connections are opened.

use std::{
    borrow::Cow,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use deadpool_postgres::{ClientWrapper, Manager, ManagerConfig, Object, RecyclingMethod};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    Error, Reach,
    connection_guard::{Cleanup, ConnectionGuard, Operation},
    connections::{Connections, PoolLimits, PooledConnection},
    database_tls,
    row::get,
    standby::Standby,
    statement::Statements,
    written_bytes::WrittenBytes,
};
use crate::{
    config::DatabaseConfig,
    model::TenantId,
    telemetry::metrics::{Metrics, PoolStatus},
};

/// Connections in addition to the pool, for work that must not wait behind requests: heartbeats, polls, readiness.
const RESERVED: usize = 2;
/// Time allowed for a response in addition to the statement timeout, before the connection is closed.
const RESPONSE_TIMEOUT_MARGIN: Duration = Duration::from_secs(2);

/// Maximum time that a transaction may be idle.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);
/// How long a statement waits for one lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// TCP user timeout: how long sent data may remain unacknowledged.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
/// TCP keepalive: idle time before the first probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// TCP keepalive: interval between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// TCP keepalive: number of unanswered probes before the connection is closed.
const PROBES: u32 = 3;

/// The address of a database and the login role.
pub type Connection = tokio_postgres::Config;

/// How a database is accessed.
#[derive(Debug, Clone, Copy)]
struct Access<'a> {
    /// Address and login role.
    connection: &'a Connection,
    config: &'a DatabaseConfig,
    /// How long a replica's lease lasts. A connection that is idle in a transaction is closed before.
    lease_ttl: Duration,
}

/// The role in which statements run.
#[derive(Debug, Clone, Copy)]
enum Role {
    /// The login role.
    Login,
    /// The role for the service's own work, by its name in `row_security.sql`.
    Worker,
    /// The role for work on behalf of tenants.
    Tenant,
}

/// The plan cache mode; see [`connection_config`].
const PLAN_CACHE_MODE: &str = "force_generic_plan";
/// A statement that checks whether the database responds.
pub(super) const PING: &str = "-- store::ping\nselect 1";
/// Number of connections for the service's own work, if tenants have separate connections.
const WORKERS: usize = 4;

/// Replaces the statements of a transaction, for tests.
type Rewrite = dyn Fn(&[&'static str]) -> Vec<&'static str> + Send + Sync;

/// The connection pools for one database, including a small one for work that must not wait.
#[derive(Clone)]
pub struct Database {
    /// For all work; with row security, only for the service's own work.
    pool: Connections,
    /// With row security: for work on behalf of tenants.
    tenant_pool: Option<Connections>,
    /// Connections of the owner of the schema.
    owner: Connections,
    reserved: Connections,
    /// How long to wait for the response to a statement or a transaction.
    pub(super) response_timeout: Duration,
    pub(super) statements: Statements,
    /// How to open a connection that listens. `None` with a transaction pooler.
    pub(super) listening: Option<(Connection, MakeRustlsConnect)>,
    /// TLS settings for cancel requests.
    cancelling: MakeRustlsConnect,
    rewrite: Option<Arc<Rewrite>>,
    /// Bytes written for tenants with a storage limit.
    pub(super) written: WrittenBytes,
    pub(super) metrics: Metrics,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("pools", &self.status()).finish_non_exhaustive()
    }
}

impl Database {
    /// Prepares the pools. Connections are opened on demand. `lease_ttl` is how long a lease lasts: the server closes a
    /// connection whose transaction has been idle for less than that.
    pub fn new(connection: &Connection, config: &DatabaseConfig, lease_ttl: Duration) -> Result<Self, Error> {
        let access = Access { connection, config, lease_ttl };
        let statements = if config.transaction_pooler { Statements::unnamed() } else { Statements::Named };
        let connections = |size, role| connections(access, size, role);
        let (pool, of_tenants, reserved) = if config.row_security {
            (
                connections((WORKERS, 1), Role::Worker)?,
                Some(connections((config.pool_size, 1), Role::Tenant)?),
                connections((RESERVED, 1), Role::Worker)?,
            )
        } else {
            (connections((config.pool_size, 1), Role::Login)?, None, connections((RESERVED, 1), Role::Login)?)
        };
        Ok(Self {
            pool: pool.with_spare(&reserved),
            tenant_pool: of_tenants,
            owner: connections((1, 0), Role::Login)?,
            reserved,
            response_timeout: config.statement_timeout + RESPONSE_TIMEOUT_MARGIN,
            statements,
            listening: match config.transaction_pooler {
                true => None,
                false => Some((connection_config(access, Role::Login), tls_connector(config)?)),
            },
            cancelling: tls_connector(config)?,
            rewrite: None,
            written: WrittenBytes::default(),
            metrics: Metrics::default(),
        })
    }

    /// Returns the same pools, with metrics enabled.
    #[must_use]
    pub fn metered(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// Returns the state of each pool.
    pub fn status(&self) -> Vec<PoolStatus> {
        let workers = self.tenant_pool.as_ref().map(|_| ("workers", &self.pool));
        let requests = ("requests", self.requests());
        let all = [requests, ("reserved", &self.reserved)];
        let all = all.into_iter().chain(workers);
        all.map(|(name, connections)| connections.status(name)).collect()
    }

    /// The connections for requests and turns.
    fn requests(&self) -> &Connections {
        self.tenant_pool.as_ref().unwrap_or(&self.pool)
    }

    /// Returns whether the database enforces that work for a tenant reaches only the tenant's rows.
    pub fn has_row_security(&self) -> bool {
        self.tenant_pool.is_some()
    }

    /// The tenant to set in the database before a statement. Returns `None` if none must be set.
    pub(super) fn tenant(&self) -> Result<Option<TenantId>, Error> {
        if !self.has_row_security() {
            return Ok(None);
        }
        match Reach::current() {
            Some(Reach::Tenant(tenant)) => Ok(Some(tenant)),
            Some(Reach::All) => Ok(None),
            None => Err(Error::NoRowSecurityScope),
        }
    }

    /// Whether a connection has the settings it was opened with. A pooler may be configured to ignore them.
    pub(super) async fn has_its_settings(&self) -> Result<bool, Error> {
        const SQL: &str = "-- store::pool::settings\nselect current_setting('plan_cache_mode')";
        match self.statements {
            Statements::Unnamed(_) => Ok(true),
            Statements::Named => {
                let rows = self.read(SQL, &[]).await?;
                let mode = rows.first().map(|row| get::<String>(row, "current_setting"));
                Ok(mode.transpose()?.as_deref() == Some(PLAN_CACHE_MODE))
            }
        }
    }

    /// Estimates how long a new request of a tenant would wait for a connection. Zero if one is free, or while
    /// connections are still being opened, as after a start.
    pub fn expected_wait(&self, tenant: &TenantId) -> Duration {
        self.requests().expected_wait(tenant)
    }

    /// Closes connections that were idle for too long.
    pub fn close_idle(&self) {
        let pools = [Some(&self.pool), self.tenant_pool.as_ref(), Some(&self.owner), Some(&self.reserved)];
        pools.into_iter().flatten().for_each(Connections::close_idle);
    }

    /// The time after which an idle connection is closed.
    pub(super) fn idle_timeout(&self) -> Duration {
        self.owner.limits.idle_timeout
    }

    /// Checks that the database responds on the connections for requests and turns. Returns [`Error::Busy`] if all of
    /// them are in use for this time.
    pub(super) async fn ping_requests(&self, within: Duration) -> Result<(), Error> {
        let requests = self.requests();
        let held = requests.get_within(within, &self.metrics).await?;
        let doing = Operation { statements: vec![PING], in_transaction: false };
        let lent = ConnectionGuard::new(held, self.settling(doing));
        let done = async {
            let asked = lent.connection()?.simple_query(PING);
            Ok(asked.await.map(drop)?)
        };
        let done = self.with_timeout(&lent, done).await;
        lent.give_back(done)
    }

    /// Returns the same pools with rewritten statements, for tests of what happens without a guard or with a slow
    /// statement. Cannot be enabled by any setting.
    #[doc(hidden)]
    #[must_use]
    pub fn rewriting(self, rewrite: impl Fn(&[&'static str]) -> Vec<&'static str> + Send + Sync + 'static) -> Self {
        Self { rewrite: Some(Arc::new(rewrite)), ..self }
    }

    /// The statements of a transaction as they are sent: unchanged, except in tests.
    pub(super) fn sent<'s>(&self, statements: &'s [&'static str]) -> Cow<'s, [&'static str]> {
        self.rewrite.as_ref().map_or(Cow::Borrowed(statements), |rewrite| Cow::Owned(rewrite(statements)))
    }

    /// Returns a database that uses the reserved connections, for statements that need a response within `within`.
    pub(super) fn with_reserved_connections(&self, within: Duration) -> Self {
        let answer_timeout = self.response_timeout.min(within);
        Self { pool: self.reserved.clone(), tenant_pool: None, response_timeout: answer_timeout, ..self.clone() }
    }

    /// A connection of the owner of the schema, who sees all tenants, without timeouts. It does not return to the pool:
    /// its settings and its locks end with it.
    pub(super) async fn owner_without_timeouts(&self) -> Result<ClientWrapper, Error> {
        let PooledConnection { object, .. } = self.connection(&self.owner).await?;
        let client = Object::take(object);
        client.batch_execute("set statement_timeout = 0; set idle_in_transaction_session_timeout = 0").await?;
        Ok(client)
    }

    /// Lends a connection for an operation. `tenant` is the result of [`Self::tenant`].
    pub(super) async fn check_out(&self, what: Operation, tenant: Option<&TenantId>) -> Result<ConnectionGuard, Error> {
        let connections = match tenant {
            Some(_) => self.requests(),
            None => &self.pool,
        };
        let held = self.connection(connections).await?;
        Ok(ConnectionGuard::new(held, self.settling(what)))
    }

    /// How to end an operation whose caller was dropped.
    fn settling(&self, what: Operation) -> Cleanup {
        let named = matches!(self.statements, Statements::Named);
        Cleanup {
            tls: self.cancelling.clone(),
            timeout: self.response_timeout,
            is_reusable: named && !what.in_transaction,
            statements: what.statements,
            standby: Standby::new(self.owner.clone(), self.metrics.clone()),
        }
    }

    /// Waits for a response with a timeout, because a connection may be dead without an error.
    pub(super) async fn with_timeout<T>(
        &self,
        lent: &ConnectionGuard,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let late = |_| {
            lent.expire();
            Err(Error::Unavailable("timed out waiting for a response".to_owned()))
        };
        tokio::time::timeout(self.response_timeout, answer).await.unwrap_or_else(late)
    }

    /// Waits for a connection.
    async fn connection(&self, connections: &Connections) -> Result<PooledConnection, Error> {
        let begun = Instant::now();
        let held = connections.get(&self.metrics).await;
        let in_vain = matches!(held, Err(Error::Busy));
        self.metrics.waited_for_connection(begun.elapsed(), in_vain);
        held
    }
}

fn tls_connector(config: &DatabaseConfig) -> Result<MakeRustlsConnect, Error> {
    database_tls::connector(config.ca_file.as_deref(), config.verifies_host_name())
}

/// Creates a pool for a role. Connections are opened on demand.
fn connections(access: Access<'_>, (size, kept): (usize, usize), role: Role) -> Result<Connections, Error> {
    let config = access.config;
    let manager = Manager::from_config(
        connection_config(access, role),
        tls_connector(config)?,
        ManagerConfig { recycling_method: RecyclingMethod::Fast },
    );
    let bounds = PoolLimits {
        size,
        kept,
        acquire_timeout: config.acquire_timeout,
        connect_timeout: config.connect_timeout,
        idle_timeout: config.idle_timeout,
    };
    Connections::new(manager, bounds)
}

/// The settings of every connection. A pooler would pass them on to other clients of the connection, so none are sent
/// through a pooler; they must then be set for the database role. Sequential scans are off because a plan made while a
/// table was empty would use one forever. Plans are generic because statements are prepared once and no plan depends on
/// a value; with statistics PostgreSQL's default is to plan at each execution (docs/benchmarks.md: 350 turns/s in place
/// of 650). The server probes connections like this side does, so that it closes those of a host that vanished.
fn connection_config(access: Access<'_>, role: Role) -> Connection {
    let Access { connection, config, lease_ttl } = access;
    let mut connection = connection.clone();
    let role = match role {
        Role::Login => "",
        Role::Worker => "-c role=contextd_worker",
        Role::Tenant => "-c role=contextd_tenant",
    };
    if !config.transaction_pooler {
        let options = format!(
            "{} -c enable_seqscan=off -c jit=off -c plan_cache_mode={PLAN_CACHE_MODE} -c timezone=UTC \
             -c statement_timeout={} -c lock_timeout={} -c idle_in_transaction_session_timeout={} \
             -c tcp_keepalives_idle={} -c tcp_keepalives_interval={} -c tcp_keepalives_count={PROBES} {role}",
            connection.get_options().unwrap_or_default(),
            config.statement_timeout.as_millis(),
            LOCK_TIMEOUT.as_millis(),
            IDLE_IN_TRANSACTION.min(lease_ttl * 2 / 3).as_millis(),
            KEEPALIVE_IDLE.as_secs(),
            KEEPALIVE_INTERVAL.as_secs(),
        );
        connection.options(options.trim());
    }
    connection
        .application_name("contextd")
        .target_session_attrs(TargetSessionAttrs::ReadWrite) // with several addresses, the one that is not a standby
        .connect_timeout(config.connect_timeout)
        .tcp_user_timeout(TCP_USER_TIMEOUT)
        .keepalives(true)
        .keepalives_idle(KEEPALIVE_IDLE)
        .keepalives_interval(KEEPALIVE_INTERVAL)
        .keepalives_retries(PROBES);
    connection
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(transaction_pooler: bool) -> String {
        let access = Access {
            connection: &Connection::new(),
            config: &DatabaseConfig { transaction_pooler, ..DatabaseConfig::default() },
            lease_ttl: Duration::from_secs(15),
        };
        let connection = connection_config(access, Role::Login);
        connection.get_options().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_connection_plans_each_statement_once_whatever_the_statistics() {
        assert!(options(false).contains("-c plan_cache_mode=force_generic_plan "));
    }

    #[test]
    fn a_pooler_gets_connections_without_settings() {
        assert_eq!(options(true), "");
    }
}
