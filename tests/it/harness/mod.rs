//! What every test over the public API starts from: a real PostgreSQL, a database of its own, a
//! server on a free port with real HTTP/2, scripted models, and generated stubs.

#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

pub mod cluster;
pub mod database;
pub mod dice;
pub mod errors;
pub mod events;
pub mod history;
pub mod host;
pub mod pooler;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod requests;
pub mod snapshot;
pub mod strict;
pub mod survivor;
pub mod terminal;
pub mod transcripts;
pub mod upstream;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use contextd::{
    clock::{Clock, SystemClock},
    grpc::{gate::Gate, health, server, standing::Standing, stream::Waiting},
    model::{
        Limits, OutputLimits, ToolExecution,
        config::{ContextPolicy, Policy},
    },
    pb::{
        self, blob_service_client::BlobServiceClient, get_blob_response::Data,
        session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient,
    },
    provider::{Provider, Registry, scripted::Scripted},
    store::Store,
    turn::{Engine, Hub, Retention, Rules, UploadBounds, run::retry::Retries},
    worker,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

pub use database::TestDatabase;
pub use host::Host;

/// One replica in this process: server, workers, engine.
pub struct Replica {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its engine, for a look inside.
    pub engine: Arc<Engine>,
    /// Its scripted models.
    pub scripted: Scripted,
    stop: CancellationToken,
    workers: CancellationToken,
}

/// How a replica differs from the usual one.
#[derive(Clone)]
pub struct Options {
    /// Scripts by name, as JSON.
    pub scripts: Vec<(String, String)>,
    /// Providers beside `scripted`, by name.
    pub providers: Vec<(String, Arc<dyn Provider>)>,
    /// The lease.
    pub lease: Duration,
    /// Bounds of turns that set none.
    pub limits: Limits,
    /// Whether heartbeat, takeover and polls run.
    pub workers: bool,
    /// Deltas within this time go out together.
    pub delta_flush: Duration,
    /// What may wait for a reader.
    pub reader: Waiting,
    /// How often text is shared with other replicas.
    pub share_interval: Duration,
    /// Bytes of a request.
    pub max_request_bytes: usize,
    /// Takeovers that are borne.
    pub max_takeovers: u32,
    /// Bounds of uploads.
    pub uploads: UploadBounds,
    /// Bytes of media in one prompt.
    pub max_prompt_media_bytes: u64,
    /// Calls of a model for one step. They follow each other at once; one only, unless a test is
    /// about the others.
    pub call_attempts: u32,
    /// Longest wait between them.
    pub retry_delay: Duration,
    /// How contexts are kept within their windows.
    pub context: ContextPolicy,
    /// How often the database is asked for what nobody told.
    pub poll: Duration,
    /// For how long what is kept; a test sweeps by `Engine::retain`.
    pub retention: Retention,
    /// What is sent in place of statements.
    pub replace: Option<fn(&'static str) -> &'static str>,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
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
            reader: Waiting {
                events: 64,
                bytes: 64 * 1024,
            },
            share_interval: Duration::from_millis(20),
            max_request_bytes: 4 * 1024 * 1024,
            max_takeovers: 5,
            uploads: UploadBounds {
                max_bytes: 8 * 1024 * 1024,
                max_at_once: 4,
                idle: Duration::from_secs(30),
                total: Duration::from_secs(600),
            },
            max_prompt_media_bytes: 20 * 1024 * 1024,
            call_attempts: 1,
            retry_delay: Duration::ZERO,
            // Room for whatever a test is about.
            context: ContextPolicy {
                context_window: Some(i32::MAX.unsigned_abs()),
                ..ContextPolicy::default()
            },
            poll: Duration::from_millis(100),
            retention: Retention {
                request_ids: Duration::from_hours(7 * 24),
                queue: Duration::from_hours(7 * 24),
                events: None,
                sessions: None,
                tool_sets: Duration::from_hours(24),
                interval: Duration::from_hours(1),
                batch: 500,
            },
            replace: None,
            clock: Arc::new(SystemClock),
        }
    }
}

impl Options {
    /// The usual replica with one more script.
    pub fn script(mut self, name: &str, json: impl Into<String>) -> Self {
        self.scripts.push((name.to_owned(), json.into()));
        self
    }

    /// The usual replica with one more provider.
    pub fn provider(mut self, name: &str, provider: Arc<dyn Provider>) -> Self {
        self.providers.push((name.to_owned(), provider));
        self
    }
}

