//! Logs, metrics and traces, and their export. They never contain message content.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::{LogFormat, TelemetryConfig};

mod collector;
pub mod export;
pub mod instruments;
mod label_values;
mod log;
mod log_writer;
pub mod metrics;
pub mod names;
pub mod progress;
pub mod spans;
pub mod traces;

pub use export::Telemetry;
pub use label_values::{ConnectionEnd, ToolCallOutcome, failure as failure_reason};
pub use log_writer::Log;
pub use metrics::Metrics;
pub use names::AUDIT;
pub use traces::{Span, Trace, Traces};

/// Telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter is invalid.
    #[error("the log filter is invalid")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The metrics registry could not be created.
    #[error("cannot set up metrics")]
    Metrics(#[from] opentelemetry_sdk::error::OTelSdkError),
    /// The OTLP exporter could not be created from its configuration.
    #[error("cannot set up OTLP: {0}")]
    Otlp(String),
    /// The thread that writes the log could not be started.
    #[error("cannot start the log writer")]
    Log(#[from] std::io::Error),
    /// Telemetry was already set up.
    #[error("telemetry is already set up")]
    SetUpTwice(#[from] tracing_subscriber::util::TryInitError),
}

/// Log directives that precede the configured ones, which may override them for the same targets. Audit lines are
/// logged at any level. Libraries that log what others sent (errors of MCP servers, notices of the database) are
/// silenced.
const DIRECTIVES: &str = "contextd::audit=info,rmcp=off,tokio_postgres=off";

/// Starts logging to stderr. Dropping the returned [`Log`] writes the last lines.
pub fn init(config: &TelemetryConfig) -> Result<Log, TelemetryError> {
    let (writer, log) = log_writer::start(std::io::stderr())?;
    let mut lines = tracing_subscriber::fmt::layer().with_writer(writer);
    if !std::io::stderr().is_terminal() {
        lines.set_ansi(false);
    }
    let lines = match config.log_format {
        LogFormat::Text => lines.map_event_format(log::Traced).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).map_event_format(log::Traced).boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter(&config.log)?)).try_init()?;
    Ok(log)
}

fn filter(directives: &str) -> Result<EnvFilter, tracing_subscriber::filter::ParseError> {
    EnvFilter::try_new(format!("{DIRECTIVES},{directives}"))
}
