//! The composition root: creates the database, models, engine, workers and server from the configuration, and
//! stops them in order.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

pub mod backup;
mod external_database;
mod models;
mod rules;
mod startup;
pub mod transfer;

use self::startup::{run_migrations, wait_for_database};

use crate::{
    auth::{self, Auth},
    clock::{Clock, SystemClock},
    config::{Config, Environment},
    grpc::{
        admin_port,
        gate::Gate,
        health,
        readiness::{ClosedReason, Readiness},
        server,
        tls::{self, Tls},
    },
    mcp,
    postgres::{self, Postgres},
    provider::Registry,
    quota::Quotas,
    store::{self, Connection, Database, Reach, Store},
    telemetry::{Telemetry, progress::Progress},
    turn::{Engine, Hub, Rules},
    worker,
};

/// Time allowed after the drain for responses in flight and the workers' last round.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// How often the program of the embedded PostgreSQL is checked for replacement.
const UPGRADE_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of the last export of telemetry.
const LAST_EXPORT: Duration = Duration::from_secs(3);
/// Retry interval for the keys and limits at startup.
const STARTUP_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Serves until `shutdown` fires and all work in flight is finished or handed over.
pub async fn serve(config: Config, progress: Progress, shutdown: CancellationToken) -> anyhow::Result<()> {
    let listener = TcpListener::bind(config.server.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.server.listen))?;
    let admin = match config.server.admin_listen {
        Some(address) => Some(TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?),
        None => None,
    };
    let (connection, postgres) = connect(&config, &progress).await?;
    let mut parts = Parts::new(&config, connection, &Environment::of_process())?;
    if postgres.is_some() {
        // An embedded database has only this replica.
        parts.rules.has_other_replicas = false;
    }
    let mut service = parts.assemble(config, shutdown)?;
    service.admin = admin;
    let served = service.serve(listener, &progress, postgres.as_ref()).await;
    let stopped = match postgres {
        Some(postgres) => postgres.stop().await,
        None => Ok(()),
    };
    // Report the error that ended serving, not the errors that followed from it.
    served.and(stopped.map_err(Into::into))
}

/// The parts of an engine. The binary uses them as configured; a test may replace some first.
#[derive(Debug)]
pub struct Parts {
    pub database: Database,
    /// The model providers.
    pub registry: Registry,
    /// The MCP servers whose tools this server calls.
    pub mcp: mcp::Servers,
    /// The settings of turns.
    pub rules: Rules,
    pub clock: Arc<dyn Clock>,
}

impl Parts {
    /// Creates the parts from the configuration.
    pub fn new(config: &Config, connection: Connection, environment: &Environment) -> anyhow::Result<Self> {
        Ok(Self {
            database: database(config, &connection)?,
            registry: models::registry(config, environment)?,
            mcp: mcp_servers(config, environment)?,
            rules: Rules::new(config),
            clock: Arc::new(SystemClock),
        })
    }

    /// Creates the service, which ends when `shutdown` fires.
    pub fn assemble(self, config: Config, shutdown: CancellationToken) -> anyhow::Result<Service> {
        let replica = Uuid::now_v7().to_string();
        let telemetry = Telemetry::new(&config.telemetry, &replica)?;
        let database = self.database.metered(telemetry.metrics().clone());
        let store = Store::new(database.clone(), replica, config.turn.lease_ttl)
            .with_session_memory(config.turn.session_memory);
        let hub = Hub::default();
        let clock = Arc::clone(&self.clock);
        let auth = Arc::new(Auth::new(&config.auth, store.clone(), clock)?);
        let tls = Tls::new(&config.tls)?.map(Arc::new);
        let quotas = Arc::new(Quotas::new(store.clone(), config.limits));
        let engine = Engine::new(store, (self.registry, self.mcp), quotas, self.rules, hub, self.clock, &telemetry);
        observe(&telemetry, &engine, &database);
        Ok(Service {
            engine,
            auth,
            tls,
            telemetry,
            admin: None,
            config,
            database,
            stop: Stop { shutdown, ..Stop::default() },
        })
    }
}

