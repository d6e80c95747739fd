//! What the server answers while it cannot work: requests get UNAVAILABLE with a reason, and health
//! checks get the reason too, in a header.

use std::{
    pin::Pin,
    sync::{Arc, PoisonError, RwLock},
    task::{Context, Poll},
};

use http::{HeaderName, HeaderValue, Request, Response};
use tower::{Layer, Service};

use super::{readiness::Readiness, status};

/// Says on the answer to a check of the server's health why it is not ready.
pub const NOT_READY: HeaderName = HeaderName::from_static("contextd-not-ready");
/// With what the paths of our own services begin. Health and reflection are always answered.
const OUR_SERVICES: &str = "/contextd.v1.";
/// With what the paths of the health service begin.
pub(super) const HEALTH: &str = "/grpc.health.v1.Health/";
/// Bytes of a reason that are shown.
const REASON_SHOWN: usize = 500;

/// How the server stands, as all of its parts see it.
#[derive(Debug, Clone)]
pub struct Gate(Arc<RwLock<Readiness>>);

impl Gate {
    /// A gate that stands so.
    pub fn new(readiness: Readiness) -> Self {
        Self(Arc::new(RwLock::new(readiness)))
    }

    /// Changes how it stands.
    pub fn set(&self, readiness: Readiness) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = readiness;
    }

    /// How it stands.
    pub fn readiness(&self) -> Readiness {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated {
            inner,
            gate: self.clone(),
        }
    }
}

/// A service before which a gate stands.
#[derive(Debug, Clone)]
pub struct Gated<S> {
    inner: S,
    gate: Gate,
}

impl<S, Q, B> Service<Request<Q>> for Gated<S>
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
                explained(self.inner.call(request), &closed.to_string())
            }
            Readiness::Unready(why) if path.starts_with(HEALTH) => {
                explained(self.inner.call(request), &why)
            }
            Readiness::Ready | Readiness::Unready(_) | Readiness::Closed(_) => {
                Box::pin(self.inner.call(request))
            }
        }
    }
}

/// The answer, with the reason in its header.
fn explained<B: 'static, E: 'static>(
    answer: impl Future<Output = Result<Response<B>, E>> + Send + 'static,
    why: &str,
) -> Pin<Box<dyn Future<Output = Result<Response<B>, E>> + Send>> {
    let printable = |char: char| {
        if char == ' ' || char.is_ascii_graphic() {
            char
        } else {
            '?'
        }
    };
    let why: String = why.chars().map(printable).take(REASON_SHOWN).collect();
    Box::pin(async move {
        let mut response = answer.await?;
        if let Ok(why) = HeaderValue::from_str(&why) {
            response.headers_mut().insert(NOT_READY, why);
        }
        Ok(response)
    })
}
