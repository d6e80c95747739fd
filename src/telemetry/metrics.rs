//! Records metrics: one method for each kind of occurrence. Attributes are built only here, so that no tenant or
//! session id can become one.

use std::{fmt, sync::Arc, time::Duration};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Gauge, Histogram, Meter, MeterProvider as _, UpDownCounter},
};
use opentelemetry_sdk::metrics::SdkMeterProvider;

use super::{
    instruments::{self, Instrument},
    label_values::{self, Bounded, ConnectionEnd, OTHER, ToolCallOutcome},
    names::{self, attribute, span},
};
use crate::model::{Compaction, CompactionState, Ending, Usage, UsagePurpose};

/// Maximum number of models with a separate label value.
const MAX_MODELS: usize = 200;
/// Maximum number of MCP servers with a separate label value.
const MAX_SERVERS: usize = 100;
/// Maximum number of rejection reasons with a separate label value; fewer exist.
const MAX_REASONS: usize = 100;
/// The kinds of rows that retention removes; values of `contextd.kind`.
const REMOVED_KINDS: [&str; 6] = ["blobs", "events", "queued_messages", "request_ids", "sessions", "tool_sets"];

/// Reasons for a failed connection to the database.
const CONNECT_FAILURES: [&str; 4] = ["no_connection_left", "refused", "transaction_pooler", "unavailable"];

/// The metrics of this replica. Clones share the same instruments.
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

/// What started a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnOrigin {
    /// An ExecuteTurn request.
    Execute,
    /// A queued message.
    Queue,
}

/// The part of a step in which contextd adds latency to the model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// From the request to the first model call.
    BeforeCall,
    /// From the last byte of the model's response to the commit of the step.
    AfterCall,
}

/// The outcome of an attempt to take over a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takeover {
    /// The turn runs on this replica.
    Taken,
    /// Another replica took it over first, or its owner is alive.
    Lost,
    /// The attempt failed.
    Failed,
}

/// The attributes of a model call.
#[derive(Debug, Clone, Copy)]
pub struct ModelCall<'a> {
    /// The provider's configured name.
    pub provider: &'a str,
    /// The model's name, without the provider.
    pub model: &'a str,
    pub purpose: UsagePurpose,
}

/// The outcome of a model call.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallOutcome {
    /// Total duration of the call.
    pub total: Duration,
    /// Time to the first chunk of the response.
    pub first: Option<Duration>,
    /// The error type; one of few values.
    pub error: Option<&'static str>,
}

/// The direction of a wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Sent to other replicas.
    Sent,
    /// Received from this or another replica.
    Received,
}

/// The state of one connection pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolStatus {
    pub name: &'static str,
    /// Maximum number of connections.
    pub max: usize,
    /// Connections in use.
    pub used: usize,
    /// Idle connections.
    pub idle: usize,
    /// Callers waiting for a connection.
    pub pending: usize,
}