/// One replica: an engine and its server.
#[derive(Debug)]
pub struct Service {
    pub engine: Arc<Engine>,
    /// The shutdown signals.
    pub stop: Stop,
    /// Authenticates callers.
    pub auth: Arc<Auth>,
    tls: Option<Arc<Tls>>,
    telemetry: Telemetry,
    /// The listener of the admin port.
    pub admin: Option<TcpListener>,
    config: Config,
    database: Database,
}

/// The phases of a shutdown. The binary fires the first; the others follow in order.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// A shutdown was requested.
    pub shutdown: CancellationToken,
    /// Workers start nothing new.
    pub stopping: CancellationToken,
    /// The server accepts no more requests.
    pub closing: CancellationToken,
    /// Workers end.
    pub done: CancellationToken,
}

impl Service {
    /// Serves, and returns when the drain has ended. Until the database is ready, requests are rejected with
    /// the reason.
    pub async fn serve(
        self,
        listener: TcpListener,
        progress: &Progress,
        postgres: Option<&Postgres>,
    ) -> anyhow::Result<()> {
        let Self { engine, stop, auth, tls, telemetry, admin, config, database } = self;
        let (reporter, health_service) = server::health();
        health::report_starting(&reporter).await;
        let address = listener.local_addr()?;
        let gate = Gate::new(Readiness::Closed(ClosedReason::Database));
        observe_readiness(&telemetry, gate.clone());
        let broken = CancellationToken::new();
        if let Some(admin) = admin {
            let pages = admin_port::Pages { gate: gate.clone(), telemetry: telemetry.clone() };
            let stopped = stop.done.clone().cancelled_owned();
            let serving = admin_port::serve(admin, health_service.clone(), pages, stopped);
            require("admin port", &stop, &broken, serving);
        }
        let serving = server::serve(
            listener,
            Arc::clone(&engine),
            health_service,
            server::ServerAccess { gate: gate.clone(), auth: Arc::clone(&auth), tls: tls.clone() },
            &config,
            stop.closing.clone().cancelled_owned(),
        );
        let mut serving = Box::pin(serving);
        tracing::info!(replica = engine.store().replica(), "listening on {address}");
        let migrate = postgres.is_some() || config.database.migrate_on_start;
        tokio::select! {
            served = &mut serving => return served,
            // No turn has started, so there is nothing to drain.
            () = stop.shutdown.cancelled() => return Ok(()),
            () = database_lost(postgres) => return Err(lost_database()),
            () = broken.cancelled() => return Err(broken_worker()),
            never = follow_upgrades(postgres) => match never {},
            prepared = Box::pin(Reach::All.scope(async {
                wait_for_database(&database, migrate, &gate, progress).await?;
                first_limits(&engine).await;
                first_keys(&auth).await
            })) => prepared?,
        }
        gate.set(Readiness::Ready);
        let workers = workers(&engine, &auth, tls, &stop, &broken);
        let (followed, stopping) = (Arc::clone(&engine), stop.stopping.clone());
        let follow = move || {
            let engine = Arc::clone(&followed);
            health::watch_database(reporter.clone(), gate.clone(), engine, stopping.clone())
        };
        let readiness = tokio::spawn(worker::supervised("readiness", broken.clone(), follow));
        progress.ready(format!("contextd listens on {address}"));
        let mut lost = Ok(());
        tokio::select! {
            served = &mut serving => return served,
            () = stop.shutdown.cancelled() => {}
            () = database_lost(postgres) => lost = Err(lost_database()),
            never = follow_upgrades(postgres) => match never {},
            () = broken.cancelled() => lost = Err(broken_worker()),
        }
        stop.stopping.cancel();
        // The server continues to respond while turns reach their step boundaries.
        tokio::select! {
            served = &mut serving => served?,
            () = drained(&config, &engine, readiness, &stop.closing) => {}
        }
        stop.done.cancel();
        wait_for_workers(&engine, workers).await;
        telemetry.shut_down(LAST_EXPORT).await;
        lost
    }
}

