//! Every instrument of the metrics: its name, unit, kind and the bounds of its buckets. Names of
//! OpenTelemetry's conventions where there is one, else `contextd.*`. docs/metrics.md lists them; a
//! test compares the two.
//!
//! No attribute of a metric holds the id of a tenant, session, turn or request, and each takes few values.

/// What an instrument is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A sum that only grows.
    Counter,
    /// A sum that grows and shrinks.
    UpDownCounter,
    /// The newest value.
    Gauge,
    /// A distribution, with the upper bounds of its buckets.
    Histogram(&'static [f64]),
}

/// An instrument.
#[derive(Debug, Clone, Copy)]
pub struct Instrument {
    /// Its name.
    pub name: &'static str,
    /// Its unit, in UCUM.
    pub unit: &'static str,
    /// What it is.
    pub kind: Kind,
    /// What it measures.
    pub description: &'static str,
}

impl Instrument {
    /// The upper bounds of its buckets. Empty if it is no histogram.
    pub fn buckets(&self) -> Vec<f64> {
        match self.kind {
            Kind::Histogram(bounds) => bounds.to_vec(),
            Kind::Counter | Kind::UpDownCounter | Kind::Gauge => Vec::new(),
        }
    }
}

macro_rules! instruments {
    ($($constant:ident = $kind:expr, $name:literal, $unit:literal, $description:literal;)+) => {
        $(
            #[doc = $description]
            pub const $constant: Instrument = Instrument {
                name: $name,
                unit: $unit,
                kind: $kind,
                description: $description,
            };
        )+

        /// All of them.
        pub const INSTRUMENTS: &[&Instrument] = &[$(&$constant),+];
    };
}

/// Of RPCs, in seconds, by the RPC conventions.
const RPC: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];
/// Of database operations, in seconds, by the database conventions.
const DATABASE: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
/// Of what contextd adds, in seconds.
const SHORT: &[f64] = &[
    0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
];
/// Of model calls, in seconds, by the GenAI conventions.
const MODEL_CALL: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];
/// Of first chunks, in seconds, by the GenAI conventions.
const FIRST_CHUNK: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];
/// Of tokens, by the GenAI conventions.
const TOKENS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// Of predicted to reported tokens.
const RATIO: &[f64] = &[
    0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0,
];

instruments! {
    RPC_DURATION = Kind::Histogram(RPC), "rpc.server.call.duration", "s", "Duration of RPCs; of streams, until they end";
    RPC_ACTIVE = Kind::UpDownCounter, "contextd.rpc.active", "{call}", "RPCs that are being answered";
    RPC_REJECTED = Kind::Counter, "contextd.rpc.rejected", "{call}", "RPCs refused for who calls, for a limit, or because the server is not ready";
    CONNECTIONS_ENDED = Kind::Counter, "contextd.connection.ended", "{connection}", "Connections of clients that the server ended for what they did or did not do";
    BUILD_INFO = Kind::Gauge, "contextd.build.info", "", "Always 1; its labels say which build this is";
    READY = Kind::Gauge, "contextd.ready", "", "1 while the server takes requests";
    TURN_STARTED = Kind::Counter, "contextd.turn.started", "{turn}", "Turns started on this replica";
    TURN_ENDED = Kind::Counter, "contextd.turn.ended", "{turn}", "Turns ended by this replica";
    TURN_RUNNING = Kind::UpDownCounter, "contextd.turn.running", "{turn}", "Turns that run on this replica; one that waits for tools runs nowhere";
    TURN_FIRST_TOKEN = Kind::Histogram(FIRST_CHUNK), "contextd.turn.time_to_first_token", "s", "From the request until readers are shown the first of the answer";
    TURN_OVERHEAD = Kind::Histogram(SHORT), "contextd.turn.overhead", "s", "What contextd adds to the time of the model: from the request to the call, and from its last byte to the commit";
    STEP_DURATION = Kind::Histogram(MODEL_CALL), "contextd.step.duration", "s", "From the look at a step to its commit, the call of the model included";
    MODEL_DURATION = Kind::Histogram(MODEL_CALL), "gen_ai.client.operation.duration", "s", "Duration of model calls";
    MODEL_FIRST_CHUNK = Kind::Histogram(FIRST_CHUNK), "gen_ai.client.operation.time_to_first_chunk", "s", "From a model call until the first of its answer";
    MODEL_TOKENS = Kind::Histogram(TOKENS), "gen_ai.client.token.usage", "{token}", "Tokens of model calls, as providers report them";
    TOOL_DURATION = Kind::Histogram(MODEL_CALL), "gen_ai.execute_tool.duration", "s", "Duration of calls of MCP servers' tools";
    MODEL_RETRIES = Kind::Counter, "contextd.model.retries", "{call}", "Model calls that are made again after a failure";
    ESTIMATE_RATIO = Kind::Histogram(RATIO), "contextd.estimate.ratio", "", "Predicted tokens of a prompt divided by those that the provider reported, where that can be its size";
    COMPACTIONS = Kind::Counter, "contextd.compaction.ended", "{compaction}", "Compactions that were applied, or failed";
    COMPACTION_TOKENS = Kind::Histogram(TOKENS), "contextd.compaction.tokens", "{token}", "Tokens of a context before and after it was compacted, and what that saved";
    PRUNES = Kind::Counter, "contextd.prune.applied", "{prune}", "Times that old tool results were cleared";
    PRUNED_TOKENS = Kind::Counter, "contextd.prune.tokens", "{token}", "Tokens that clearing old tool results saved";
    QUEUE_DEPTH = Kind::Gauge, "contextd.queue.depth", "{message}", "Messages that wait in queues, in the whole database; counted up to a bound";
    QUEUE_AGE = Kind::Gauge, "contextd.queue.oldest_age", "s", "How long the oldest of them has waited";
    LEASES = Kind::Gauge, "contextd.lease.held", "{lease}", "Leases that this replica holds";
    TAKEOVERS = Kind::Counter, "contextd.takeover.tried", "{turn}", "Turns without an owner that this replica tried to take over";
    REPLAY_BYTES = Kind::Counter, "contextd.stream.replayed", "By", "Bytes of events that were sent to readers that came back";
    STREAM_LAG = Kind::Histogram(SHORT), "contextd.stream.lag", "s", "From the commit of an event until it is handed to a reader";
    DB_DURATION = Kind::Histogram(DATABASE), "db.client.operation.duration", "s", "Duration of statements and transactions";
    DB_CONNECTIONS = Kind::Gauge, "db.client.connection.count", "{connection}", "Connections of the pool by state";
    DB_CONNECTIONS_MAX = Kind::Gauge, "db.client.connection.max", "{connection}", "Most connections of the pool";
    DB_PENDING = Kind::Gauge, "db.client.connection.pending_requests", "{request}", "Who waits for a connection";
    DB_TIMEOUTS = Kind::Counter, "db.client.connection.timeouts", "{timeout}", "Waits for a connection that were given up";
    DB_CONNECT_FAILURES = Kind::Counter, "contextd.database.connect_failures", "{connection}", "Connections to the database that could not be made";
    DB_WAIT = Kind::Histogram(DATABASE), "db.client.connection.wait_time", "s", "How long was waited for a connection";
    WAKEUPS = Kind::Counter, "contextd.wakeup", "{wakeup}", "Wake-ups between replicas, sent and heard";
    REMOVED = Kind::Counter, "contextd.retention.removed", "{row}", "Rows, sessions and blobs removed because their time was over";
}
