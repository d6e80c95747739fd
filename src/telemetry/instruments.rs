//! Every instrument of the metrics: its name, unit, kind and histogram buckets. Names follow the OpenTelemetry
//! conventions where one exists, otherwise `contextd.*`. docs/metrics.md lists them; a test compares the two.
//!
//! No metric attribute holds the id of a tenant, session, turn or request, and each attribute has few values.

/// The kind of an instrument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A sum that only increases.
    Counter,
    /// A sum that increases and decreases.
    UpDownCounter,
    /// The latest value.
    Gauge,
    /// A distribution; holds the upper bounds of its buckets.
    Histogram(&'static [f64]),
}

/// A metric instrument.
#[derive(Debug, Clone, Copy)]
pub struct Instrument {
    pub name: &'static str,
    /// In UCUM.
    pub unit: &'static str,
    pub kind: Kind,
    pub description: &'static str,
}

impl Instrument {
    /// The upper bounds of the buckets. Empty unless the instrument is a histogram.
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

        /// All instruments.
        pub const INSTRUMENTS: &[&Instrument] = &[$(&$constant),+];
    };
}

/// Buckets for RPC durations in seconds, from the RPC conventions.
const RPC: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Buckets for database operations in seconds, from the database conventions.
const DATABASE: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
/// Buckets for the overhead of contextd in seconds.
const SHORT: &[f64] = &[0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
/// Buckets for model calls in seconds, from the GenAI conventions.
const MODEL_CALL: &[f64] = &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Buckets for the time to first chunk in seconds, from the GenAI conventions.
const FIRST_CHUNK: &[f64] =
    &[0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Buckets for token counts, from the GenAI conventions.
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
/// Buckets for the ratio of predicted to reported tokens.
const RATIO: &[f64] = &[0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0];

instruments! {
    RPC_DURATION = Kind::Histogram(RPC), "rpc.server.call.duration", "s", "Duration of RPCs; for streams, until they end";
    RPC_ACTIVE = Kind::UpDownCounter, "contextd.rpc.active", "{call}", "RPCs in progress";
    RPC_REJECTED = Kind::Counter, "contextd.rpc.rejected", "{call}", "RPCs rejected because of the caller, a limit, or because the server is not ready";
    CONNECTIONS_ENDED = Kind::Counter, "contextd.connection.ended", "{connection}", "Client connections that the server closed";
    BUILD_INFO = Kind::Gauge, "contextd.build.info", "", "Always 1; its labels identify the build";
    READY = Kind::Gauge, "contextd.ready", "", "1 while the server accepts requests";
    TURN_STARTED = Kind::Counter, "contextd.turn.started", "{turn}", "Turns started on this replica";
    TURN_ENDED = Kind::Counter, "contextd.turn.ended", "{turn}", "Turns ended by this replica";
    TURN_RUNNING = Kind::UpDownCounter, "contextd.turn.running", "{turn}", "Turns that run on this replica; turns that wait for tools do not count";
    TURN_FIRST_TOKEN = Kind::Histogram(FIRST_CHUNK), "contextd.turn.time_to_first_token", "s", "From the request until readers get the first part of the response";
    TURN_OVERHEAD = Kind::Histogram(SHORT), "contextd.turn.overhead", "s", "Time that contextd adds to the model's time: from the request to the model call, and from the last byte of the response to the commit";
    STEP_DURATION = Kind::Histogram(MODEL_CALL), "contextd.step.duration", "s", "From the start of a step to its commit, including the model call";
    MODEL_DURATION = Kind::Histogram(MODEL_CALL), "gen_ai.client.operation.duration", "s", "Duration of model calls";
    MODEL_FIRST_CHUNK = Kind::Histogram(FIRST_CHUNK), "gen_ai.client.operation.time_to_first_chunk", "s", "From a model call until the first chunk of its response";
    MODEL_TOKENS = Kind::Histogram(TOKENS), "gen_ai.client.token.usage", "{token}", "Tokens of model calls, as providers report them";
    TOOL_DURATION = Kind::Histogram(MODEL_CALL), "gen_ai.execute_tool.duration", "s", "Duration of calls of MCP servers' tools";
    MODEL_RETRIES = Kind::Counter, "contextd.model.retries", "{call}", "Model calls that are retried after a failure";
    ESTIMATE_RATIO = Kind::Histogram(RATIO), "contextd.estimate.ratio", "", "Predicted tokens of a prompt divided by those that the provider reported, if that can be the size of the prompt";
    COMPACTIONS = Kind::Counter, "contextd.compaction.ended", "{compaction}", "Compactions that were applied, or failed";
    COMPACTION_TOKENS = Kind::Histogram(TOKENS), "contextd.compaction.tokens", "{token}", "Tokens of a context before and after it was compacted, and what that saved";
    PRUNES = Kind::Counter, "contextd.prune.applied", "{prune}", "Prunes of old tool results";
    PRUNED_TOKENS = Kind::Counter, "contextd.prune.tokens", "{token}", "Tokens that pruning old tool results saved";
    QUEUE_DEPTH = Kind::Gauge, "contextd.queue.depth", "{message}", "Queued messages in the whole database; counted up to a limit";
    QUEUE_AGE = Kind::Gauge, "contextd.queue.oldest_age", "s", "Age of the oldest queued message";
    LEASES = Kind::Gauge, "contextd.lease.held", "{lease}", "Leases that this replica holds";
    TAKEOVERS = Kind::Counter, "contextd.takeover.tried", "{turn}", "Turns without an owner that this replica tried to take over";
    REPLAY_BYTES = Kind::Counter, "contextd.stream.replayed", "By", "Bytes of events that were sent to readers that reconnected";
    STREAM_LAG = Kind::Histogram(SHORT), "contextd.stream.lag", "s", "From the commit of an event until it is sent to a reader";
    DB_DURATION = Kind::Histogram(DATABASE), "db.client.operation.duration", "s", "Duration of statements and transactions";
    DB_CONNECTIONS = Kind::Gauge, "db.client.connection.count", "{connection}", "Connections of the pool by state";
    DB_CONNECTIONS_MAX = Kind::Gauge, "db.client.connection.max", "{connection}", "Maximum number of connections of the pool";
    DB_PENDING = Kind::Gauge, "db.client.connection.pending_requests", "{request}", "Requests that wait for a connection";
    DB_TIMEOUTS = Kind::Counter, "db.client.connection.timeouts", "{timeout}", "Waits for a connection that timed out";
    DB_CONNECT_FAILURES = Kind::Counter, "contextd.database.connect_failures", "{connection}", "Failed attempts to connect to the database";
    DB_WAIT = Kind::Histogram(DATABASE), "db.client.connection.wait_time", "s", "Time spent waiting for a connection";
    WAKEUPS = Kind::Counter, "contextd.wakeup", "{wakeup}", "Notifications between replicas, sent and received";
    REMOVED = Kind::Counter, "contextd.retention.removed", "{row}", "Rows, sessions and blobs removed because their retention time expired";
}
