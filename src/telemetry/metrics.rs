//! What is measured: one method for each thing that happens. Attributes are made here alone, so that
//! no id of a tenant or session can be among them.

use std::{fmt, sync::Arc, time::Duration};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Gauge, Histogram, Meter, MeterProvider as _, UpDownCounter},
};
use opentelemetry_sdk::metrics::SdkMeterProvider;

use super::{
    instruments::{self, Instrument},
    label_values::{self, Bounded, ConnectionEnd, OTHER, ToolResult},
    names::{self, attribute, span},
};
use crate::model::{Compaction, CompactionState, Ending, Usage, UsagePurpose};

/// Models that have labels of their own.
const MOST_MODELS: usize = 200;
/// MCP servers that have labels of their own.
const MOST_SERVERS: usize = 100;
/// Reasons of rejections that have labels of their own; there are fewer.
const MOST_REASONS: usize = 100;
/// What retention removes, as `contextd.kind` names it.
const REMOVED_KINDS: [&str; 6] = [
    "blobs",
    "events",
    "queued_messages",
    "request_ids",
    "sessions",
    "tool_sets",
];

/// Why connections to the database cannot be made.
const CONNECT_FAILURES: [&str; 4] = [
    "no_connection_left",
    "refused",
    "transaction_pooler",
    "unavailable",
];

/// What is measured. Clones measure into the same instruments.
#[derive(Clone)]
pub struct Metrics(Arc<Instruments>);

struct Instruments {
    rpc_duration: Histogram<f64>,
    rpc_active: UpDownCounter<i64>,
    rpc_rejected: Counter<u64>,
    connections_ended: Counter<u64>,
    turn_started: Counter<u64>,
    turn_ended: Counter<u64>,
    turn_running: UpDownCounter<i64>,
    turn_first_token: Histogram<f64>,
    turn_overhead: Histogram<f64>,
    step_duration: Histogram<f64>,
    model_duration: Histogram<f64>,
    model_first_chunk: Histogram<f64>,
    model_tokens: Histogram<u64>,
    tool_duration: Histogram<f64>,
    model_retries: Counter<u64>,
    estimate_ratio: Histogram<f64>,
    compactions: Counter<u64>,
    compaction_tokens: Histogram<u64>,
    prunes: Counter<u64>,
    pruned_tokens: Counter<u64>,
    queue_depth: Gauge<u64>,
    queue_age: Gauge<f64>,
    takeovers: Counter<u64>,
    replay_bytes: Counter<u64>,
    stream_lag: Histogram<f64>,
    db_duration: Histogram<f64>,
    db_timeouts: Counter<u64>,
    db_connect_failures: Counter<u64>,
    db_wait: Histogram<f64>,
    wakeups: Counter<u64>,
    removed: Counter<u64>,
    models: Bounded,
    servers: Bounded,
    reasons: Bounded,
}

/// What began a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnOrigin {
    /// ExecuteTurn.
    Execute,
    /// A queued message.
    Queue,
}

/// Which part of what contextd adds to the time of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// From the request to the first call of the model.
    BeforeCall,
    /// From the last byte of the model to the commit of the step.
    AfterCall,
}

/// How an attempt to take a turn over came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takeover {
    /// It runs here.
    Taken,
    /// Another replica was first, or its owner lives.
    Lost,
    /// It could not be tried.
    Failed,
}

/// A call of a model.
#[derive(Debug, Clone, Copy)]
pub struct ModelCall<'a> {
    /// Configured name of the provider.
    pub provider: &'a str,
    /// The model, without its provider.
    pub model: &'a str,
    /// What it is for.
    pub purpose: UsagePurpose,
}

/// How a call of a model went.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallOutcome {
    /// How long it took.
    pub total: Duration,
    /// Until the first of the answer.
    pub first: Option<Duration>,
    /// What went wrong, of few values.
    pub error: Option<&'static str>,
}

