//! Logs, metrics and traces, and where they go. No content of messages is ever in them.

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
pub use label_values::{ConnectionEnd, ToolResult, failure as failure_reason};
pub use log_writer::Log;
pub use metrics::Metrics;
pub use names::AUDIT;
pub use traces::{Span, Trace, Traces};

/// Telemetry cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter is wrong.
    #[error("the log filter cannot be used")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The registry of metrics cannot be read.
    #[error("metrics cannot be set up")]
    Metrics(#[from] opentelemetry_sdk::error::OTelSdkError),
    /// The collector cannot be reached as it is configured.
    #[error("OTLP cannot be set up: {0}")]
    Otlp(String),
    /// The thread that writes the log cannot be started.
    #[error("the log cannot be written")]
    Log(#[from] std::io::Error),
    /// Telemetry was set up before.
    #[error("telemetry is already set up")]
    SetUpTwice(#[from] tracing_subscriber::util::TryInitError),
}

/// What holds before the directives that the settings give, which may say otherwise of the same
/// targets. Audit lines stay at any level; libraries that write what others sent them (errors of MCP
/// servers, notices of the database) are silent.
const DIRECTIVES: &str = "contextd::audit=info,rmcp=off,tokio_postgres=off";

/// Starts logs on stderr. The last lines are written when what it returns is dropped.
pub fn init(config: &TelemetryConfig) -> Result<Log, TelemetryError> {
    let (writer, log) = log_writer::start(std::io::stderr())?;
    let mut lines = tracing_subscriber::fmt::layer().with_writer(writer);
    if !std::io::stderr().is_terminal() {
        lines.set_ansi(false);
    }
    let lines = match config.log_format {
        LogFormat::Text => lines.map_event_format(log::Traced).boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .map_event_format(log::Traced)
            .boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter(&config.log)?))
        .try_init()?;
    Ok(log)
}

fn filter(directives: &str) -> Result<EnvFilter, tracing_subscriber::filter::ParseError> {
    EnvFilter::try_new(format!("{DIRECTIVES},{directives}"))
}
