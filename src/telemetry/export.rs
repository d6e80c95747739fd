//! The registry of metrics and its two exports: Prometheus text on scrape, and OTLP push to a collector if one is
//! configured. Spans are sent only to that collector.

use std::{collections::BTreeMap, fmt, time::Duration};

use opentelemetry::{
    KeyValue,
    metrics::{Meter, MeterProvider as _},
};
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider},
};
use prometheus::{Registry, TextEncoder};

use super::{
    TelemetryError,
    collector::Collector,
    instruments::{self, Instrument},
    metrics::{Metrics, PoolStatus},
    names::{self, attribute},
    traces::Traces,
};
use crate::config::{OtlpConfig, TelemetryConfig};

/// Maximum spans per batch.
const MAX_BATCH_SPANS: usize = 512;
/// How long spans are collected before a batch is sent.
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// The telemetry of one replica.
#[derive(Clone)]
pub struct Telemetry {
    metrics: Metrics,
    registry: Registry,
    provider: SdkMeterProvider,
    traces: Traces,
    spans: Option<SdkTracerProvider>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telemetry")
    }
}

impl Telemetry {
    /// Builds the telemetry from the configuration. Pushed data is sent by tasks of the runtime in which this is
    /// called.
    pub fn new(config: &TelemetryConfig, replica: &str) -> Result<Self, TelemetryError> {
        let registry = Registry::new();
        let scraped =
            opentelemetry_prometheus::exporter().with_registry(registry.clone()).scope_info_enabled(false).build()?;
        let resource = resource(replica);
        let mut provider = SdkMeterProvider::builder().with_resource(resource.clone()).with_reader(scraped);
        let mut spans = None;
        if let Some(endpoint) = &config.otlp.endpoint {
            spans = Some(span_provider(config, endpoint, resource)?);
            let exporter = exporter(&config.otlp, endpoint)?;
            let pushed = PeriodicReader::builder(exporter).with_interval(config.otlp.metrics_interval).build();
            provider = provider.with_reader(pushed);
        }
        let provider = provider.build();
        Ok(Self {
            metrics: Metrics::new(&provider),
            registry,
            provider,
            traces: Traces::new(spans.as_ref(), &config.traces),
            spans,
        })
    }

    /// The metrics of this replica.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The source of this replica's spans.
    pub fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Renders all metrics in the Prometheus text format.
    pub fn scrape(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }

    /// Records the version, commit and schema version of this build.
    pub fn build_info(&self, commit: Option<&'static str>, schema: i32) {
        let mut labels = vec![
            KeyValue::new(attribute::VERSION, env!("CARGO_PKG_VERSION")),
            KeyValue::new(attribute::SCHEMA_VERSION, i64::from(schema)),
        ];
        labels.extend(commit.map(|commit| KeyValue::new(attribute::COMMIT, commit)));
        self.observe(&instruments::BUILD_INFO, move || vec![(1, labels.clone())]);
    }

    /// Registers the readiness gauge; `ready` is called at each collection.
    pub fn observe_readiness(&self, ready: impl Fn() -> bool + Send + Sync + 'static) {
        self.observe(&instruments::READY, move || vec![(u64::from(ready()), Vec::new())]);
    }

    /// Registers the gauge of leases held by this replica; `held` is called at each collection.
    pub fn observe_leases(&self, held: impl Fn() -> usize + Send + Sync + 'static) {
        self.observe(&instruments::LEASES, move || vec![(held() as u64, Vec::new())]);
    }

    /// Registers the gauges of the connection pools.
    pub fn observe_pools(&self, pools: impl Fn() -> Vec<PoolStatus> + Clone + Send + Sync + 'static) {
        let name = |pool: &PoolStatus| KeyValue::new(attribute::DB_POOL, pool.name);
        let state = |state: &'static str| KeyValue::new(attribute::DB_STATE, state);
        let all = pools.clone();
        self.observe(&instruments::DB_CONNECTIONS, move || {
            let of = |pool: PoolStatus| {
                [
                    (pool.used as u64, vec![name(&pool), state("used")]),
                    (pool.idle as u64, vec![name(&pool), state("idle")]),
                ]
            };
            all().into_iter().flat_map(of).collect()
        });
        let all = pools.clone();
        self.observe(&instruments::DB_CONNECTIONS_MAX, move || {
            let of = |pool: PoolStatus| (pool.max as u64, vec![name(&pool)]);
            all().into_iter().map(of).collect()
        });
        self.observe(&instruments::DB_PENDING, move || {
            let of = |pool: PoolStatus| (pool.pending as u64, vec![name(&pool)]);
            pools().into_iter().map(of).collect()
        });
    }

