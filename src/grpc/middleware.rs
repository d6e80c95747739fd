//! The form of all middleware between a connection and the handlers.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use tonic::body::Body;
use tower::{Layer, Service};

/// A response that is being made.
pub type Answer<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

/// Handles calls before, after or instead of the services behind it.
pub trait Middleware<Q>: Clone {
    /// Handles a call. `next` is what is behind, and is ready for one call.
    fn handle<N: Next<Q>>(&self, request: Request<Q>, next: &mut N) -> Answer<N::Error>;
}

/// The services behind middleware.
pub trait Next<Q>:
    Service<Request<Q>, Response = Response<Body>, Error: Send + 'static, Future: Send + 'static> + Clone + Send + 'static
{
}

impl<S, Q> Next<Q> for S
where
    S: Service<Request<Q>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
{
}

/// Takes the instance that is ready, to call it later, and leaves a clone in its place.
pub(super) fn take_ready<N: Clone>(next: &mut N) -> N {
    let clone = next.clone();
    std::mem::replace(next, clone)
}

/// A body that keeps a value until it is dropped.
pub(super) fn holding<T: Send + 'static>(body: Body, held: T) -> Body {
    Body::new(body.map_frame(move |frame| {
        let _held = &held;
        frame
    }))
}

/// The layer of a middleware.
#[derive(Debug, Clone)]
pub struct With<M>(pub M);

impl<M: Clone, S> Layer<S> for With<M> {
    type Service = Layered<M, S>;

    fn layer(&self, next: S) -> Self::Service {
        Layered { middleware: self.0.clone(), next }
    }
}

/// A service behind middleware.
#[derive(Debug, Clone)]
pub struct Layered<M, S> {
    middleware: M,
    next: S,
}

impl<M: Middleware<Q>, S: Next<Q>, Q> Service<Request<Q>> for Layered<M, S> {
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Answer<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.next.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        self.middleware.handle(request, &mut self.next)
    }
}
