//! The setup of every test of the public API: a real PostgreSQL, a separate database, a server on a free port with real
//! HTTP/2, scripted models, and generated stubs.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test takes what it needs")]

pub mod cluster;
pub mod collector;
pub mod database;
pub mod dice;
pub mod errors;
pub mod events;
pub mod history;
pub mod host;
pub mod invariants;
pub mod log;
pub mod mcp_server;
pub mod payloads;
pub mod pooler;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod remembered;
pub mod requests;
pub mod scratch;
pub mod snapshot;
pub mod strict;
pub mod survivor;
pub mod terminal;
pub mod transcripts;
pub mod unary;
pub mod upstream;
pub mod validate;

use std::{
    net::{Shutdown, SocketAddr},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use contextd::{
    app::{Parts, Stop},
    auth::Auth,
    clock::{Clock, SystemClock},
    config::{AuthConfig, BlobsConfig, Config, Environment, McpConfig, RetentionConfig, StreamConfig, TlsConfig},
    model::{Limits, TenantLimits, config::ContextPolicy},
    pb::{
        self, blob_service_client::BlobServiceClient, get_blob_response::Data,
        session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient,
    },
    provider::{Provider, scripted::Scripted},
    store::Reach,
    telemetry::progress::{Notice, Progress},
    turn::Engine,
};
use tokio::{net::TcpListener, sync::Notify};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

pub use database::TestDatabase;
pub use host::Host;

/// One replica in this process: server, workers and engine.
pub struct Replica {
    /// The address on which it listens.
    pub address: SocketAddr,
    /// The address of its admin port.
    pub admin: SocketAddr,
    /// The engine, for access to internals.
    pub engine: Arc<Engine>,
    /// The authentication of its callers.
    pub auth: Arc<Auth>,
    /// The scripted models.
    pub scripted: Scripted,
    stop: Stop,
    /// The socket of the admin port, if the test is going to break it.
    admin_socket: Option<std::net::TcpListener>,
    /// Stops the task that reads keys and limits.
    knowing: tokio::task::AbortHandle,
}

/// The settings in which a replica differs from the default one.
#[derive(Clone)]
pub struct Options {
    /// Scripts by name, as JSON.
    pub scripts: Vec<(String, String)>,
    /// Providers in addition to `scripted`, by name.
    pub providers: Vec<(String, Arc<dyn Provider>)>,
    /// The duration of a lease.
    pub lease: Duration,
    /// Limits of turns that set none.
    pub limits: Limits,
    /// Whether heartbeat, takeover and polls run.
    pub workers: bool,
    /// Deltas within this time are sent together.
    pub delta_flush: Duration,
    /// What may be buffered for a reader.
    pub stream: StreamConfig,
    /// How often text is shared with other replicas.
    pub share_interval: Duration,
    /// Maximum bytes of a request.
    pub max_request_bytes: usize,
    /// Maximum number of takeovers of a turn.
    pub max_takeovers: u32,
    /// Limits of uploads, and of the media in one prompt.
    pub blobs: BlobsConfig,
    /// Maximum attempts of a model call per step, without a delay between them. One, unless a test is about retries.
    pub call_attempts: u32,
    /// Maximum delay between attempts.
    pub retry_delay: Duration,
    /// How contexts are kept within their windows.
    pub context: ContextPolicy,
    /// How often the database is polled for changes without a notification.
    pub poll: Duration,
    /// Retention periods. A test applies them with `Engine::retain`.
    pub retention: RetentionConfig,
    /// Whether row-level security restricts tenants to their rows.
    pub row_security: bool,
    /// Replaces statements before they are sent.
    pub replace: Option<fn(&'static str) -> &'static str>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// How often the models of providers are discovered. `None` disables discovery.
    pub discover: Option<Duration>,
    /// Maximum number of concurrent turns.
    pub max_running: usize,
    /// Maximum number of concurrent requests.
    pub max_requests: usize,
    /// Maximum number of large requests that are decoded, and of token counts, at the same time.
    pub max_large_requests: usize,
    /// The limits of tenants.
    pub tenant_limits: TenantLimits,
    /// The authentication configuration.
    pub auth: AuthConfig,
    /// TLS for clients.
    pub tls: TlsConfig,
    /// How long the replica keeps serving, as NOT_SERVING, before it drains.
    pub drain_delay: Duration,
    /// The collector to which metrics and spans are pushed.
    pub otlp: Option<String>,
    /// MCP servers by name.
    pub mcp: Vec<(String, McpConfig)>,
    /// Maximum bytes of turn data that a replica caches.
    pub session_memory: usize,
    /// Set if the test is going to call [`Replica::break_admin_port`].
    pub breaks_admin_port: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scripts: Vec::new(),
            providers: Vec::new(),
            lease: Duration::from_secs(15),
            limits: Limits {
                max_steps: 50,
                max_output_tokens: None,
                max_total_tokens: None,
                turn_timeout: Duration::from_secs(3600),
                tool_timeout: Duration::from_secs(600),
                grace: Duration::ZERO,
            },
            workers: true,
            delta_flush: Duration::from_millis(10),
            stream: StreamConfig { reader_events: 64, reader_bytes: 64 * 1024 },
            share_interval: Duration::from_millis(20),
            max_request_bytes: 4 * 1024 * 1024,
            max_takeovers: 5,
            blobs: BlobsConfig {
                max_bytes: 8 * 1024 * 1024,
                max_prompt_bytes: 20 * 1024 * 1024,
                max_uploads: 4,
                upload_idle_timeout: Duration::from_secs(30),
                upload_timeout: Duration::from_secs(600),
            },
            call_attempts: 1,
            retry_delay: Duration::ZERO,
            // Large enough for any test.
            context: ContextPolicy { context_window: Some(i32::MAX.unsigned_abs()), ..ContextPolicy::default() },
            poll: Duration::from_millis(100),
            retention: RetentionConfig {
                request_ids: Duration::from_hours(7 * 24),
                queue: Duration::from_hours(7 * 24),
                events: None,
                sessions: None,
                tool_sets: Duration::from_hours(24),
                interval: Duration::from_hours(1),
                batch_rows: 500,
            },
            row_security: held_to_rows(),
            replace: None,
            clock: Arc::new(SystemClock),
            discover: None,
            max_running: 1000,
            max_requests: 512,
            max_large_requests: Config::default().server.max_large_requests,
            tenant_limits: TenantLimits::default(),
            auth: AuthConfig::default(),
            tls: TlsConfig::default(),
            drain_delay: Duration::ZERO,
            otlp: None,
            mcp: Vec::new(),
            session_memory: 32 << 20,
            breaks_admin_port: false,
        }
    }
}

