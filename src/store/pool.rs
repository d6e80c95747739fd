//! The pools of one process, and how their connections are made.

use std::{
    borrow::Cow,
    future::Future,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use deadpool_postgres::{Manager, ManagerConfig, Object, RecyclingMethod};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    Error, Reach,
    connections::{Bounds, Connections, Held},
    database_tls,
    lent::{Doing, Lent, Settling},
    row::get,
    standby::Standby,
    statement::Statements,
    written_bytes::WrittenBytes,
};
use crate::{
    model::TenantId,
    telemetry::metrics::{Metrics, PoolStatus},
};

/// Connections beside the pool, for what must not wait for requests: heartbeats, polls, readiness.
const RESERVED: usize = 2;
/// What an answer may take on top of its statement before the connection is given up.
const ANSWER_SLACK: Duration = Duration::from_secs(2);

/// How long a statement waits for one lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long what was sent may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// After so much silence a connection is probed.
const PROBE_AFTER: Duration = Duration::from_secs(10);
/// How often it is probed until it answers.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// Probes without an answer after which it is given up.
const PROBES: u32 = 3;

/// Where a database is, and as whom it is reached.
pub type Connection = tokio_postgres::Config;

/// How the database is reached.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it is, and as whom.
    pub config: Connection,
    /// Most connections of this process for requests and turns. A few are kept beside them.
    pub pool_size: usize,
    /// How long to wait for a free connection.
    pub acquire_timeout: Duration,
    /// A connection that nothing has used for this long is closed, but for the last one of a pool.
    pub idle_timeout: Duration,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// After this long the server gives a statement up.
    pub statement_timeout: Duration,
    /// After this long in a transaction without a statement the server ends the connection; below
    /// the lease.
    pub idle_in_transaction_timeout: Duration,
    /// Certificate authorities in a PEM file, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Where a connection is encrypted, whether the server's certificate has to be for the host that
    /// is connected to.
    pub verify_host_name: bool,
    /// A pooler that gives each transaction another connection stands between: nothing may outlast
    /// a transaction.
    pub transaction_pooler: bool,
    /// The database itself keeps what is done for a tenant to its rows. Not beside a transaction
    /// pooler.
    pub row_security: bool,
}

/// As whom statements run.
#[derive(Debug, Clone, Copy)]
enum Role {
    /// As who connects.
    Login,
    /// As the role of the service's own work, by the name that `row_security.sql` gives it.
    Worker,
    /// As that of what is done for tenants.
    Tenant,
}

/// How statements are planned, as [`connection_config`] says.
const PLAN_CACHE_MODE: &str = "force_generic_plan";
/// A sign of life.
pub(super) const PING: &str = "-- store::ping\nselect 1";
/// Connections for the service's own work where tenants have theirs.
const WORKERS: usize = 4;

