//! Distinguishes a client stream that ended from one that was cut off. The framework reports both as the end
//! of the stream, but a cancelled or disconnected upload must not be stored as if it were complete.

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

use crate::pb::rpc::PUT_BLOB;

/// Whether the body of a request ended properly. Travels in the request's extensions.
#[derive(Debug, Clone, Default)]
pub struct BodyEnd(Arc<AtomicBool>);

impl BodyEnd {
    /// Whether the body was received completely.
    pub fn is_complete(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The layer that watches the bodies of RPCs that store uploads.
#[derive(Debug, Clone, Copy)]
pub struct BodyEndLayer;

impl<S> Layer<S> for BodyEndLayer {
    type Service = BodyEndService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        BodyEndService { inner }
    }
}

/// A service that watches request bodies.
#[derive(Debug, Clone)]
pub struct BodyEndService<S> {
    inner: S,
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for BodyEndService<S> {
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
        let ended = BodyEnd::default();
        let mut request = request.map(|inner| Body::new(EndRecordingBody { inner, ended: ended.clone() }));
        request.extensions_mut().insert(ended);
        self.inner.call(request)
    }
}

/// A body that records its end.
struct EndRecordingBody {
    inner: Body,
    ended: BodyEnd,
}

impl http_body::Body for EndRecordingBody {
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
