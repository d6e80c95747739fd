//! Rejects requests with UNAVAILABLE and a reason while the server cannot work, and adds that reason to the
//! responses of health checks as a header.

use std::{
    pin::Pin,
    sync::{Arc, PoisonError, RwLock},
    task::{Context, Poll},
};

use http::{HeaderName, HeaderValue, Request, Response};
use tower::{Layer, Service};

use super::{readiness::Readiness, status};

/// Response header of a health check with the reason why the server is not ready.
pub const NOT_READY: HeaderName = HeaderName::from_static("contextd-not-ready");
/// Path prefix of the services of this API. Health and reflection are always served.
const OUR_SERVICES: &str = "/contextd.v1.";
/// Path prefix of the health service.
pub(super) const HEALTH: &str = "/grpc.health.v1.Health/";
/// Maximum length of the reason, in bytes.
const MAX_REASON_BYTES: usize = 500;

/// The server's readiness, shared by all of its parts.
#[derive(Debug, Clone)]
pub struct Gate(Arc<RwLock<Readiness>>);

impl Gate {
    /// Creates a gate with an initial readiness.
    pub fn new(readiness: Readiness) -> Self {
        Self(Arc::new(RwLock::new(readiness)))
    }

    /// Changes the readiness.
    pub fn set(&self, readiness: Readiness) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = readiness;
    }

    /// The current readiness.
    pub fn readiness(&self) -> Readiness {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<S> Layer<S> for Gate {
    type Service = GateService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GateService { inner, gate: self.clone() }
    }
}

/// A service behind a [`Gate`].
#[derive(Debug, Clone)]
pub struct GateService<S> {
    inner: S,
    gate: Gate,
}

impl<S, Q, B> Service<Request<Q>> for GateService<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Default + Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let path = request.uri().path();
        match self.gate.readiness() {
            Readiness::Closed(closed) if path.starts_with(OUR_SERVICES) => {
                let refusal = status::not_ready(&closed).into_http();
                Box::pin(async move { Ok(refusal) })
            }
            Readiness::Closed(closed) if path.starts_with(HEALTH) => {
                with_reason_header(self.inner.call(request), &closed.to_string())
            }
            Readiness::Unready(why) if path.starts_with(HEALTH) => with_reason_header(self.inner.call(request), &why),
            Readiness::Ready | Readiness::Unready(_) | Readiness::Closed(_) => Box::pin(self.inner.call(request)),
        }
    }
}

/// The response, with the reason in the [`NOT_READY`] header.
fn with_reason_header<B: 'static, E: 'static>(
    answer: impl Future<Output = Result<Response<B>, E>> + Send + 'static,
    why: &str,
) -> Pin<Box<dyn Future<Output = Result<Response<B>, E>> + Send>> {
    let printable = |char: char| {
        if char == ' ' || char.is_ascii_graphic() { char } else { '?' }
    };
    let why: String = why.chars().map(printable).take(MAX_REASON_BYTES).collect();
    Box::pin(async move {
        let mut response = answer.await?;
        if let Ok(why) = HeaderValue::from_str(&why) {
            response.headers_mut().insert(NOT_READY, why);
        }
        Ok(response)
    })
}
