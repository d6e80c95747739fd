//! Where logs and traces go. No content of messages is ever in them.

use std::io::IsTerminal;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::{LogFormat, TelemetryConfig};

pub mod progress;

/// What sends the traces must not be traced.
const OF_THE_EXPORTER: [&str; 4] = ["h2=off", "hyper=off", "tonic=off", "tower=off"];

/// How long the collector may take for the last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Telemetry cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter is wrong.
    #[error("the log filter cannot be used")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The collector's address is wrong.
    #[error("traces cannot be sent to the collector")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    /// Telemetry was set up before.
    #[error("telemetry is set up already")]
    SetUpTwice(#[from] tracing_subscriber::util::TryInitError),
}

/// Starts logs on stderr, and traces if there is a collector. Needs the runtime.
pub fn init(config: &TelemetryConfig) -> Result<Guard, TelemetryError> {
    let provider = config.otlp_endpoint.as_deref().map(|endpoint| tracer_provider(endpoint, config)).transpose()?;
    let traces = provider.as_ref().map(|provider| traces(provider, config)).transpose()?;
    tracing_subscriber::registry().with(logs(config)?).with(traces).try_init()?;
    Ok(Guard { provider })
}

/// Sends the last spans when it goes.
#[derive(Debug)]
#[must_use = "telemetry ends when the guard is dropped"]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

impl Guard {
    /// Sends the last spans without holding up the runtime.
    pub async fn shutdown(self) {
        // The only failure is a panic of the exporter, and it ends here as well.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(provider) = self.provider.take() else { return };
        if let Err(error) = provider.shutdown_with_timeout(FLUSH_TIMEOUT) {
            tracing::warn!(error = %error, "the last spans may not have reached the collector");
        }
    }
}

fn logs<S>(config: &TelemetryConfig) -> Result<Box<dyn Layer<S> + Send + Sync>, TelemetryError>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let mut lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    if !std::io::stderr().is_terminal() {
        lines.set_ansi(false);
    }
    let lines = match config.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    Ok(lines.with_filter(EnvFilter::try_new(&config.log)?).boxed())
}

fn traces<S>(
    provider: &SdkTracerProvider,
    config: &TelemetryConfig,
) -> Result<Box<dyn Layer<S> + Send + Sync>, TelemetryError>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let mut filter = EnvFilter::try_new(&config.log)?;
    for directive in OF_THE_EXPORTER {
        filter = filter.add_directive(directive.parse::<Directive>()?);
    }
    let tracer = provider.tracer(env!("CARGO_PKG_NAME"));
    Ok(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(filter).boxed())
}

fn tracer_provider(endpoint: &str, config: &TelemetryConfig) -> Result<SdkTracerProvider, TelemetryError> {
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build()?;
    let resource = Resource::builder().with_service_name(config.service_name.clone()).build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}