/// Which way a wake-up went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To other replicas.
    Sent,
    /// From this or another replica.
    Heard,
}

/// Connections of one pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolStatus {
    /// Its name.
    pub name: &'static str,
    /// Most connections.
    pub max: usize,
    /// Those in use.
    pub used: usize,
    /// Those that are not.
    pub idle: usize,
    /// Who waits for one.
    pub pending: usize,
}

impl Default for Metrics {
    /// Measures into nothing.
    fn default() -> Self {
        Self::new(&SdkMeterProvider::builder().build())
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    pub(super) fn new(provider: &SdkMeterProvider) -> Self {
        let meter = provider.meter(names::SCOPE);
        let metrics = Self(Arc::new(Instruments {
            rpc_duration: histogram(&meter, &instruments::RPC_DURATION),
            rpc_active: up_down(&meter, &instruments::RPC_ACTIVE),
            rpc_rejected: counter(&meter, &instruments::RPC_REJECTED),
            connections_ended: counter(&meter, &instruments::CONNECTIONS_ENDED),
            turn_started: counter(&meter, &instruments::TURN_STARTED),
            turn_ended: counter(&meter, &instruments::TURN_ENDED),
            turn_running: up_down(&meter, &instruments::TURN_RUNNING),
            turn_first_token: histogram(&meter, &instruments::TURN_FIRST_TOKEN),
            turn_overhead: histogram(&meter, &instruments::TURN_OVERHEAD),
            step_duration: histogram(&meter, &instruments::STEP_DURATION),
            model_duration: histogram(&meter, &instruments::MODEL_DURATION),
            model_first_chunk: histogram(&meter, &instruments::MODEL_FIRST_CHUNK),
            model_tokens: whole_histogram(&meter, &instruments::MODEL_TOKENS),
            tool_duration: histogram(&meter, &instruments::TOOL_DURATION),
            model_retries: counter(&meter, &instruments::MODEL_RETRIES),
            estimate_ratio: histogram(&meter, &instruments::ESTIMATE_RATIO),
            compactions: counter(&meter, &instruments::COMPACTIONS),
            compaction_tokens: whole_histogram(&meter, &instruments::COMPACTION_TOKENS),
            prunes: counter(&meter, &instruments::PRUNES),
            pruned_tokens: counter(&meter, &instruments::PRUNED_TOKENS),
            queue_depth: gauge(&meter, &instruments::QUEUE_DEPTH),
            queue_age: meter
                .f64_gauge(instruments::QUEUE_AGE.name)
                .with_unit(instruments::QUEUE_AGE.unit)
                .with_description(instruments::QUEUE_AGE.description)
                .build(),
            takeovers: counter(&meter, &instruments::TAKEOVERS),
            replay_bytes: counter(&meter, &instruments::REPLAY_BYTES),
            stream_lag: histogram(&meter, &instruments::STREAM_LAG),
            db_duration: histogram(&meter, &instruments::DB_DURATION),
            db_timeouts: counter(&meter, &instruments::DB_TIMEOUTS),
            db_connect_failures: counter(&meter, &instruments::DB_CONNECT_FAILURES),
            db_wait: histogram(&meter, &instruments::DB_WAIT),
            wakeups: counter(&meter, &instruments::WAKEUPS),
            removed: counter(&meter, &instruments::REMOVED),
            models: Bounded::new(MOST_MODELS),
            servers: Bounded::new(MOST_SERVERS),
            reasons: Bounded::new(MOST_REASONS),
        }));
        metrics.begin();
        metrics
    }

    /// Counters are there from the start, so that a rate is right from the first event on.
    fn begin(&self) {
        for origin in [TurnOrigin::Execute, TurnOrigin::Queue] {
            self.count_started(0, origin);
        }
        self.turn_running(0);
        for result in [Takeover::Taken, Takeover::Lost, Takeover::Failed] {
            self.count_takeover(0, result);
        }
        for state in [CompactionState::Applied, CompactionState::Failed] {
            self.count_compaction(0, state);
        }
        self.0.prunes.add(0, &[]);
        self.0.pruned_tokens.add(0, &[]);
        self.0.replay_bytes.add(0, &[]);
        self.0.db_timeouts.add(0, &[]);
        for error in CONNECT_FAILURES {
            self.count_connect_failed(0, error);
        }
        for direction in [Direction::Sent, Direction::Heard] {
            self.wakeups(direction, 0);
        }
        for why in ConnectionEnd::ALL {
            self.count_connection_ended(0, why);
        }
        for ending in label_values::endings() {
            self.count_ended(0, ending);
        }
        for kind in REMOVED_KINDS {
            self.removed(kind, 0);
        }
    }

    /// An RPC came; `method` is fully qualified, `None` for what is no RPC of ours.
    pub fn rpc_started(&self, method: Option<&'static str>) {
        self.0.rpc_active.add(1, &[rpc_method(method)]);
    }

    /// It was answered.
    pub fn rpc_ended(&self, method: Option<&'static str>, code: &'static str, took: Duration) {
        self.0.rpc_active.add(-1, &[rpc_method(method)]);
        let mut attributes = vec![
            KeyValue::new(attribute::RPC_SYSTEM, "grpc"),
            rpc_method(method),
            KeyValue::new(attribute::RPC_STATUS, code),
        ];
        if code != "OK" {
            attributes.push(KeyValue::new(attribute::ERROR_TYPE, code));
        }
        self.0.rpc_duration.record(took.as_secs_f64(), &attributes);
    }

    /// It was refused for this reason of ours.
    pub fn rpc_rejected(&self, reason: &str) {
        let reason = KeyValue::new(attribute::REASON, self.0.reasons.label(reason));
        self.0.rpc_rejected.add(1, &[reason]);
    }

    /// The server ended a connection.
    pub fn connection_ended(&self, why: ConnectionEnd) {
        self.count_connection_ended(1, why);
    }

    fn count_connection_ended(&self, connections: u64, why: ConnectionEnd) {
        let why = KeyValue::new(attribute::REASON, label_values::connection_end(why));
        self.0.connections_ended.add(connections, &[why]);
    }

    /// A turn was started here.
    pub fn turn_started(&self, origin: TurnOrigin) {
        self.count_started(1, origin);
    }

    fn count_started(&self, turns: u64, origin: TurnOrigin) {
        let origin = match origin {
            TurnOrigin::Execute => "execute",
            TurnOrigin::Queue => "queue",
        };
        let origin = KeyValue::new(attribute::TURN_ORIGIN, origin);
        self.0.turn_started.add(turns, &[origin]);
    }

    /// A turn was ended by this replica.
    pub fn turn_ended(&self, ending: &Ending) {
        self.count_ended(1, label_values::ending(ending));
    }

    fn count_ended(&self, turns: u64, (state, reason): (&'static str, &'static str)) {
        let attributes = [
            KeyValue::new(attribute::TURN_STATE, state),
            KeyValue::new(attribute::REASON, reason),
        ];
        self.0.turn_ended.add(turns, &attributes);
    }

    /// So many more turns run here.
    pub fn turn_running(&self, more: i64) {
        self.0.turn_running.add(more, &[]);
    }

    /// Readers of a turn were shown the first of its answer, so long after its request.
    pub fn first_token(&self, after: Duration) {
        self.0.turn_first_token.record(after.as_secs_f64(), &[]);
    }

    /// What contextd added to the time of the model.
    pub fn overhead(&self, phase: Phase, took: Duration) {
        let phase = match phase {
            Phase::BeforeCall => "before_call",
            Phase::AfterCall => "after_call",
        };
        let phase = KeyValue::new(attribute::PHASE, phase);
        self.0.turn_overhead.record(took.as_secs_f64(), &[phase]);
    }

    /// A step was committed.
    pub fn step_committed(&self, took: Duration) {
        self.0.step_duration.record(took.as_secs_f64(), &[]);
    }

    /// A model was called.
    pub fn model_called(&self, call: ModelCall<'_>, outcome: CallOutcome) {
        let mut attributes = self.call_attributes(call);
        if let Some(first) = outcome.first {
            let seconds = first.as_secs_f64();
            self.0.model_first_chunk.record(seconds, &attributes);
        }
        if let Some(error) = outcome.error {
            attributes.push(KeyValue::new(attribute::ERROR_TYPE, error));
        }
        let seconds = outcome.total.as_secs_f64();
        self.0.model_duration.record(seconds, &attributes);
    }

    /// What the provider reported of it.
    pub fn tokens_used(&self, call: ModelCall<'_>, usage: &Usage) {
        for (kind, tokens) in [("input", usage.input), ("output", usage.output)] {
            let mut attributes = self.call_attributes(call);
            attributes.push(KeyValue::new(attribute::TOKEN_TYPE, kind));
            self.0.model_tokens.record(tokens.into(), &attributes);
        }
    }

    fn call_attributes(&self, call: ModelCall<'_>) -> Vec<KeyValue> {
        let ModelCall {
            provider,
            model,
            purpose,
        } = call;
        vec![
            KeyValue::new(attribute::OPERATION, "chat"),
            KeyValue::new(attribute::PROVIDER, provider.to_owned()),
            KeyValue::new(attribute::MODEL, self.0.models.label(model)),
            KeyValue::new(attribute::PURPOSE, label_values::purpose(purpose)),
        ]
    }

    /// A tool of an MCP server was called.
    pub fn tool_called(&self, server: &str, result: ToolResult, took: Duration) {
        let attributes = [
            KeyValue::new(attribute::OPERATION, span::EXECUTE_TOOL),
            KeyValue::new(attribute::MCP_SERVER, self.0.servers.label(server)),
            KeyValue::new(attribute::RESULT, label_values::tool_result(result)),
        ];
        self.0.tool_duration.record(took.as_secs_f64(), &attributes);
    }

    /// A call is made again after this error.
    pub fn call_retried(&self, error: &'static str) {
        let error = KeyValue::new(attribute::ERROR_TYPE, error);
        self.0.model_retries.add(1, &[error]);
    }

    /// A prompt was predicted to have so many tokens, and the provider reported so many.
    pub fn estimated(&self, model: &str, predicted: u32, reported: u32) {
        if reported > 0 {
            let model = KeyValue::new(attribute::MODEL, self.0.models.label(model));
            let ratio = f64::from(predicted) / f64::from(reported);
            self.0.estimate_ratio.record(ratio, &[model]);
        }
    }

    /// A compaction was applied, or failed.
    pub fn compacted(&self, compaction: &Compaction) {
        self.count_compaction(1, compaction.state);
        let Some(after) = &compaction.tokens_after else {
            return;
        };
        let before = compaction.tokens_before.tokens;
        let saved = before.saturating_sub(after.tokens);
        for (measure, tokens) in [
            ("before", before),
            ("after", after.tokens),
            ("saved", saved),
        ] {
            let measure = KeyValue::new(attribute::MEASURE, measure);
            self.0.compaction_tokens.record(tokens.into(), &[measure]);
        }
    }

    fn count_compaction(&self, compactions: u64, state: CompactionState) {
        let result = KeyValue::new(attribute::RESULT, label_values::compaction(state));
        self.0.compactions.add(compactions, &[result]);
    }

    /// Old tool results were cleared.
    pub fn pruned(&self, saved: u32) {
        self.0.prunes.add(1, &[]);
        self.0.pruned_tokens.add(saved.into(), &[]);
    }

    /// So many messages wait in all queues, the oldest of them for so long.
    pub fn queued(&self, messages: u64, oldest: Duration) {
        self.0.queue_depth.record(messages, &[]);
        self.0.queue_age.record(oldest.as_secs_f64(), &[]);
    }

    /// A takeover was tried.
    pub fn takeover(&self, result: Takeover) {
        self.count_takeover(1, result);
    }

    fn count_takeover(&self, turns: u64, result: Takeover) {
        let result = match result {
            Takeover::Taken => "taken",
            Takeover::Lost => "lost",
            Takeover::Failed => "failed",
        };
        let result = KeyValue::new(attribute::RESULT, result);
        self.0.takeovers.add(turns, &[result]);
    }

    /// A reader that came back was sent an event of so many bytes.
    pub fn replayed(&self, bytes: usize) {
        self.0.replay_bytes.add(bytes as u64, &[]);
    }

    /// A reader was handed an event so long after it was written.
    pub fn streamed(&self, lag: Duration) {
        self.0.stream_lag.record(lag.as_secs_f64(), &[]);
    }

    /// A statement or transaction of the store, with what went wrong.
    pub fn database(&self, operation: &'static str, took: Duration, error: Option<&'static str>) {
        let mut attributes = vec![
            KeyValue::new(attribute::DB_SYSTEM, "postgresql"),
            KeyValue::new(attribute::DB_OPERATION, operation),
        ];
        attributes.extend(error.map(|error| KeyValue::new(attribute::ERROR_TYPE, error)));
        self.0.db_duration.record(took.as_secs_f64(), &attributes);
    }

    /// So long was waited for a connection.
    pub fn waited_for_connection(&self, took: Duration, timed_out: bool) {
        self.0.db_wait.record(took.as_secs_f64(), &[]);
        if timed_out {
            self.0.db_timeouts.add(1, &[]);
        }
    }

    /// A connection to the database could not be made, for this reason.
    pub fn connect_failed(&self, error: &'static str) {
        self.count_connect_failed(1, error);
    }

    fn count_connect_failed(&self, connections: u64, error: &'static str) {
        let error = KeyValue::new(attribute::ERROR_TYPE, error);
        self.0.db_connect_failures.add(connections, &[error]);
    }

    /// Wake-ups went between replicas.
    pub fn wakeups(&self, direction: Direction, wakeups: usize) {
        let direction = match direction {
            Direction::Sent => "sent",
            Direction::Heard => "heard",
        };
        let direction = KeyValue::new(attribute::DIRECTION, direction);
        self.0.wakeups.add(wakeups as u64, &[direction]);
    }

    /// Something went because its time was over.
    pub fn removed(&self, kind: &'static str, rows: u64) {
        self.0
            .removed
            .add(rows, &[KeyValue::new(attribute::KIND, kind)]);
    }
}

fn rpc_method(method: Option<&'static str>) -> KeyValue {
    KeyValue::new(attribute::RPC_METHOD, method.unwrap_or(OTHER))
}

fn counter(meter: &Meter, instrument: &Instrument) -> Counter<u64> {
    meter
        .u64_counter(instrument.name)
        .with_unit(instrument.unit)
        .with_description(instrument.description)
        .build()
}

fn up_down(meter: &Meter, instrument: &Instrument) -> UpDownCounter<i64> {
    meter
        .i64_up_down_counter(instrument.name)
        .with_unit(instrument.unit)
        .with_description(instrument.description)
        .build()
}

fn gauge(meter: &Meter, instrument: &Instrument) -> Gauge<u64> {
    meter
        .u64_gauge(instrument.name)
        .with_unit(instrument.unit)
        .with_description(instrument.description)
        .build()
}

fn histogram(meter: &Meter, instrument: &Instrument) -> Histogram<f64> {
    meter
        .f64_histogram(instrument.name)
        .with_unit(instrument.unit)
        .with_description(instrument.description)
        .with_boundaries(instrument.buckets())
        .build()
}

fn whole_histogram(meter: &Meter, instrument: &Instrument) -> Histogram<u64> {
    meter
        .u64_histogram(instrument.name)
        .with_unit(instrument.unit)
        .with_description(instrument.description)
        .with_boundaries(instrument.buckets())
        .build()
}
