//! Tells a stream of requests that ended from one that broke off. The framework shows both as an
//! end: a client's cancel, or a lost connection, must not make half of an upload the whole.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use http::Request;
use http_body::{Frame, SizeHint};
use prost::bytes::Bytes;
use tonic::{Status, body::Body};
use tower::{Layer, Service};

use super::decode::PUT_BLOB;

/// Whether the body of a request has come to its proper end. Travels in the request's extensions.
#[derive(Debug, Clone, Default)]
pub struct Ended(Arc<AtomicBool>);

impl Ended {
    /// Whether it has.
    pub fn is_whole(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Watches the bodies of the RPCs that store what they read.
#[derive(Debug, Clone, Copy)]
pub struct WholeBodies;

impl<S> Layer<S> for WholeBodies {
    type Service = Watching<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Watching { inner }
    }
}

/// A service whose requests are watched.
#[derive(Debug, Clone)]
pub struct Watching<S> {
    inner: S,
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for Watching<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path().strip_prefix('/') != Some(PUT_BLOB) {
            return self.inner.call(request);
        }
        let ended = Ended::default();
        let mut request = request.map(|inner| {
            Body::new(Watched {
                inner,
                ended: ended.clone(),
            })
        });
        request.extensions_mut().insert(ended);
        self.inner.call(request)
    }
}

/// A body that notes its end.
struct Watched {
    inner: Body,
    ended: Ended,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if frame.is_none() {
            self.ended.0.store(true, Ordering::Release);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