    fn observe(&self, instrument: &Instrument, values: impl Fn() -> Vec<(u64, Vec<KeyValue>)> + Send + Sync + 'static) {
        self.meter()
            .u64_observable_gauge(instrument.name)
            .with_unit(instrument.unit)
            .with_description(instrument.description)
            .with_callback(move |observer| {
                for (value, attributes) in values() {
                    observer.observe(value, &attributes);
                }
            })
            .build();
    }

    fn meter(&self) -> Meter {
        self.provider.meter(names::SCOPE)
    }

    /// Sends what is still buffered, for at most `patience`. Nothing is recorded afterwards.
    pub async fn shut_down(&self, patience: Duration) {
        let provider = self.provider.clone();
        let spans = self.spans.clone();
        // The shutdown waits for threads that send through this runtime.
        let sent = tokio::task::spawn_blocking(move || {
            let spans = spans.map(|spans| spans.shutdown_with_timeout(patience));
            (spans, provider.shutdown_with_timeout(patience))
        });
        let _ = tokio::time::timeout(patience, sent).await;
    }
}

/// The resource attributes of this replica. The library reads `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`.
fn resource(replica: &str) -> Resource {
    let named = |resource: &Resource| {
        let name = resource.get(&"service.name".into());
        name.is_some_and(|name| !name.as_str().starts_with("unknown_service"))
    };
    let found = Resource::builder().build();
    let mut builder = Resource::builder()
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("service.instance.id", replica.to_owned()));
    if !named(&found) {
        builder = builder.with_service_name("contextd");
    }
    builder.build()
}

fn exporter(config: &OtlpConfig, endpoint: &str) -> Result<MetricExporter, TelemetryError> {
    MetricExporter::builder()
        .with_http()
        .with_http_client(Collector::new(endpoint, config.timeout)?)
        .with_endpoint(signal(endpoint, "metrics"))
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(config.timeout)
        .build()
        .map_err(|error| TelemetryError::Otlp(error.to_string()))
}

/// Spans wait in a bounded queue until a thread sends them in batches.
fn span_provider(
    config: &TelemetryConfig,
    endpoint: &str,
    resource: Resource,
) -> Result<SdkTracerProvider, TelemetryError> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Collector::new(endpoint, config.otlp.timeout)?)
        .with_endpoint(signal(endpoint, "traces"))
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(config.otlp.timeout)
        .build()
        .map_err(|error| TelemetryError::Otlp(error.to_string()))?;
    let queued = config.traces.max_queued_spans;
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(queued)
        .with_max_export_batch_size(queued.min(MAX_BATCH_SPANS))
        .with_scheduled_delay(BATCH_DELAY)
        .build();
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
    let ratio = Sampler::TraceIdRatioBased(config.traces.sample_ratio);
    Ok(SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(Sampler::ParentBased(Box::new(ratio)))
        .with_span_processor(processor)
        .build())
}

/// The URL of a signal, as the OTLP specification defines it.
fn signal(endpoint: &str, signal: &str) -> String {
    format!("{}/v1/{signal}", endpoint.trim_end_matches('/'))
}

/// The name that Prometheus uses for each instrument.
pub fn prometheus_names() -> BTreeMap<String, &'static Instrument> {
    let name = |instrument: &&'static Instrument| {
        let mut name = instrument.name.replace('.', "_");
        name.push_str(match instrument.unit {
            "s" => "_seconds",
            "By" => "_bytes",
            _ => "",
        });
        if instrument.kind == instruments::Kind::Counter {
            name.push_str("_total");
        }
        (name, *instrument)
    };
    instruments::INSTRUMENTS.iter().map(name).collect()
}