impl Default for Metrics {
    /// A no-op: without an exporter, nothing is collected.
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
            models: Bounded::new(MAX_MODELS),
            servers: Bounded::new(MAX_SERVERS),
            reasons: Bounded::new(MAX_REASONS),
        }));
        metrics.begin();
        metrics
    }

    /// Initializes all counters with 0, so that a rate includes the first event.
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
        for direction in [Direction::Sent, Direction::Received] {
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

    /// Counts an RPC that arrived. `method` is fully qualified, or `None` if it is not one of our RPCs.
    pub fn rpc_started(&self, method: Option<&'static str>) {
        self.0.rpc_active.add(1, &[rpc_method(method)]);
    }

    /// Records an RPC that was answered with the status `code`.
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

    /// Counts a rejected RPC by the reason of its ErrorInfo.
    pub fn rpc_rejected(&self, reason: &str) {
        let reason = KeyValue::new(attribute::REASON, self.0.reasons.label(reason));
        self.0.rpc_rejected.add(1, &[reason]);
    }

    /// Counts a connection that the server closed.
    pub fn connection_ended(&self, why: ConnectionEnd) {
        self.count_connection_ended(1, why);
    }

    fn count_connection_ended(&self, connections: u64, why: ConnectionEnd) {
        let why = KeyValue::new(attribute::REASON, label_values::connection_end(why));
        self.0.connections_ended.add(connections, &[why]);
    }

    /// Counts a turn that was started on this replica.
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

    /// Counts a turn that this replica ended.
    pub fn turn_ended(&self, ending: &Ending) {
        self.count_ended(1, label_values::ending(ending));
    }

    fn count_ended(&self, turns: u64, (state, reason): (&'static str, &'static str)) {
        let attributes = [KeyValue::new(attribute::TURN_STATE, state), KeyValue::new(attribute::REASON, reason)];
        self.0.turn_ended.add(turns, &attributes);
    }

    /// Adds `more` to the number of turns running on this replica.
    pub fn turn_running(&self, more: i64) {
        self.0.turn_running.add(more, &[]);
    }

    /// Records the time from a turn's request until its readers received the first token.
    pub fn first_token(&self, after: Duration) {
        self.0.turn_first_token.record(after.as_secs_f64(), &[]);
    }

    /// Records the latency that contextd added to a model call.
    pub fn overhead(&self, phase: Phase, took: Duration) {
        let phase = match phase {
            Phase::BeforeCall => "before_call",
            Phase::AfterCall => "after_call",
        };
        let phase = KeyValue::new(attribute::PHASE, phase);
        self.0.turn_overhead.record(took.as_secs_f64(), &[phase]);
    }

    /// Records the duration of a committed step.
    pub fn step_committed(&self, took: Duration) {
        self.0.step_duration.record(took.as_secs_f64(), &[]);
    }

    /// Records a model call.
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

    /// Records the token usage that the provider reported for a call.
    pub fn tokens_used(&self, call: ModelCall<'_>, usage: &Usage) {
        for (kind, tokens) in [("input", usage.input), ("output", usage.output)] {
            let mut attributes = self.call_attributes(call);
            attributes.push(KeyValue::new(attribute::TOKEN_TYPE, kind));
            self.0.model_tokens.record(tokens.into(), &attributes);
        }
    }

    fn call_attributes(&self, call: ModelCall<'_>) -> Vec<KeyValue> {
        let ModelCall { provider, model, purpose } = call;
        vec![
            KeyValue::new(attribute::OPERATION, "chat"),
            KeyValue::new(attribute::PROVIDER, provider.to_owned()),
            KeyValue::new(attribute::MODEL, self.0.models.label(model)),
            KeyValue::new(attribute::PURPOSE, label_values::purpose(purpose)),
        ]
    }

    /// Records a call of an MCP server's tool.
    pub fn tool_called(&self, server: &str, result: ToolCallOutcome, took: Duration) {
        let attributes = [
            KeyValue::new(attribute::OPERATION, span::EXECUTE_TOOL),
            KeyValue::new(attribute::MCP_SERVER, self.0.servers.label(server)),
            KeyValue::new(attribute::RESULT, label_values::tool_result(result)),
        ];
        self.0.tool_duration.record(took.as_secs_f64(), &attributes);
    }

    /// Counts a retry of a model call, by the error that caused it.
    pub fn call_retried(&self, error: &'static str) {
        let error = KeyValue::new(attribute::ERROR_TYPE, error);
        self.0.model_retries.add(1, &[error]);
    }

    /// Records the ratio of predicted to reported tokens of a prompt.
    pub fn prompt_estimated(&self, model: &str, predicted: u32, reported: u32) {
        if reported > 0 {
            let model = KeyValue::new(attribute::MODEL, self.0.models.label(model));
            let ratio = f64::from(predicted) / f64::from(reported);
            self.0.estimate_ratio.record(ratio, &[model]);
        }
    }

    /// Counts a compaction that was applied or failed.
    pub fn compacted(&self, compaction: &Compaction) {
        self.count_compaction(1, compaction.state);
        let Some(after) = &compaction.tokens_after else {
            return;
        };
        let before = compaction.tokens_before.tokens;
        let saved = before.saturating_sub(after.tokens);
        for (measure, tokens) in [("before", before), ("after", after.tokens), ("saved", saved)] {
            let measure = KeyValue::new(attribute::MEASURE, measure);
            self.0.compaction_tokens.record(tokens.into(), &[measure]);
        }
    }

    fn count_compaction(&self, compactions: u64, state: CompactionState) {
        let result = KeyValue::new(attribute::RESULT, label_values::compaction(state));
        self.0.compactions.add(compactions, &[result]);
    }

    /// Records a prune that cleared old tool results and saved `saved` tokens.
    pub fn pruned(&self, saved: u32) {
        self.0.prunes.add(1, &[]);
        self.0.pruned_tokens.add(saved.into(), &[]);
    }

    /// Records the number of messages in all queues and the age of the oldest.
    pub fn queued(&self, messages: u64, oldest: Duration) {
        self.0.queue_depth.record(messages, &[]);
        self.0.queue_age.record(oldest.as_secs_f64(), &[]);
    }

    /// Counts an attempt to take over a turn.
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

    /// Counts the bytes of an event that was replayed to a reconnected reader.
    pub fn replayed(&self, bytes: usize) {
        self.0.replay_bytes.add(bytes as u64, &[]);
    }

    /// Records the lag between the write of an event and its delivery to a reader.
    pub fn streamed(&self, lag: Duration) {
        self.0.stream_lag.record(lag.as_secs_f64(), &[]);
    }

    /// Records a database operation with its duration and, if it failed, its error type.
    pub fn database(&self, operation: &'static str, took: Duration, error: Option<&'static str>) {
        let mut attributes =
            vec![KeyValue::new(attribute::DB_SYSTEM, "postgresql"), KeyValue::new(attribute::DB_OPERATION, operation)];
        attributes.extend(error.map(|error| KeyValue::new(attribute::ERROR_TYPE, error)));
        self.0.db_duration.record(took.as_secs_f64(), &attributes);
    }

    /// Records the time spent waiting for a connection from the pool.
    pub fn waited_for_connection(&self, took: Duration, timed_out: bool) {
        self.0.db_wait.record(took.as_secs_f64(), &[]);
        if timed_out {
            self.0.db_timeouts.add(1, &[]);
        }
    }

    /// Counts a failed connection to the database by its reason.
    pub fn connect_failed(&self, error: &'static str) {
        self.count_connect_failed(1, error);
    }

    fn count_connect_failed(&self, connections: u64, error: &'static str) {
        let error = KeyValue::new(attribute::ERROR_TYPE, error);
        self.0.db_connect_failures.add(connections, &[error]);
    }

    /// Counts wake-ups between replicas.
    pub fn wakeups(&self, direction: Direction, wakeups: usize) {
        let direction = match direction {
            Direction::Sent => "sent",
            Direction::Received => "heard",
        };
        let direction = KeyValue::new(attribute::DIRECTION, direction);
        self.0.wakeups.add(wakeups as u64, &[direction]);
    }

    /// Counts rows that retention removed.
    pub fn removed(&self, kind: &'static str, rows: u64) {
        self.0.removed.add(rows, &[KeyValue::new(attribute::KIND, kind)]);
    }
}

fn rpc_method(method: Option<&'static str>) -> KeyValue {
    KeyValue::new(attribute::RPC_METHOD, method.unwrap_or(OTHER))
}

fn counter(meter: &Meter, instrument: &Instrument) -> Counter<u64> {
    meter.u64_counter(instrument.name).with_unit(instrument.unit).with_description(instrument.description).build()
}

fn up_down(meter: &Meter, instrument: &Instrument) -> UpDownCounter<i64> {
    meter
        .i64_up_down_counter(instrument.name)
        .with_unit(instrument.unit)
        .with_description(instrument.description)
        .build()
}

fn gauge(meter: &Meter, instrument: &Instrument) -> Gauge<u64> {
    meter.u64_gauge(instrument.name).with_unit(instrument.unit).with_description(instrument.description).build()
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
