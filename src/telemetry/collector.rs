//! Sends metrics and spans to the OTLP collector over contextd's own HTTP client. An unreachable collector is logged
//! once per period and delays only its own exports.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::{Request, Response};
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use tokio::{runtime::Handle, time::Instant};

use super::TelemetryError;

/// Failed exports are logged at most once per period.
const PERIOD: Duration = Duration::from_mins(5);
/// At most this many bytes of a response are read; its content is not used.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// The HTTP client of the OTLP exporters.
pub(super) struct Collector {
    http: reqwest::Client,
    runtime: Handle,
    reported: Mutex<Option<Instant>>,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

impl Collector {
    /// Creates a client for the collector at `endpoint`. Each request is limited to `timeout`.
    pub(super) fn new(endpoint: &str, timeout: Duration) -> Result<Self, TelemetryError> {
        let mut builder = reqwest::Client::builder().timeout(timeout).redirect(reqwest::redirect::Policy::none());
        if endpoint.starts_with("http://") {
            // Plain HTTP to a local collector: the system's certificate authorities are not needed and may be missing.
            builder = builder.tls_certs_only([]).no_proxy();
        }
        let http = builder.build().map_err(|error| TelemetryError::Otlp(error.to_string()))?;
        Ok(Self { http, runtime: Handle::current(), reported: Mutex::default() })
    }

    /// Logs a failed export, at most once per [`PERIOD`].
    fn failed(&self, error: &str) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_none_or(|reported| reported.elapsed() >= PERIOD) {
            *reported = Some(Instant::now());
            tracing::warn!(error, "exporting metrics or traces failed");
        }
    }

    fn succeeded(&self) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.take().is_some() {
            tracing::info!("exporting metrics and traces works again");
        }
    }
}

impl HttpClient for Collector {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        let http = self.http.clone();
        // Exporters run on their own threads, which have no async runtime.
        let sent = self.runtime.spawn(send(http, request));
        Box::pin(async move {
            let answer: Result<_, HttpError> = match sent.await {
                Ok(answer) => answer,
                Err(error) => Err(error.into()),
            };
            match &answer {
                Ok(answer) if answer.status().is_success() => self.succeeded(),
                Ok(answer) => self.failed(&format!("the collector returned {}", answer.status())),
                Err(error) => self.failed(&error.to_string()),
            }
            answer
        })
    }
}

async fn send(http: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (head, body) = request.into_parts();
    let mut answer = http.request(head.method, head.uri.to_string()).headers(head.headers).body(body).send().await?;
    let mut response = Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        *headers = std::mem::take(answer.headers_mut());
    }
    let mut read = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if read.len() + chunk.len() > MAX_RESPONSE_BYTES {
            break;
        }
        read.extend_from_slice(&chunk);
    }
    Ok(response.body(read.into())?)
}
