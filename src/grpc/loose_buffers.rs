//! Lets go of the buffer that a large event was sent in. The framework encodes every event of a stream into the same buffer for as long as
//! nobody else holds it: a reader that was shown one long message would hold on to its size until the stream ends.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use http_body::{Frame, SizeHint};
use prost::bytes::Bytes;
use tonic::{Status, body::Body};
use tower::{Layer, Service};

use super::decode::{EXECUTE_TURN, WATCH_EVENTS};

/// Watches the bodies of the RPCs that stream events.
#[derive(Debug, Clone, Copy)]
pub struct LooseBuffers;

impl<S> Layer<S> for LooseBuffers {
    type Service = Loosening<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Loosening { inner }
    }
}

/// A service whose streams are watched.
#[derive(Debug, Clone)]
pub struct Loosening<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for Loosening<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let streams =
            request.uri().path().strip_prefix('/').is_some_and(|rpc| [EXECUTE_TURN, WATCH_EVENTS].contains(&rpc));
        let answer = self.inner.call(request);
        if !streams {
            return Box::pin(answer);
        }
        Box::pin(async move { Ok(answer.await?.map(|inner| Body::new(Loose { inner, last: Bytes::new() }))) })
    }
}

/// A body that holds its last piece until there is another one, so that this is written into a buffer of its own.
struct Loose {
    inner: Body,
    last: Bytes,
}

impl http_body::Body for Loose {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        self.last = match &frame {
            Some(Ok(frame)) => frame.data_ref().cloned().unwrap_or_default(),
            Some(Err(_)) | None => Bytes::new(),
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
