//! The settings of logs and traces.

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use super::check::Checks;

/// `[telemetry]`: what is logged and where traces go. No content of messages, ever.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TelemetryConfig {
    /// How a log line looks.
    pub log_format: LogFormat,
    /// Which log lines are written: a level, or directives such as `info,contextd::turn=debug`.
    pub log: String,
    /// OTLP collector for traces, gRPC, such as `http://127.0.0.1:4317`. Absent: no traces.
    pub otlp_endpoint: Option<String>,
    /// `service.name` of the traces.
    pub service_name: String,
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
            otlp_endpoint: None,
            service_name: "contextd".to_owned(),
        }
    }
}

impl TelemetryConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self { log_format: _, log, otlp_endpoint, service_name } = self;
        if let Err(error) = EnvFilter::try_new(log) {
            checks.fail("telemetry.log", format!("`{log}` is not a log filter: {error}"));
        }
        checks.require(otlp_endpoint.as_deref().is_none_or(is_plain_http), "telemetry.otlp_endpoint", || {
            "must look like http://host:4317, without credentials; a collector nearby can forward over TLS".to_owned()
        });
        checks.require(!service_name.is_empty(), "telemetry.service_name", || "must not be empty".to_owned());
    }
}

fn is_plain_http(endpoint: &str) -> bool {
    endpoint.strip_prefix("http://").is_some_and(|rest| !rest.is_empty() && !rest.contains('@'))
}
