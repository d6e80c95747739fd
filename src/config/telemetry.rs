//! The settings of logs, metrics and traces.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Value;
use tracing_subscriber::EnvFilter;

use super::environment::Environment;
use super::error::Origin;
use super::explicit_values::ExplicitValues;
use super::layers;
use crate::settings::{Checks, choices, settings};

/// The variable from which OpenTelemetry libraries read the URL of the collector.
const STANDARD_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The variable from which OpenTelemetry libraries read the protocol of the collector.
const STANDARD_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
/// The protocol that contextd supports.
const PROTOCOL: &str = "http/protobuf";
const ENDPOINT: &str = "telemetry.otlp.endpoint";

choices!(LogFormat);

settings! {
    /// `[telemetry]`: logs, metrics and traces. They contain no content of messages.
    pub struct TelemetryConfig {
        /// Format of log lines.
        log_format: LogFormat = LogFormat::Text;
        /// Log filter: a level, or directives such as `info,contextd::turn=debug`. Audit lines are logged at any level;
        /// `contextd::audit=off` drops them.
        log: String = "info".to_owned();
        /// The collector that metrics and spans are pushed to.
        otlp: OtlpConfig = OtlpConfig::default();
        /// Traces.
        traces: TracesConfig = TracesConfig::default();
    }
}

settings! {
    /// `[telemetry.traces]`: spans are pushed to the collector of `[telemetry.otlp]`. Without a collector no spans are
    /// made: the callers' trace context is passed on as received, and other calls have ids for the log only.
    pub struct TracesConfig {
        /// The share of new traces that are recorded. A caller's trace is recorded if its own flag says so.
        sample_ratio: f64 = 1.0, in 0.0..=1.0;
        /// Send `traceparent` and `tracestate`, which are random ids, to model services.
        send_to_providers: bool = true;
        /// Also send `baggage`, whose content is chosen by callers, to model services.
        send_baggage_to_providers: bool = false;
        /// Maximum spans that wait to be exported. Further ones are dropped. Default of the OpenTelemetry SDK
        /// specification.
        max_queued_spans: usize = 2048, in 16..=1_000_000, "spans";
    }
}

settings! {
    /// `[telemetry.otlp]`: an OpenTelemetry collector, over HTTP with protobuf. Headers, such as those with a
    /// credential, are read from the variable `OTEL_EXPORTER_OTLP_HEADERS`.
    pub struct OtlpConfig {
        /// URL of the collector, such as `http://localhost:4318`; `/v1/metrics` and `/v1/traces` are appended. Not set:
        /// the value of the environment variable `OTEL_EXPORTER_OTLP_ENDPOINT`; if that is not set either, nothing is
        /// pushed.
        endpoint: Option<String> = None;
        /// How long one export may take. Default of the OTLP specification.
        timeout: Duration = Duration::from_secs(10), in Duration::from_millis(100)..=Duration::from_mins(1);
        /// How often metrics are pushed. Default of the OpenTelemetry SDK specification.
        metrics_interval: Duration = Duration::from_mins(1), in Duration::from_millis(100)..=Duration::from_hours(1);
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl TelemetryConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self { log, .. } = self;
        if let Err(error) = EnvFilter::try_new(log) {
            checks.fail("telemetry.log", format!("`{log}` is not a log filter: {error}"));
        }
        self.otlp.check(checks);
    }
}

impl OtlpConfig {
    fn check(&self, checks: &mut Checks) {
        if let Some(endpoint) = &self.endpoint {
            let host = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
            checks.require(host.is_some_and(|host| !host.is_empty() && !host.contains('@')), ENDPOINT, || {
                "must be a URL such as http://localhost:4318, without credentials".to_owned()
            });
        }
    }
}

/// Takes the URL of the collector from the standard environment variable, unless the setting is given. A URL for
/// another protocol is ignored.
pub(super) fn detect(given: &mut ExplicitValues, environment: &Environment) {
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
