//! Connections: how they are made, and how many there are.

use std::{
    borrow::Cow,
    future::Future,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use rustls::{
    ClientConfig, RootCertStore, pki_types::CertificateDer, pki_types::pem::PemObject as _,
};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    Error, NewRequest, Reach,
    connection_queue::{ConnectionQueue, Permit},
    error::refused,
    statement::Statements,
};
use crate::{
    model::TenantId,
    telemetry::metrics::{Metrics, PoolStatus},
};

/// Connections beside the pool, for what must not wait for requests: heartbeats, polls, readiness.
const RESERVED: usize = 2;
/// How long a statement waits for one lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// What an answer may take on top of its statement before the connection is given up.
const ANSWER_SLACK: Duration = Duration::from_secs(2);
/// How long a statement whose user went away may go on before it is cancelled.
const SOON: Duration = Duration::from_millis(100);
/// How long it may take to tell the server that a statement is cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long what was sent may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// After so much silence a connection is probed.
const PROBE_AFTER: Duration = Duration::from_secs(10);
/// How often it is probed until it answers.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// Probes without an answer after which it is given up.
const PROBES: u32 = 3;
/// How old a connection gets at most. Each ends at a time of its own within the last fifth, so that
/// they do not all end at once.
const MOST_AGE: Duration = Duration::from_mins(30);

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
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// After this long the server gives a statement up.
    pub statement_timeout: Duration,
    /// After this long in a transaction without a statement the server ends the connection; below
    /// the lease.
    pub idle_in_transaction_timeout: Duration,
    /// Certificate authorities in a PEM file, in place of the system's.
    pub ca_file: Option<PathBuf>,
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

/// Connections for the service's own work where tenants have theirs.
const WORKERS: usize = 4;

