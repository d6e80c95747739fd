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
const ENDPOINT: &str = "telemetry.otlp.endpoint";

/// `[telemetry]`: what is logged and measured. No content of messages, ever.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TelemetryConfig {
    /// How a log line looks.
    pub log_format: LogFormat,
    /// Which log lines are written: a level, or directives such as `info,contextd::turn=debug`.
    pub log: String,
    /// The collector that metrics are pushed to.
    pub otlp: OtlpConfig,
}

/// `[telemetry.otlp]`: an OpenTelemetry collector, over HTTP with protobuf. Headers, such as those with
/// a credential, are read from the variable `OTEL_EXPORTER_OTLP_HEADERS`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OtlpConfig {
    /// Its address, such as `http://localhost:4318`; `/v1/metrics` is added. Absent: the variable
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
        } = self;
        if let Err(error) = EnvFilter::try_new(log) {
            checks.fail(
                "telemetry.log",
                format!("`{log}` is not a log filter: {error}"),
            );
        }
        otlp.check(checks);
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
/// for contextd.
pub(super) fn detect(given: &mut Given, environment: &Environment) {
    let path = layers::path_of(ENDPOINT);
    if let Some(endpoint) = environment.get(STANDARD_ENDPOINT)
        && layers::get(&given.values, &path).is_none()
    {
        layers::set(&mut given.values, &path, Value::String(endpoint.to_owned()));
        let origin = Origin::Variable(STANDARD_ENDPOINT.to_owned());
        given.origins.insert(ENDPOINT.to_owned(), origin);
    }
}