/// Runs a task that must not end before the stop: if it does, the process ends.
fn require(
    name: &'static str,
    stop: &Stop,
    broken: &CancellationToken,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let tokens = (stop.done.clone(), broken.clone());
    tokio::spawn(worker::required(name, tokens, task));
}

/// Returns when turns are handed over and clients had a moment to read their last responses. A client that
/// never reads must not block the exit.
async fn drained(config: &Config, engine: &Arc<Engine>, readiness: JoinHandle<()>, closing: &CancellationToken) {
    let _ = readiness.await;
    tokio::time::sleep(config.server.drain_delay).await;
    let draining = Box::pin(engine.drain(config.server.drain_timeout));
    Reach::All.scope(draining).await;
    closing.cancel();
    tokio::time::sleep(SHUTDOWN_GRACE).await;
}

/// Waits for the workers, then notifies the other replicas. Limited by [`SHUTDOWN_GRACE`], because a worker that
/// waits for a database must not block the exit.
async fn wait_for_workers(engine: &Engine, workers: TaskTracker) {
    let last = async {
        workers.wait().await;
        engine.announce_shutdown().await;
    };
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, Reach::All.scope(last)).await;
}

/// Starts all background tasks.
fn workers(
    engine: &Arc<Engine>,
    auth: &Arc<Auth>,
    tls: Option<Arc<Tls>>,
    stop: &Stop,
    broken: &CancellationToken,
) -> TaskTracker {
    let workers = worker::start(engine, &stop.stopping, &stop.done, broken);
    worker::keep_credentials(&workers, auth, &stop.done, broken);
    if let Some(tls) = tls {
        let done = stop.done.clone();
        let follow = move || tls::reload_on_change(Arc::clone(&tls), done.clone());
        workers.spawn(worker::supervised("certificates", broken.clone(), follow));
    }
    workers
}

/// Reads the callers' keys for the first time. Retries while the database is unavailable; returns an error
/// for an invalid keys file.
async fn first_keys(auth: &Auth) -> anyhow::Result<()> {
    while let Err(error) = auth.refresh().await {
        let auth::Error::Store(error) = error else {
            return Err(error.into());
        };
        tracing::warn!(%error, "cannot read the API keys yet; retrying");
        tokio::time::sleep(STARTUP_RETRY_INTERVAL).await;
    }
    Ok(())
}

/// Reads the limits and deletions of tenants for the first time. No call is admitted before.
async fn first_limits(engine: &Engine) {
    while let Err(error) = engine.capacity.quotas.read_limits().await {
        tracing::warn!(%error, "cannot read the tenant limits yet; retrying");
        tokio::time::sleep(STARTUP_RETRY_INTERVAL).await;
    }
}

/// Migrates the database's schema to the newest version that this program knows.
pub async fn migrate(config: &Config, progress: &Progress) -> anyhow::Result<()> {
    let (database, postgres) = open(config, progress).await?;
    Reach::All.scope(run_migrations(&database, progress)).await?;
    close(database, postgres).await
}

/// Opens the database, even while servers are using it. Also returns the embedded PostgreSQL if this had to
/// start it.
async fn open(config: &Config, progress: &Progress) -> anyhow::Result<(Database, Option<Postgres>)> {
    let running = match config.database.url {
        Some(_) => None,
        None => postgres::find_running(&config.embedded.cluster_dir()).await,
    };
    let (connection, postgres) = match running {
        Some(connection) => (connection, None),
        None => connect(config, progress).await?,
    };
    Ok((database(config, &connection)?, postgres))
}

/// The connections to the database.
fn database(config: &Config, connection: &Connection) -> anyhow::Result<Database> {
    let lease_ttl = config.turn.lease_ttl;
    Ok(Database::new(connection, &config.database, lease_ttl)?)
}

/// The MCP servers. Keys are read once, here.
fn mcp_servers(config: &Config, environment: &Environment) -> anyhow::Result<mcp::Servers> {
    let is_shared = config.auth.is_shared();
    mcp::Servers::new(&config.mcp, is_shared, environment)
        .map_err(|(name, error)| anyhow::Error::new(error).context(format!("mcp.{name} cannot be used")))
}