/// What the statements of one transaction are sent as.
type Rewrite = dyn Fn(&[&'static str]) -> Vec<&'static str> + Send + Sync;

/// A pool of connections to one database, and a small one beside it for what must not wait.
#[derive(Clone)]
pub struct Database {
    /// For everything, or, with row security, for the service's own work.
    pool: Connections,
    /// With row security: for what is done for tenants.
    of_tenants: Option<Connections>,
    /// Whoever owns the schema.
    owner: Connections,
    reserved: Connections,
    answer_timeout: Duration,
    pub(super) statements: Statements,
    /// How a connection that listens is made. `None` means a pooler stands between.
    listening: Option<(Connection, MakeRustlsConnect)>,
    /// How the server is reached to cancel a statement.
    cancelling: MakeRustlsConnect,
    rewrite: Option<Arc<Rewrite>>,
    /// What was written for tenants whose storage is limited.
    pub(super) written: WrittenBytes,
    pub(super) metrics: Metrics,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("pools", &self.status())
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Prepares the pool; connections are made when they are needed.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let statements = if settings.transaction_pooler {
            Statements::unnamed()
        } else {
            Statements::Named
        };
        let connections = |size, role| connections(settings, size, role);
        let (pool, of_tenants, reserved) = if settings.row_security {
            (
                connections((WORKERS, 1), Role::Worker)?,
                Some(connections((settings.pool_size, 1), Role::Tenant)?),
                connections((RESERVED, 1), Role::Worker)?,
            )
        } else {
            (
                connections((settings.pool_size, 1), Role::Login)?,
                None,
                connections((RESERVED, 1), Role::Login)?,
            )
        };
        Ok(Self {
            pool: pool.with_spare(&reserved),
            of_tenants,
            owner: connections((1, 0), Role::Login)?,
            reserved,
            answer_timeout: settings.statement_timeout + ANSWER_SLACK,
            statements,
            listening: match settings.transaction_pooler {
                true => None,
                false => Some((
                    connection_config(settings, Role::Login),
                    tls_connector(settings)?,
                )),
            },
            cancelling: tls_connector(settings)?,
            rewrite: None,
            written: WrittenBytes::default(),
            metrics: Metrics::default(),
        })
    }

    /// The same pool, with what is done measured.
    #[must_use]
    pub fn metered(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// How its connections stand.
    pub fn status(&self) -> Vec<PoolStatus> {
        let workers = self.of_tenants.as_ref().map(|_| ("workers", &self.pool));
        let requests = ("requests", self.requests());
        let all = [requests, ("reserved", &self.reserved)];
        let all = all.into_iter().chain(workers);
        all.map(|(name, connections)| connections.status(name))
            .collect()
    }

    /// How long the answer to a statement or a transaction is awaited.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    /// The connections for requests and turns.
    fn requests(&self) -> &Connections {
        self.of_tenants.as_ref().unwrap_or(&self.pool)
    }

    /// Whether the database itself keeps what is done for a tenant to its rows.
    pub fn has_row_security(&self) -> bool {
        self.of_tenants.is_some()
    }

    /// The tenant that the database has to be told before a statement. `None`: it need not be told.
    pub(super) fn tenant(&self) -> Result<Option<TenantId>, Error> {
        if !self.has_row_security() {
            return Ok(None);
        }
        match Reach::current() {
            Some(Reach::Tenant(tenant)) => Ok(Some(tenant)),
            Some(Reach::All) => Ok(None),
            None => Err(Error::NoReach),
        }
    }

    /// Whether a connection has the settings that it was made with. Poolers may be told to ignore them.
    pub(super) async fn has_its_settings(&self) -> Result<bool, Error> {
        const SQL: &str = "-- store::pool::settings\nselect current_setting('plan_cache_mode')";
        match self.statements {
            Statements::Unnamed(_) => Ok(true),
            Statements::Named => {
                let rows = self.read(SQL, &[]).await?;
                let mode = rows
                    .first()
                    .map(|row| get::<String>(row, "current_setting"));
                Ok(mode.transpose()?.as_deref() == Some(PLAN_CACHE_MODE))
            }
        }
    }

    /// How long a new request of a tenant would wait for one of the connections for requests and
    /// turns; zero if there is one, or if they are still being made, as after a start.
    pub fn expected_wait(&self, tenant: &TenantId) -> Duration {
        self.requests().expected_wait(tenant)
    }

    /// Closes the connections that nothing has used for a while.
    pub fn close_idle(&self) {
        let pools = [
            Some(&self.pool),
            self.of_tenants.as_ref(),
            Some(&self.owner),
            Some(&self.reserved),
        ];
        pools
            .into_iter()
            .flatten()
            .for_each(Connections::close_idle);
    }

    /// After how long without a use a connection is closed.
    pub(super) fn idle_timeout(&self) -> Duration {
        self.owner.idle_timeout()
    }

    /// Asks for a sign of life over the connections that requests and turns use. [`Error::Busy`]
    /// if they are all in use for as long.
    pub(super) async fn ping_requests(&self, within: Duration) -> Result<(), Error> {
        let requests = self.requests();
        let held = requests.get_within(within, &self.metrics).await?;
        let doing = Doing {
            statements: vec![PING],
            in_transaction: false,
        };
        let lent = Lent::new(held, self.settling(doing));
        let done = async {
            let asked = lent.connection()?.simple_query(PING);
            Ok(asked.await.map(drop)?)
        };
        let done = self.in_time(&lent, done).await;
        lent.back(done)
    }

    /// The same pool, for a test that wants to see what happens when a statement is another one:
    /// without a guard, or slower. Nothing that an operator can set leads here.
    #[doc(hidden)]
    #[must_use]
    pub fn rewriting(
        self,
        rewrite: impl Fn(&[&'static str]) -> Vec<&'static str> + Send + Sync + 'static,
    ) -> Self {
        Self {
            rewrite: Some(Arc::new(rewrite)),
            ..self
        }
    }

    /// The statements of one transaction as they are sent: as they are.
    pub(super) fn sent<'s>(&self, statements: &'s [&'static str]) -> Cow<'s, [&'static str]> {
        self.rewrite
            .as_ref()
            .map_or(Cow::Borrowed(statements), |rewrite| {
                Cow::Owned(rewrite(statements))
            })
    }

    /// The same over the reserved connections, for statements that must be answered within that
    /// time or not at all.
    pub(super) fn aside(&self, within: Duration) -> Self {
        let answer_timeout = self.answer_timeout.min(within);
        Self {
            pool: self.reserved.clone(),
            of_tenants: None,
            answer_timeout,
            ..self.clone()
        }
    }

    /// How a connection that listens is made.
    pub(super) fn listening(&self) -> Option<(Connection, MakeRustlsConnect)> {
        self.listening.clone()
    }

    /// A connection of whoever owns the schema.
    pub(super) async fn owner(&self) -> Result<Object, Error> {
        let Held { object, .. } = self.connection(&self.owner).await?;
        Ok(object)
    }

    /// A connection to do something on, for the tenant that [`Self::tenant`] says.
    pub(super) async fn lend(&self, what: Doing, tenant: Option<&TenantId>) -> Result<Lent, Error> {
        let connections = match tenant {
            Some(_) => self.requests(),
            None => &self.pool,
        };
        let held = self.connection(connections).await?;
        Ok(Lent::new(held, self.settling(what)))
    }

    /// How what is done on a connection is brought to its end when its user goes away.
    fn settling(&self, what: Doing) -> Settling {
        let named = matches!(self.statements, Statements::Named);
        Settling {
            tls: self.cancelling.clone(),
            patience: self.answer_timeout,
            whole: named && !what.in_transaction,
            statements: what.statements,
            standby: Standby::new(self.owner.clone(), self.metrics.clone()),
        }
    }

    /// Waits for an answer, but not for ever: a connection may be dead without telling.
    pub(super) async fn in_time<T>(
        &self,
        lent: &Lent,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let late = |_| {
            lent.expire();
            Err(Error::Unavailable("no answer came in time".to_owned()))
        };
        tokio::time::timeout(self.answer_timeout, answer)
            .await
            .unwrap_or_else(late)
    }

    /// A connection, as soon as it is this operation's turn.
    async fn connection(&self, connections: &Connections) -> Result<Held, Error> {
        let begun = Instant::now();
        let held = connections.get(&self.metrics).await;
        let in_vain = matches!(held, Err(Error::Busy));
        self.metrics.waited_for_connection(begun.elapsed(), in_vain);
        held
    }
}

fn tls_connector(settings: &Settings) -> Result<MakeRustlsConnect, Error> {
    database_tls::connector(settings.ca_file.as_deref(), settings.verify_host_name)
}

/// Connections in a role, made when they are needed.
fn connections(
    settings: &Settings,
    (size, kept): (usize, usize),
    role: Role,
) -> Result<Connections, Error> {
    let manager = Manager::from_config(
        connection_config(settings, role),
        tls_connector(settings)?,
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    let bounds = Bounds {
        size,
        kept,
        acquire_timeout: settings.acquire_timeout,
        connect_timeout: settings.connect_timeout,
        idle_timeout: settings.idle_timeout,
    };
    Connections::new(manager, bounds)
}

/// Settings of every connection. A pooler hands its own to whoever comes next, so it gets none:
/// they belong to the role then. Sequential scans are off because a plan made while a table was
/// empty would keep one for ever. Plans are generic because statements are prepared once and no
/// plan depends on a value, while PostgreSQL's own choice, once it has statistics, is to plan anew
/// at each execution (docs/benchmarks.md: 350 turns/s in place of 650).
fn connection_config(settings: &Settings, role: Role) -> tokio_postgres::Config {
    let mut config = settings.config.clone();
    let role = match role {
        Role::Login => "",
        Role::Worker => "-c role=contextd_worker",
        Role::Tenant => "-c role=contextd_tenant",
    };
    if !settings.transaction_pooler {
        let options = format!(
            "{} -c enable_seqscan=off -c jit=off -c plan_cache_mode={PLAN_CACHE_MODE} -c timezone=UTC \
             -c statement_timeout={} -c lock_timeout={} -c idle_in_transaction_session_timeout={} {role}",
            config.get_options().unwrap_or_default(),
            settings.statement_timeout.as_millis(),
            LOCK_TIMEOUT.as_millis(),
            settings.idle_in_transaction_timeout.as_millis(),
        );
        config.options(options.trim());
    }
    config
        .application_name("contextd")
        .target_session_attrs(TargetSessionAttrs::ReadWrite) // of several addresses, the one that is no standby
        .connect_timeout(settings.connect_timeout)
        .tcp_user_timeout(UNACKNOWLEDGED)
        .keepalives(true)
        .keepalives_idle(PROBE_AFTER)
        .keepalives_interval(PROBE_EVERY)
        .keepalives_retries(PROBES);
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(transaction_pooler: bool) -> String {
        let settings = Settings {
            config: tokio_postgres::Config::new(),
            pool_size: 1,
            acquire_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(1),
            statement_timeout: Duration::from_secs(1),
            idle_in_transaction_timeout: Duration::from_secs(1),
            ca_file: None,
            verify_host_name: true,
            transaction_pooler,
            row_security: false,
        };
        let config = connection_config(&settings, Role::Login);
        config.get_options().unwrap_or_default().to_owned()
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