impl Replica {
    /// A replica over the database.
    pub async fn start(database: &TestDatabase, options: Options) -> Self {
        let mut scripted = Scripted::new("scripted", None).unwrap().with_log();
        for (name, json) in &options.scripts {
            scripted = scripted.with_script(name, json).unwrap();
        }
        let pool = match options.replace {
            Some(replace) => database
                .pool()
                .rewriting(move |all| all.iter().map(|sql| replace(sql)).collect()),
            None => database.pool(),
        };
        let store = Store::new(pool, uuid::Uuid::now_v7().to_string(), options.lease);
        let registry = Registry::default().with("scripted", Arc::new(scripted.clone()));
        let registry = options
            .providers
            .iter()
            .fold(registry, |all, (name, it)| all.with(name, Arc::clone(it)));
        let engine = Engine::new(
            store,
            registry,
            rules(&options),
            Hub::default(),
            Arc::clone(&options.clock),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let workers = CancellationToken::new();
        if options.workers {
            worker::start(&engine, &workers, &workers);
        }
        let (reporter, health_service) = server::health();
        health::begin(&reporter).await;
        let gate = Gate::new(Standing::Ready);
        tokio::spawn(health::follow(
            reporter,
            gate.clone(),
            Arc::clone(&engine),
            workers.clone(),
        ));
        let bounds = server::Bounds {
            max_request_bytes: options.max_request_bytes,
            max_concurrent_streams: 1000,
            reader: options.reader,
            reflection: true,
        };
        let serving = server::serve(
            listener,
            Arc::clone(&engine),
            health_service,
            gate,
            bounds,
            stop.clone().cancelled_owned(),
        );
        tokio::spawn(async move { serving.await.unwrap() });
        Self {
            address,
            engine,
            scripted,
            stop,
            workers,
        }
    }

    /// A database of its own and one replica over it.
    pub async fn alone(options: Options) -> (TestDatabase, Self) {
        let database = TestDatabase::new().await;
        let replica = Self::start(&database, options).await;
        (database, replica)
    }

    /// A connection to it.
    pub async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address))
            .unwrap()
            .connect()
            .await
            .unwrap()
    }

    /// TurnService over a connection of its own.
    pub async fn turns(&self) -> TurnServiceClient<Channel> {
        TurnServiceClient::new(self.channel().await)
    }

    /// SessionService over a connection of its own.
    pub async fn sessions(&self) -> SessionServiceClient<Channel> {
        SessionServiceClient::new(self.channel().await)
    }

    /// Reads a blob, or a range of it, with its description.
    pub async fn blob(&self, request: pb::GetBlobRequest) -> (pb::Blob, Vec<u8>) {
        let mut blobs = BlobServiceClient::new(self.channel().await);
        let mut stream = blobs.get_blob(request).await.unwrap().into_inner();
        let Some(Data::Blob(blob)) = stream.message().await.unwrap().unwrap().data else {
            panic!("no description")
        };
        let mut content = Vec::new();
        while let Some(piece) = stream.message().await.unwrap() {
            let Some(Data::Chunk(bytes)) = piece.data else {
                panic!("no chunk")
            };
            assert!(bytes.len() <= 64 * 1024, "a piece is too large");
            content.extend(bytes);
        }
        (blob, content)
    }

    /// Stops the workers without giving any lease back: what a killed process leaves behind, as far
    /// as the database sees. The turns that run here are not stopped; let their scripts wait
    /// for a signal.
    pub fn fall_silent(&self) {
        self.workers.cancel();
    }

    /// Shuts down as a signal would.
    pub async fn drain(&self, patience: Duration) {
        self.engine.drain(patience).await;
        self.stop.cancel();
        self.workers.cancel();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.cancel();
        self.workers.cancel();
    }
}

fn rules(options: &Options) -> Rules {
    let limits = |chars, lines, line, matches| OutputLimits {
        max_chars: chars,
        max_lines: lines,
        max_line_length: line,
        max_matches: matches,
        keep: None,
    };
    let policy = Policy {
        execution: ToolExecution::Parallel,
        default_output_limits: limits(Some(120_000), None, None, None),
        output_limits: [
            ("bash".to_owned(), limits(Some(30_000), None, None, None)),
            (
                "read".to_owned(),
                limits(None, Some(2_000), Some(2_000), None),
            ),
            ("grep".to_owned(), limits(None, None, None, Some(1_000))),
        ]
        .into(),
        context: options.context.clone(),
        max_pending: 100,
        take: contextd::model::TakeMode::All,
    };
    Rules {
        default_model: "scripted/demo".to_owned(),
        policies: [("default".to_owned(), policy)].into(),
        limits: options.limits,
        max_takeovers: options.max_takeovers,
        max_running: 100,
        delta_flush: options.delta_flush,
        max_answer_bytes: 768 * 1024,
        max_prompt_media_bytes: options.max_prompt_media_bytes,
        retries: Retries {
            attempts: options.call_attempts,
            base: options.retry_delay,
            most: options.retry_delay,
            most_asked: Duration::from_secs(60),
        },
        share_interval: Some(options.share_interval),
        poll_interval: options.poll,
        uploads: options.uploads,
        retention: options.retention,
    }
}
