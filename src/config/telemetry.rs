//! The settings of logs, metrics and traces.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Value;
use tracing_subscriber::EnvFilter;

use super::check::Checks;
use super::duration;
use super::environment::Environment;
use super::error::Origin;
use super::given::Given;
use super::layers;

/// The variable that OpenTelemetry's libraries read the collector's address from.
const STANDARD_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// And the one that says what they speak.
const STANDARD_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
/// What contextd speaks.
const PROTOCOL: &str = "http/protobuf";
const ENDPOINT: &str = "telemetry.otlp.endpoint";

/// `[telemetry]`: what is logged and measured. No content of messages, ever.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TelemetryConfig {
    /// How a log line looks.
    pub log_format: LogFormat,
    /// Which log lines are written: a level, or directives such as `info,contextd::turn=debug`. Audit
    /// lines are written at any level; `contextd::audit=off` drops them.
    pub log: String,
    /// The collector that metrics and spans are pushed to.
    pub otlp: OtlpConfig,
    /// Traces.
    pub traces: TracesConfig,
}

/// `[telemetry.traces]`: spans go to the collector of `[telemetry.otlp]`; without one none are made, and
/// what callers say of their trace is passed on as it came, and other calls have ids for the log alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TracesConfig {
    /// The share of new traces that are recorded, 0 to 1. Of a caller's trace its own flag decides.
    pub sample_ratio: f64,
    /// Services that models are called at are sent `traceparent` and `tracestate`: ids without meaning.
    pub send_to_providers: bool,
    /// They are sent `baggage` too: whatever callers put there.
    pub send_baggage_to_providers: bool,
    /// Spans that wait to be exported; further ones are dropped.
    pub max_queued_spans: usize,
}

/// `[telemetry.otlp]`: an OpenTelemetry collector, over HTTP with protobuf. Headers, such as those with
/// a credential, are read from the variable `OTEL_EXPORTER_OTLP_HEADERS`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OtlpConfig {
    /// Its address, such as `http://localhost:4318`; `/v1/metrics` and `/v1/traces` are added. Absent: the variable
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`; without that nothing is pushed.
    pub endpoint: Option<String>,
    /// How long one export may take.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// How often metrics are pushed.
    #[serde(with = "duration")]
    pub metrics_interval: Duration,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            log_format: LogFormat::Text,
            log: "info".to_owned(),
            otlp: OtlpConfig::default(),
            traces: TracesConfig::default(),
        }
    }
}

impl Default for TracesConfig {
    fn default() -> Self {
        Self {
            sample_ratio: 1.0,
            send_to_providers: true,
            send_baggage_to_providers: false,
            max_queued_spans: 2048, // as the SDK specification has it
        }
    }
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            timeout: Duration::from_secs(10), // as the OTLP specification has it
            metrics_interval: Duration::from_secs(60), // as the SDK specification has it
        }
    }
}

impl TelemetryConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self {
            log_format: _,
            log,
            otlp,
            traces,
        } = self;
        if let Err(error) = EnvFilter::try_new(log) {
            checks.fail(
                "telemetry.log",
                format!("`{log}` is not a log filter: {error}"),
            );
        }
        otlp.check(checks);
        let ratio = traces.sample_ratio;
        checks.require(
            (0.0..=1.0).contains(&ratio),
            "telemetry.traces.sample_ratio",
            || format!("{ratio} is not between 0 and 1"),
        );
        checks.number(
            "telemetry.traces.max_queued_spans",
            traces.max_queued_spans,
            16..=1_000_000,
            "spans",
        );
    }
}

impl OtlpConfig {
    fn check(&self, checks: &mut Checks) {
        let Self {
            endpoint,
            timeout,
            metrics_interval,
        } = self;
        if let Some(endpoint) = endpoint {
            let host = endpoint
                .strip_prefix("http://")
                .or_else(|| endpoint.strip_prefix("https://"));
            checks.require(
                host.is_some_and(|host| !host.is_empty() && !host.contains('@')),
                ENDPOINT,
                || {
                    "is not an address such as http://localhost:4318, without credentials"
                        .to_owned()
                },
            );
        }
        let minute = Duration::from_secs(60);
        checks.duration(
            "telemetry.otlp.timeout",
            *timeout,
            Duration::from_millis(100)..=minute,
        );
        checks.duration(
            "telemetry.otlp.metrics_interval",
            *metrics_interval,
            Duration::from_millis(100)..=minute * 60,
        );
    }
}

/// Takes the collector's address from the variable that other programs read it from, unless it is set
/// for contextd. An address that is for another protocol is left alone.
pub(super) fn detect(given: &mut Given, environment: &Environment) {
    let path = layers::path_of(ENDPOINT);
    let protocol = environment.get(STANDARD_PROTOCOL);
    if protocol.is_some_and(|protocol| protocol != PROTOCOL) {
        return;
    }
    if let Some(endpoint) = environment.get(STANDARD_ENDPOINT)
        && layers::get(&given.values, &path).is_none()
    {
        layers::set(&mut given.values, &path, Value::String(endpoint.to_owned()));
        let origin = Origin::Variable(STANDARD_ENDPOINT.to_owned());
        given.origins.insert(ENDPOINT.to_owned(), origin);
    }
}
