//! The settings of logs.

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use super::check::Checks;

/// `[telemetry]`: what is logged. No content of messages, ever.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TelemetryConfig {
    /// How a log line looks.
    pub log_format: LogFormat,
    /// Which log lines are written: a level, or directives such as `info,contextd::turn=debug`.
    pub log: String,
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
        }
    }
}

impl TelemetryConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self { log_format: _, log } = self;
        if let Err(error) = EnvFilter::try_new(log) {
            checks.fail(
                "telemetry.log",
                format!("`{log}` is not a log filter: {error}"),
            );
        }
    }
}
