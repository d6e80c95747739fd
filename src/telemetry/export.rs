//! One registry and its two ways out: Prometheus text when it is scraped, and OTLP pushed to a
//! collector where one is configured.

use std::{collections::BTreeMap, fmt, time::Duration};

use opentelemetry::{
    KeyValue,
    metrics::{Meter, MeterProvider as _},
};
use opentelemetry_otlp::{MetricExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
};
use prometheus::{Registry, TextEncoder};

use super::{
    TelemetryError,
    collector::Collector,
    metrics::{Metrics, PoolStatus},
    names::{self, Instrument, attribute},
};
use crate::config::{OtlpConfig, TelemetryConfig};

/// The telemetry of one replica.
#[derive(Clone)]
pub struct Telemetry {
    metrics: Metrics,
    registry: Registry,
    provider: SdkMeterProvider,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telemetry")
    }
}

impl Telemetry {
    /// As the configuration says. What is pushed is sent by tasks of the runtime that this is called
    /// in.
    pub fn new(config: &TelemetryConfig, replica: &str) -> Result<Self, TelemetryError> {
        let registry = Registry::new();
        let scraped = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()?;
        let mut provider = SdkMeterProvider::builder()
            .with_resource(resource(replica))
            .with_reader(scraped);
        if let Some(endpoint) = &config.otlp.endpoint {
            let exporter = exporter(&config.otlp, endpoint)?;
            let pushed = PeriodicReader::builder(exporter)
                .with_interval(config.otlp.metrics_interval)
                .build();
            provider = provider.with_reader(pushed);
        }
        let provider = provider.build();
        Ok(Self {
            metrics: Metrics::new(&provider),
            registry,
            provider,
        })
    }

    /// What is measured.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// All metrics in the text format of Prometheus.
    pub fn scrape(&self) -> String {
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_default()
    }

    /// Says which build this is.
    pub fn build_info(&self, version: &'static str, schema: i32) {
        let labels = [
            KeyValue::new(attribute::VERSION, version),
            KeyValue::new(attribute::SCHEMA_VERSION, i64::from(schema)),
        ];
        self.observe(&names::BUILD_INFO, move || vec![(1, labels.to_vec())]);
    }

    /// Observes whether the server takes requests.
    pub fn observe_readiness(&self, ready: impl Fn() -> bool + Send + Sync + 'static) {
        self.observe(&names::READY, move || {
            vec![(u64::from(ready()), Vec::new())]
        });
    }

    /// Observes how many leases are held here.
    pub fn observe_leases(&self, held: impl Fn() -> usize + Send + Sync + 'static) {
        self.observe(&names::LEASES, move || vec![(held() as u64, Vec::new())]);
    }

    /// Observes the pools of connections.
    pub fn observe_pools(
        &self,
        pools: impl Fn() -> Vec<PoolStatus> + Clone + Send + Sync + 'static,
    ) {
        let name = |pool: &PoolStatus| KeyValue::new(attribute::DB_POOL, pool.name);
        let state = |state: &'static str| KeyValue::new(attribute::DB_STATE, state);
        let all = pools.clone();
        self.observe(&names::DB_CONNECTIONS, move || {
            let of = |pool: PoolStatus| {
                [
                    (pool.used as u64, vec![name(&pool), state("used")]),
                    (pool.idle as u64, vec![name(&pool), state("idle")]),
                ]
            };
            all().into_iter().flat_map(of).collect()
        });
        let all = pools.clone();
        self.observe(&names::DB_CONNECTIONS_MAX, move || {
            let of = |pool: PoolStatus| (pool.max as u64, vec![name(&pool)]);
            all().into_iter().map(of).collect()
        });
        self.observe(&names::DB_PENDING, move || {
            let of = |pool: PoolStatus| (pool.pending as u64, vec![name(&pool)]);
            pools().into_iter().map(of).collect()
        });
    }

    fn observe(
        &self,
        instrument: &Instrument,
        values: impl Fn() -> Vec<(u64, Vec<KeyValue>)> + Send + Sync + 'static,
    ) {
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

    /// Sends what was not sent yet, for at most so long. Nothing is measured afterwards.
    pub async fn shut_down(&self, patience: Duration) {
        let provider = self.provider.clone();
        // It waits for a thread that sends by this runtime.
        let sent = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(patience));
        let _ = tokio::time::timeout(patience, sent).await;
    }
}

/// Who measures. The variables `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` are read by the
/// library.
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
        .with_timeout(config.timeout)
        .build()
        .map_err(|error| TelemetryError::Otlp(error.to_string()))
}

/// Where a signal goes, by the OTLP specification.
fn signal(endpoint: &str, signal: &str) -> String {
    format!("{}/v1/{signal}", endpoint.trim_end_matches('/'))
}

/// How Prometheus names an instrument.
pub fn prometheus_names() -> BTreeMap<String, &'static Instrument> {
    let name = |instrument: &&'static Instrument| {
        let mut name = instrument.name.replace('.', "_");
        name.push_str(match instrument.unit {
            "s" => "_seconds",
            "By" => "_bytes",
            _ => "",
        });
        if instrument.kind == names::Kind::Counter {
            name.push_str("_total");
        }
        (name, *instrument)
    };
    names::INSTRUMENTS.iter().map(name).collect()
}