impl Options {
    /// The default configuration with these options.
    fn config(&self) -> Config {
        let mut config = Config { providers: [].into(), ..Config::default() };
        config.models.default_model = "scripted/demo".to_owned();
        config.auth = self.auth.clone();
        config.tls = self.tls.clone();
        config.limits = self.tenant_limits;
        config.server.max_requests = self.max_requests;
        config.server.max_large_requests = self.max_large_requests;
        config.database.overload_wait = Duration::from_secs(10); // other tests keep the machine busy
        config.turn.max_running_turns = self.max_running;
        config.server.drain_delay = self.drain_delay;
        config.telemetry.otlp.endpoint.clone_from(&self.otlp);
        config.telemetry.otlp.metrics_interval = Duration::from_millis(100);
        config.mcp = self.mcp.iter().cloned().collect();
        config.models.discover = self.discover.is_some();
        config.models.refresh_interval = self.discover.unwrap_or_default();
        config.server.max_request_bytes = self.max_request_bytes;
        config.stream = self.stream;
        config.blobs = self.blobs;
        config.turn.lease_ttl = self.lease;
        config.turn.default_max_steps = self.limits.max_steps;
        config.turn.turn_timeout = self.limits.turn_timeout;
        config.turn.tool_timeout = self.limits.tool_timeout;
        config.turn.max_takeovers = self.max_takeovers;
        config.turn.delta_flush = self.delta_flush;
        config.turn.share_interval = self.share_interval;
        config.turn.session_memory = self.session_memory;
        config.turn.poll_interval = self.poll;
        config.turn.max_call_attempts = self.call_attempts;
        config.turn.retry_base_delay = self.retry_delay;
        config.turn.retry_max_delay = self.retry_delay;
        config.retention = self.retention;
        config
    }

    /// Options for a replica that caches no turn data.
    pub fn without_session_memory(self) -> Self {
        Self { session_memory: 0, ..self }
    }

    /// Adds a script.
    pub fn script(mut self, name: &str, json: impl Into<String>) -> Self {
        self.scripts.push((name.to_owned(), json.into()));
        self
    }

    /// Adds a provider.
    pub fn provider(mut self, name: &str, provider: Arc<dyn Provider>) -> Self {
        self.providers.push((name.to_owned(), provider));
        self
    }
}

/// Runs `work` with the access of a worker of the service.
pub fn as_worker<F: Future>(work: F) -> impl Future<Output = F::Output> {
    Reach::All.scope(work)
}

/// Whether `CONTEXTD_TEST_ROW_SECURITY` enables row-level security for replicas whose test does not decide it.
fn held_to_rows() -> bool {
    std::env::var_os("CONTEXTD_TEST_ROW_SECURITY").is_some()
}

