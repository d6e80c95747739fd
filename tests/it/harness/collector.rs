//! An OTLP collector for tests: real protobuf over HTTP on a free port. Every export is kept, as bytes and as messages.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{KeyValue, any_value::Value},
    metrics::v1::{Metric, metric::Data, number_data_point},
    trace::v1::Span,
};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A collector. It stops at the end of the test.
pub struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    stop: CancellationToken,
}

#[derive(Default)]
struct Received {
    bytes: Vec<Bytes>,
    metrics: Vec<ExportMetricsServiceRequest>,
    traces: Vec<ExportTraceServiceRequest>,
}

impl Collector {
    /// Starts a collector on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Received>>::default();
        let stop = CancellationToken::new();
        let serving = accept(listener, Arc::clone(&received));
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
        Self { address, received, stop }
    }

    /// The URL of the collector.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All received data as text, to search it for content that must not be exported.
    pub fn dump(&self) -> String {
        let received = self.received.lock().unwrap();
        let texts = received.bytes.iter().map(|it| String::from_utf8_lossy(it));
        texts.collect()
    }

    /// All received metrics with all their fields, as text.
    pub fn metrics_dump(&self) -> String {
        let received = self.received.lock().unwrap();
        let bytes = received.metrics.iter().map(|it| it.encode_to_vec());
        bytes.map(|it| String::from_utf8_lossy(&it).into_owned()).collect()
    }

    /// The latest value of a counter, as the sum over the attribute sets that contain `value`.
    pub fn counter(&self, name: &str, value: &str) -> Option<i64> {
        let received = self.received.lock().unwrap();
        let newest = received.metrics.iter().rev();
        newest.flat_map(metrics).find_map(|metric| {
            let Some(Data::Sum(sum)) = metric.data.as_ref().filter(|_| metric.name == name) else {
                return None;
            };
            let points = sum.data_points.iter();
            let mut ours = points.filter(|point| has(&point.attributes, value)).peekable();
            ours.peek()?;
            Some(ours.map(|point| whole(point.value)).sum())
        })
    }

    /// The names of all received metrics.
    pub fn metric_names(&self) -> Vec<String> {
        let received = self.received.lock().unwrap();
        let all = received.metrics.iter().flat_map(metrics);
        let mut names: Vec<_> = all.map(|metric| metric.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The resource attributes of the received metrics and spans.
    pub fn resources(&self) -> Vec<(String, String)> {
        let received = self.received.lock().unwrap();
        let metrics = received.metrics.iter().flat_map(|it| &it.resource_metrics);
        let spans = received.traces.iter().flat_map(|it| &it.resource_spans);
        let resources = metrics.map(|it| &it.resource).chain(spans.map(|it| &it.resource));
        let attributes = resources.flatten().flat_map(|it| &it.attributes);
        attributes.map(|it| (it.key.clone(), text(it))).collect()
    }

    /// The scopes of the received spans: their names and schema URLs.
    pub fn scopes(&self) -> BTreeSet<(String, String)> {
        let received = self.received.lock().unwrap();
        let resources = received.traces.iter().flat_map(|it| &it.resource_spans);
        let scopes = resources.flat_map(|it| &it.scope_spans);
        scopes
            .map(|it| {
                let name = it.scope.as_ref().map(|scope| scope.name.clone());
                (name.unwrap_or_default(), it.schema_url.clone())
            })
            .collect()
    }

    /// All received spans.
    pub fn spans(&self) -> Vec<Span> {
        let received = self.received.lock().unwrap();
        let resources = received.traces.iter().flat_map(|it| &it.resource_spans);
        let scopes = resources.flat_map(|it| &it.scope_spans);
        scopes.flat_map(|it| it.spans.clone()).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The text of an attribute.
pub fn text(attribute: &KeyValue) -> String {
    let value = attribute.value.as_ref().and_then(|it| it.value.as_ref());
    match value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(it)) => it.to_string(),
        other => format!("{other:?}"),
    }
}

fn metrics(request: &ExportMetricsServiceRequest) -> impl Iterator<Item = &Metric> {
    let scopes = request.resource_metrics.iter().flat_map(|it| &it.scope_metrics);
    scopes.flat_map(|it| &it.metrics)
}

fn has(attributes: &[KeyValue], value: &str) -> bool {
    attributes.iter().any(|attribute| text(attribute) == value)
}

fn whole(value: Option<number_data_point::Value>) -> i64 {
    match value {
        Some(number_data_point::Value::AsInt(value)) => value,
        other => panic!("{other:?} is no whole number"),
    }
}

async fn accept(listener: TcpListener, received: Arc<Mutex<Received>>) {
    while let Ok((socket, _)) = listener.accept().await {
        let received = Arc::clone(&received);
        let service = service_fn(move |request| take_in(request, Arc::clone(&received)));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
    }
}

async fn take_in(
    request: Request<Incoming>,
    received: Arc<Mutex<Received>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    assert_eq!(head.headers["content-type"], "application/x-protobuf");
    let body = body.collect().await.unwrap().to_bytes();
    let mut received = received.lock().unwrap();
    received.bytes.push(body.clone());
    match head.uri.path() {
        "/v1/metrics" => received.metrics.push(ExportMetricsServiceRequest::decode(body).unwrap()),
        "/v1/traces" => received.traces.push(ExportTraceServiceRequest::decode(body).unwrap()),
        other => panic!("nothing is exported to {other}"),
    }
    Ok(Response::new(Full::default()))
}