async fn close(database: Database, postgres: Option<Postgres>) -> anyhow::Result<()> {
    drop(database);
    if let Some(postgres) = postgres {
        postgres.stop().await?;
    }
    Ok(())
}

/// Registers the values that are read whenever metrics are collected. They do not keep the engine alive.
fn observe(telemetry: &Telemetry, engine: &Arc<Engine>, database: &Database) {
    telemetry.build_info(option_env!("GIT_COMMIT"), store::migrate::newest());
    let engine = Arc::downgrade(engine);
    telemetry.observe_leases(move || engine.upgrade().map_or(0, |engine| engine.capacity.leases.count()));
    let database = database.clone();
    telemetry.observe_pools(move || database.status().to_vec());
}

fn observe_readiness(telemetry: &Telemetry, gate: Gate) {
    telemetry.observe_readiness(move || matches!(gate.readiness(), Readiness::Ready));
}

fn lost_database() -> anyhow::Error {
    anyhow::anyhow!("the embedded PostgreSQL ended unexpectedly")
}

fn broken_worker() -> anyhow::Error {
    anyhow::anyhow!("a required worker keeps panicking; see the log for its name")
}

/// Resolves when an embedded PostgreSQL exits unexpectedly. Never resolves for an external database.
async fn database_lost(postgres: Option<&Postgres>) {
    match postgres {
        Some(postgres) => postgres.exited().await,
        None => std::future::pending().await,
    }
}

/// Restarts an embedded PostgreSQL after its program was replaced, for example by a package upgrade: from
/// then on it would fail whenever it loads a library. Turns wait, as during any restart.
async fn follow_upgrades(postgres: Option<&Postgres>) -> Infallible {
    let Some(postgres) = postgres else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(UPGRADE_CHECK_INTERVAL).await;
        if postgres.is_replaced() {
            tracing::warn!("the executable of the embedded PostgreSQL was replaced; restarting it");
            match postgres.restart().await {
                Ok(()) => tracing::info!("the embedded PostgreSQL was restarted"),
                Err(error) => {
                    tracing::error!(%error, "the embedded PostgreSQL cannot be restarted; restart contextd")
                }
            }
        }
    }
}

/// The connection to the external database, or to an embedded PostgreSQL that this starts.
async fn connect(config: &Config, progress: &Progress) -> anyhow::Result<(Connection, Option<Postgres>)> {
    if let Some(url) = config.database.parts() {
        let connection = external_database::connection(&config.database, &url)?;
        return Ok((connection, None));
    }
    let postgres = start_embedded(config, progress).await?;
    Ok((postgres.config(postgres::DATABASE), Some(postgres)))
}

async fn start_embedded(config: &Config, progress: &Progress) -> anyhow::Result<Postgres> {
    let settings = embedded_settings(config)?;
    std::fs::create_dir_all(&config.embedded.data_dir)
        .with_context(|| format!("cannot create {}", config.embedded.data_dir.display()))?;
    let told = progress.clone();
    Ok(Postgres::start(settings, &move |step| told.step(step)).await?)
}

fn embedded_settings(config: &Config) -> anyhow::Result<postgres::Settings> {
    let environment = Environment::of_process();
    let guard = std::env::current_exe().context("cannot find the contextd executable")?;
    Ok(postgres::Settings {
        embedded: config.embedded.clone(),
        search_path: environment.get("PATH").unwrap_or_default().into(),
        cache_dir: cache_dir(&environment),
        ..postgres::Settings::new(config.embedded.cluster_dir(), guard)
    })
}

/// Where `script/server` puts the PostgreSQL programs on machines without access to the package manager.
fn cache_dir(environment: &Environment) -> Option<std::path::PathBuf> {
    let cache = environment.get("XDG_CACHE_HOME").map(std::path::PathBuf::from);
    cache
        .or_else(|| environment.get("HOME").map(|home| Path::new(&home).join(".cache")))
        .map(|cache| cache.join("contextd"))
}