impl Replica {
    /// Starts a replica on the database.
    pub async fn start(database: &TestDatabase, options: Options) -> Self {
        let mut scripted = Scripted::new("scripted", None).unwrap().with_log();
        for (name, json) in &options.scripts {
            scripted = scripted.with_script(name, json).unwrap();
        }
        let pool = if options.row_security {
            let pool = database.held_pool();
            Box::pin(contextd::store::migrate::run(&pool)).await.unwrap();
            pool
        } else {
            database.pool()
        };
        let pool = match options.replace {
            Some(replace) => pool.rewriting(move |all| all.iter().map(|sql| replace(sql)).collect()),
            None => pool,
        };
        let config = options.config();
        let mut parts = Parts::new(&config, database.config.clone(), &Environment::default()).unwrap();
        parts.database = pool;
        let scripted_model: Arc<dyn Provider> = Arc::new(scripted.clone());
        let providers = [("scripted".to_owned(), scripted_model)];
        for (name, provider) in providers.into_iter().chain(options.providers) {
            parts.registry = parts.registry.with(&name, provider);
        }
        parts.clock = options.clock;
        for policy in parts.rules.policies.values_mut() {
            policy.context = options.context.clone();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut service = parts.assemble(config, CancellationToken::new()).unwrap();
        let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        admin.set_nonblocking(true).unwrap();
        let admin_socket = options.breaks_admin_port.then(|| admin.try_clone().unwrap());
        let admin_address = admin.local_addr().unwrap();
        service.admin = Some(TcpListener::from_std(admin).unwrap());
        let engine = Arc::clone(&service.engine);
        let auth = Arc::clone(&service.auth);
        let stop = service.stop.clone();
        if !options.workers {
            stop.stopping.cancel();
            stop.done.cancel();
            Box::pin(as_worker(engine.send_heartbeat())).await.unwrap();
        }
        let ready = Arc::new(Notify::new());
        let announced = Arc::clone(&ready);
        let progress = Progress::new(move |notice| {
            if matches!(notice, Notice::Ready(_)) {
                announced.notify_one();
            }
        });
        tokio::spawn(async move { service.serve(listener, &progress, None).await.unwrap() });
        ready.notified().await;
        let knowing = tokio::spawn(keep_knowing(Arc::clone(&engine), Arc::clone(&auth)));
        Self {
            address,
            admin: admin_address,
            engine,
            auth,
            scripted,
            stop,
            admin_socket,
            knowing: knowing.abort_handle(),
        }
    }

    /// Creates a database and starts one replica on it.
    pub async fn alone(options: Options) -> (TestDatabase, Self) {
        let database = TestDatabase::new().await;
        let replica = Self::start(&database, options).await;
        (database, replica)
    }

    /// Opens a connection.
    pub async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    /// A TurnService client on a new connection.
    pub async fn turns(&self) -> TurnServiceClient<Channel> {
        TurnServiceClient::new(self.channel().await)
    }

    /// A SessionService client on a new connection.
    pub async fn sessions(&self) -> SessionServiceClient<Channel> {
        SessionServiceClient::new(self.channel().await)
    }

    /// The metrics in the Prometheus text format.
    pub async fn scrape(&self) -> String {
        let answer = reqwest::get(format!("http://{}/metrics", self.admin)).await;
        answer.unwrap().text().await.unwrap()
    }

    /// Reads a blob, or a range of it, with its metadata.
    pub async fn blob(&self, request: pb::GetBlobRequest) -> (pb::Blob, Vec<u8>) {
        let mut blobs = BlobServiceClient::new(self.channel().await);
        let mut stream = blobs.get_blob(request).await.unwrap().into_inner();
        let Some(Data::Blob(blob)) = stream.message().await.unwrap().unwrap().data else { panic!("no description") };
        let mut content = Vec::new();
        while let Some(piece) = stream.message().await.unwrap() {
            let Some(Data::Chunk(bytes)) = piece.data else { panic!("no chunk") };
            assert!(bytes.len() <= 64 * 1024, "a piece is too large");
            content.extend(bytes);
        }
        (blob, content)
    }

    /// Starts the shutdown as a signal would; the replica keeps serving for its `drain_delay`.
    pub fn begin_shutdown(&self) {
        self.stop.shutdown.cancel();
    }

    /// Stops the workers without releasing leases, which to the database looks like a killed process. Turns that run
    /// here are not stopped; let their scripts wait for a signal.
    pub fn stop_workers(&self) {
        self.stop.stopping.cancel();
        self.stop.done.cancel();
    }

    /// Shuts down as a signal would.
    pub async fn drain(&self, patience: Duration) {
        as_worker(self.engine.drain(patience)).await;
        self.close();
    }

    /// Closes the socket of the admin port, so that it accepts no connection any more.
    pub fn break_admin_port(&self) {
        let socket = self.admin_socket.as_ref().expect("`breaks_admin_port`");
        let socket = OwnedFd::from(socket.try_clone().unwrap());
        let socket = std::net::TcpStream::from(socket);
        socket.shutdown(Shutdown::Both).unwrap();
    }

    fn close(&self) {
        self.stop_workers();
        self.stop.closing.cancel();
    }
}

/// Reads keys and limits as the workers do, even if a test runs without workers: if they are outdated, calls are
/// refused.
async fn keep_knowing(engine: Arc<Engine>, auth: Arc<Auth>) {
    let mut pace = tokio::time::interval(contextd::quota::REFRESH_INTERVAL);
    loop {
        pace.tick().await;
        let _ = as_worker(engine.capacity.quotas.read_limits()).await;
        let _ = as_worker(auth.refresh_keys()).await;
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.knowing.abort();
        self.close();
    }
}
