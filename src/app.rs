//! The composition root: creates the database, models, engine, workers and server from the configuration, and
//! stops them in order.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

pub mod backup;
mod external_database;
mod mcp_servers;
mod models;
mod policies;
mod rules;
mod startup;
pub mod transfer;

use self::startup::{run_migrations, wait_for_database};

use crate::{
    auth::{self, Auth},
    clock::{Clock, SystemClock},
    config::{Config, Environment, LimitsConfig},
    grpc::{
        admin_port, admission, connection,
        gate::Gate,
        health,
        readiness::{ClosedReason, Readiness},
        request_body, server,
        stream::ReaderLimits,
        tls::{self, Tls},
    },
    mcp,
    model::{Limits, TenantLimits},
    postgres::{self, Postgres},
    provider::Registry,
    quota::Quotas,
    store::{self, Connection, Database, Reach, Store},
    telemetry::{Telemetry, progress::Progress},
    turn::{Engine, Hub, Retention, Rules, UploadBounds, retry::Retries},
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
/// Maximum time that a transaction may be idle.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);

/// Serves until `shutdown` fires and all work in flight is finished or handed over.
pub async fn serve(
    config: Config,
    progress: Progress,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(config.server.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.server.listen))?;
    let admin = match config.server.admin_listen {
        Some(address) => Some(
            TcpListener::bind(address)
                .await
                .with_context(|| format!("cannot listen on {address}"))?,
        ),
        None => None,
    };
    let (connection, postgres) = connect(&config, &progress).await?;
    let mut parts = Parts::new(&config, connection, &Environment::of_process())?;
    if postgres.is_some() {
        // An embedded database has only this replica.
        parts.rules.share_interval = None;
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
    pub fn new(
        config: &Config,
        connection: Connection,
        environment: &Environment,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            database: Database::new(&database_settings(config, connection))?,
            registry: models::registry(config, environment)?,
            mcp: mcp_servers::servers(config, environment)?,
            rules: rules(config),
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
        let quotas = Arc::new(Quotas::new(store.clone(), tenant_limits(&config.limits)));
        let engine = Engine::new(
            store,
            (self.registry, self.mcp),
            quotas,
            self.rules,
            hub,
            self.clock,
            &telemetry,
        );
        observe(&telemetry, &engine, &database);
        Ok(Service {
            engine,
            auth,
            tls,
            telemetry,
            admin: None,
            config,
            database,
            stop: Stop {
                shutdown,
                ..Stop::default()
            },
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
        let Self {
            engine,
            stop,
            auth,
            tls,
            telemetry,
            admin,
            config,
            database,
        } = self;
        let (reporter, health_service) = server::health();
        health::report_starting(&reporter).await;
        let address = listener.local_addr()?;
        let gate = Gate::new(Readiness::Closed(ClosedReason::Database));
        observe_readiness(&telemetry, gate.clone());
        let broken = CancellationToken::new();
        if let Some(admin) = admin {
            let pages = admin_port::Pages {
                gate: gate.clone(),
                telemetry: telemetry.clone(),
            };
            let stopped = stop.done.clone().cancelled_owned();
            let serving = admin_port::serve(admin, health_service.clone(), pages, stopped);
            require("admin port", &stop, &broken, serving);
        }
        let serving = server::serve(
            listener,
            Arc::clone(&engine),
            health_service,
            server::ServerAccess {
                gate: gate.clone(),
                auth: Arc::clone(&auth),
                tls: tls.clone(),
            },
            bounds(&config),
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
async fn drained(
    config: &Config,
    engine: &Arc<Engine>,
    readiness: JoinHandle<()>,
    closing: &CancellationToken,
) {
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
    while let Err(error) = engine.quotas().read_limits().await {
        tracing::warn!(%error, "cannot read the tenant limits yet; retrying");
        tokio::time::sleep(STARTUP_RETRY_INTERVAL).await;
    }
}

/// Migrates the database's schema to the newest version that this program knows.
pub async fn migrate(config: &Config, progress: &Progress) -> anyhow::Result<()> {
    let (database, postgres) = open(config, progress).await?;
    Reach::All
        .scope(run_migrations(&database, progress))
        .await?;
    close(database, postgres).await
}

/// Opens the database, even while servers are using it. Also returns the embedded PostgreSQL if this had to
/// start it.
async fn open(
    config: &Config,
    progress: &Progress,
) -> anyhow::Result<(Database, Option<Postgres>)> {
    let running = match config.database.url {
        Some(_) => None,
        None => postgres::find_running(&cluster_dir(config)).await,
    };
    let (connection, postgres) = match running {
        Some(connection) => (connection, None),
        None => connect(config, progress).await?,
    };
    let database = Database::new(&database_settings(config, connection))?;
    Ok((database, postgres))
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
    telemetry.observe_leases(move || engine.upgrade().map_or(0, |engine| engine.leases().count()));
    let database = database.clone();
    telemetry.observe_pools(move || database.status().to_vec());
}

fn observe_readiness(telemetry: &Telemetry, gate: Gate) {
    telemetry.observe_readiness(move || matches!(gate.readiness(), Readiness::Ready));
}

fn bounds(config: &Config) -> server::Bounds {
    server::Bounds {
        requests: request_body::Bounds {
            max_bytes: config.server.max_request_bytes,
            timeout: config.server.request_timeout,
            memory: (config.server.max_request_memory_bytes)
                .max(config.server.max_request_bytes.saturating_mul(2)),
            max_large_requests: config.server.max_large_requests,
        },
        max_blob_bytes: config.blobs.max_bytes,
        connections: connection::Bounds {
            max_connections: config.server.max_connections,
            handshake_timeout: config.server.handshake_timeout,
            max_control_frames_per_second: config.server.max_control_frames_per_second,
            idle_timeout: config.server.max_connection_idle,
            unauthenticated_timeout: config.server.unauthenticated_connection_timeout,
            max_unauthenticated_per_peer: config.server.max_unauthenticated_connections_per_peer,
        },
        http2: server::Http2 {
            max_concurrent_streams: config.server.max_concurrent_streams,
            max_header_bytes: config.server.max_header_bytes,
            max_pending_resets: config.server.max_pending_resets,
            max_error_resets: config.server.max_error_resets,
            keepalive_interval: config.server.keepalive_interval,
            keepalive_timeout: config.server.keepalive_timeout,
        },
        capacity: admission::Capacity {
            requests: config.server.max_requests,
            streams: config.server.max_open_streams,
            database_wait: config.database.overload_wait,
            answer_timeout: config.server.answer_timeout,
        },
        reader: ReaderLimits {
            events: config.stream.reader_events,
            bytes: config.stream.reader_bytes,
        },
        reflection: config.server.reflection,
    }
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
async fn connect(
    config: &Config,
    progress: &Progress,
) -> anyhow::Result<(Connection, Option<Postgres>)> {
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
    let mut settings = postgres::Settings::new(cluster_dir(config), guard);
    settings
        .runtime_dir
        .clone_from(&config.embedded.runtime_dir);
    settings.bin_dir.clone_from(&config.embedded.bin_dir);
    settings.search_path = environment.get("PATH").unwrap_or_default().into();
    settings.cache_dir = cache_dir(&environment);
    settings.max_connections = u32::try_from(config.embedded.max_connections).unwrap_or(u32::MAX);
    Ok(settings)
}

/// The PostgreSQL cluster's directory in the data directory.
fn cluster_dir(config: &Config) -> std::path::PathBuf {
    config.embedded.data_dir.join("postgresql")
}

/// Where `script/server` puts the PostgreSQL programs on machines without access to the package manager.
fn cache_dir(environment: &Environment) -> Option<std::path::PathBuf> {
    let cache = environment
        .get("XDG_CACHE_HOME")
        .map(std::path::PathBuf::from);
    cache
        .or_else(|| {
            environment
                .get("HOME")
                .map(|home| Path::new(&home).join(".cache"))
        })
        .map(|cache| cache.join("contextd"))
}

/// The connection, pool and timeout settings of the database.
pub fn database_settings(config: &Config, connection: Connection) -> store::Settings {
    let lease = config.turn.lease_ttl;
    store::Settings {
        config: connection,
        pool_size: config.database.pool_size,
        acquire_timeout: config.database.acquire_timeout,
        idle_timeout: config.database.idle_timeout,
        connect_timeout: config.database.connect_timeout,
        statement_timeout: config.database.statement_timeout,
        idle_in_transaction_timeout: IDLE_IN_TRANSACTION.min(lease * 2 / 3),
        ca_file: config.database.ca_file.clone(),
        verify_host_name: config.database.verifies_host_name(),
        transaction_pooler: config.database.transaction_pooler,
        row_security: config.database.row_security,
    }
}

fn tenant_limits(config: &LimitsConfig) -> TenantLimits {
    let LimitsConfig {
        running_turns,
        requests_per_second,
        tokens_per_minute,
        stored_bytes,
    } = *config;
    TenantLimits {
        running_turns,
        requests_per_second,
        tokens_per_minute,
        stored_bytes,
    }
}

fn rules(config: &Config) -> Rules {
    Rules {
        default_model: config.models.default_model.clone(),
        models_refresh: config
            .models
            .discover
            .then_some(config.models.refresh_interval),
        policies: config
            .policies
            .iter()
            .map(|(name, named)| (name.clone(), policies::policy(named)))
            .collect(),
        limits: Limits {
            max_steps: config.turn.default_max_steps,
            max_output_tokens: None,
            max_total_tokens: None,
            turn_timeout: config.turn.turn_timeout,
            tool_timeout: config.turn.tool_timeout,
            grace: Duration::ZERO,
        },
        max_takeovers: config.turn.max_takeovers,
        max_running: config.turn.max_running_turns,
        is_shared: config.auth.required,
        delta_flush: config.turn.delta_flush,
        max_answer_bytes: config.turn.max_answer_bytes,
        retries: Retries {
            attempts: config.turn.max_call_attempts,
            base: config.turn.retry_base_delay,
            max_delay: config.turn.retry_max_delay,
            max_retry_after: config.turn.retry_after_max,
        },
        share_interval: Some(config.turn.share_interval),
        poll_interval: config.turn.poll_interval,
        uploads: UploadBounds {
            max_bytes: config.blobs.max_bytes,
            max_at_once: config.blobs.max_uploads,
            idle: config.blobs.upload_idle_timeout,
            total: config.blobs.upload_timeout,
        },
        counts_at_once: config.server.max_large_requests,
        max_session_bytes: config.turn.max_session_bytes,
        prompt_memory: config.turn.prompt_memory,
        max_prompt_media_bytes: config.blobs.max_prompt_bytes,
        retention: Retention {
            request_ids: config.retention.request_ids,
            queue: config.retention.queue,
            events: config.retention.events,
            sessions: config.retention.sessions,
            tool_sets: config.retention.tool_sets,
            interval: config.retention.interval,
            batch: config.retention.batch_rows,
        },
    }
}