/// What the statements of one transaction are sent as.
type Rewrite = dyn Fn(&[&'static str]) -> Vec<&'static str> + Send + Sync;

/// So many connections in one role, and who waits for them.
#[derive(Clone)]
struct Connections {
    pool: Pool,
    queue: Arc<ConnectionQueue>,
    /// How long an operation waits for one.
    acquire_timeout: Duration,
}

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
    pub(super) metrics: Metrics,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("connections", &self.pool.pool.status().size)
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
        let connections = |size, role| Connections::new(settings, size, role);
        let (pool, of_tenants, reserved) = if settings.row_security {
            (
                connections(WORKERS, Role::Worker)?,
                Some(connections(settings.pool_size, Role::Tenant)?),
                connections(RESERVED, Role::Worker)?,
            )
        } else {
            (
                connections(settings.pool_size, Role::Login)?,
                None,
                connections(RESERVED, Role::Login)?,
            )
        };
        Ok(Self {
            pool,
            of_tenants,
            owner: connections(1, Role::Login)?,
            reserved,
            answer_timeout: settings.statement_timeout + ANSWER_SLACK,
            statements,
            listening: match settings.transaction_pooler {
                true => None,
                false => Some((
                    connection_config(settings, Role::Login),
                    MakeRustlsConnect::new(tls(settings)?),
                )),
            },
            cancelling: MakeRustlsConnect::new(tls(settings)?),
            rewrite: None,
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

    /// How long a new request of a tenant would wait for one of the connections for requests and
    /// turns; zero if there is one, or if they are still being made, as after a start.
    pub fn expected_wait(&self, tenant: &TenantId) -> Duration {
        let requests = self.requests();
        let status = requests.pool.status();
        if status.size < status.max_size {
            return Duration::ZERO;
        }
        requests.queue.expected_wait(tenant)
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
        let whole = matches!(
            (what, &self.statements),
            (Doing::Statement, Statements::Named)
        );
        let settling = Settling {
            tls: self.cancelling.clone(),
            patience: self.answer_timeout,
            whole,
        };
        Ok(Lent {
            lent: Some((held, settling)),
            expired: AtomicBool::new(false),
        })
    }

    /// Waits for an answer, but not for ever: a connection may be dead without telling.
    pub(super) async fn in_time<T>(
        &self,
        lent: &Lent,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let late = |_| {
            lent.expired.store(true, Ordering::Relaxed);
            Err(Error::Unavailable("no answer came in time".to_owned()))
        };
        tokio::time::timeout(self.answer_timeout, answer)
            .await
            .unwrap_or_else(late)
    }

    /// A connection, as soon as it is this operation's turn.
    async fn connection(&self, connections: &Connections) -> Result<Held, Error> {
        let begun = Instant::now();
        let held = connections.get().await;
        let in_vain = matches!(held, Err(Error::Busy));
        self.metrics.waited_for_connection(begun.elapsed(), in_vain);
        held
    }
}

impl Connections {
    /// Made when they are needed.
    fn new(settings: &Settings, size: usize, role: Role) -> Result<Self, Error> {
        Ok(Self {
            pool: pool(settings, size, role)?,
            queue: ConnectionQueue::new(size),
            acquire_timeout: settings.acquire_timeout,
        })
    }

    async fn get(&self) -> Result<Held, Error> {
        let new = NewRequest::waiting();
        let entering = self
            .queue
            .enter(new.as_ref().map(|request| &request.tenant));
        let entered = tokio::time::timeout(self.acquire_timeout, entering).await;
        let permit = entered.map_err(|_| Error::Busy)??;
        if let Some(request) = new {
            request.begin();
        }
        let object = self.pool.get().await.map_err(|error| match error {
            PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => Error::Busy,
            PoolError::Backend(error) => refused(&error),
            PoolError::Timeout(_)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => Error::Unavailable(error.to_string()),
        })?;
        Ok(Held {
            object,
            _permit: permit,
        })
    }

    fn status(&self, name: &'static str) -> PoolStatus {
        let status = self.pool.status();
        PoolStatus {
            name,
            max: status.max_size,
            used: status.size.saturating_sub(status.available),
            idle: status.available,
            pending: self.queue.len() + status.waiting,
        }
    }
}

/// A connection with the right to it. The right ends after the connection is back: whoever is next
/// finds it.
struct Held {
    object: Object,
    _permit: Permit,
}

/// A connection that is in use. It is given up unless it is given back: when its user went away in
/// the middle, when no answer came in time, or when anything failed but a statement by the
/// database's own word, its state is not known. Its place in the pool is free only when its
/// statement has ended: see [`settle`].
pub(super) struct Lent {
    lent: Option<(Held, Settling)>,
    /// No answer came in time.
    expired: AtomicBool,
}

/// What is done on a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Doing {
    /// One statement.
    Statement,
    /// A transaction of several.
    Transaction,
}

/// How the statement of a user who went away is brought to its end.
struct Settling {
    /// How the server is reached to cancel it.
    tls: MakeRustlsConnect,
    /// How long its end is awaited after that.
    patience: Duration,
    /// When it has ended, the connection is as good as before: nothing can be left open.
    whole: bool,
}

impl Lent {
    /// Gives the connection back, if what was done on it leaves it as good as before.
    pub(super) fn back<T>(mut self, done: Result<T, Error>) -> Result<T, Error> {
        if !done.as_ref().is_err_and(Error::spoils_connection) {
            drop(self.lent.take());
        } else if !self.expired.load(Ordering::Relaxed)
            && let Some((held, _)) = self.lent.take()
        {
            // Broken, by its own word or the database's: no statement runs on it.
            drop(Object::take(held.object));
        }
        done
    }

    /// The connection.
    pub(super) fn connection(&self) -> Result<&Object, Error> {
        let lent = self.lent.as_ref().map(|(held, _)| &held.object);
        lent.ok_or_else(|| Error::Unavailable("the connection was given back".to_owned()))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some((held, mut settling)) = self.lent.take() else {
            return;
        };
        if *self.expired.get_mut() {
            // Its end was awaited for long enough, from a server that may be gone.
            settling.patience = Duration::ZERO;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(settle(held, settling))),
            Err(_) => drop(Object::take(held.object)), // the process ends
        }
    }
}

/// Holds the place in the pool of a connection whose user went away until its statement has ended,
/// so that clients who give up again and again never have more statements run than the pool has
/// places. A statement that goes on is cancelled.
async fn settle(
    Held { object, _permit }: Held,
    Settling {
        tls,
        patience,
        whole,
    }: Settling,
) {
    // Answers come in the order of the questions: with this one everything before it has ended.
    let mut ended = Box::pin(object.simple_query(""));
    if let Ok(answer) = tokio::time::timeout(SOON.min(patience), &mut ended).await {
        drop(ended);
        // Broken, or in a transaction that is never ended: closed.
        if answer.is_err() || !whole {
            drop(Object::take(object));
        }
        return;
    }
    let cancelled =
        tokio::time::timeout(CANCEL_TIMEOUT, object.cancel_token().cancel_query(tls)).await;
    if cancelled.is_ok_and(|sent| sent.is_ok()) {
        let _ = tokio::time::timeout(patience, &mut ended).await;
    }
    drop(ended);
    // Never used again: the cancel may still be on its way, to whatever would be done next on this
    // connection.
    drop(Object::take(object));
}

/// So many connections in a role, made when they are needed.
fn pool(settings: &Settings, size: usize, role: Role) -> Result<Pool, Error> {
    let manager = Manager::from_config(
        connection_config(settings, role),
        MakeRustlsConnect::new(tls(settings)?),
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    Pool::builder(manager)
        .max_size(size)
        .wait_timeout(Some(settings.acquire_timeout))
        .create_timeout(Some(settings.connect_timeout))
        .pre_recycle(Hook::sync_fn(|_, metrics| {
            let old = metrics.age() >= most_age(metrics.created);
            if old {
                Err(HookError::message("the connection is old"))
            } else {
                Ok(())
            }
        }))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| Error::Unavailable(error.to_string()))
}

/// How old a connection gets that was made then: between four fifths of [`MOST_AGE`] and all of it.
fn most_age(created: Instant) -> Duration {
    let share = BuildHasherDefault::<DefaultHasher>::default().hash_one(created) % 1000;
    MOST_AGE.mul_f64(0.8 + 0.0002 * share as f64)
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
            "{} -c enable_seqscan=off -c jit=off -c plan_cache_mode=force_generic_plan -c timezone=UTC \
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

/// TLS that verifies the server. Used when the URL's sslmode asks for it, or allows it and the
/// server offers it.
fn tls(settings: &Settings) -> Result<ClientConfig, Error> {
    let unusable =
        |problem: String| Error::Unavailable(format!("certificate authorities: {problem}"));
    let mut roots = RootCertStore::empty();
    match &settings.ca_file {
        Some(file) => {
            let certificates = CertificateDer::pem_file_iter(file)
                .map_err(|error| unusable(format!("{}: {error}", file.display())))?;
            for certificate in certificates {
                let certificate = certificate
                    .map_err(|error| unusable(format!("{}: {error}", file.display())))?;
                roots
                    .add(certificate)
                    .map_err(|error| unusable(error.to_string()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(transaction_pooler: bool) -> String {
        let settings = Settings {
            config: tokio_postgres::Config::new(),
            pool_size: 1,
            acquire_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(1),
            statement_timeout: Duration::from_secs(1),
            idle_in_transaction_timeout: Duration::from_secs(1),
            ca_file: None,
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
