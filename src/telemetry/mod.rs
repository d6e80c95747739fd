//! Where logs go. No content of messages is ever in them. (Traces and metrics come later; nothing
//! is exported yet.)

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::{LogFormat, TelemetryConfig};

pub mod progress;

/// Telemetry cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter is wrong.
    #[error("the log filter cannot be used")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Telemetry was set up before.
    #[error("telemetry is already set up")]
    SetUpTwice(#[from] tracing_subscriber::util::TryInitError),
}

/// Starts logs on stderr.
pub fn init(config: &TelemetryConfig) -> Result<(), TelemetryError> {
    let mut lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    if !std::io::stderr().is_terminal() {
        lines.set_ansi(false);
    }
    let lines = match config.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(EnvFilter::try_new(&config.log)?))
        .try_init()?;
    Ok(())
}
