//! Rejects requests with UNAVAILABLE and a reason while the server cannot work, and adds that reason to the
//! responses of health checks as a header.

use std::{
    future::ready,
    sync::{Arc, PoisonError, RwLock},
};

use http::{HeaderName, HeaderValue, Request, Response};
use tonic::body::Body;

use super::{
    middleware::{Answer, Middleware, Next},
    readiness::Readiness,
    status,
};

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

impl<Q> Middleware<Q> for Gate {
    fn handle<N: Next<Q>>(&self, request: Request<Q>, next: &mut N) -> Answer<N::Error> {
        let path = request.uri().path();
        match self.readiness() {
            Readiness::Closed(closed) if path.starts_with(OUR_SERVICES) => {
                Box::pin(ready(Ok(status::not_ready(&closed).into_http())))
            }
            Readiness::Closed(closed) if path.starts_with(HEALTH) => {
                with_reason_header(next.call(request), &closed.to_string())
            }
            Readiness::Unready(why) if path.starts_with(HEALTH) => with_reason_header(next.call(request), &why),
            Readiness::Ready | Readiness::Unready(_) | Readiness::Closed(_) => Box::pin(next.call(request)),
        }
    }
}

/// The response, with the reason in the [`NOT_READY`] header.
fn with_reason_header<E: Send + 'static>(
    answer: impl Future<Output = Result<Response<Body>, E>> + Send + 'static,
    why: &str,
) -> Answer<E> {
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
