//! A response body that can be ended early with a status, by a deadline or by a credential that is no longer
//! valid.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::HeaderMap;
use http_body::{Frame, SizeHint};
use prost::bytes::Bytes;
use tonic::{Status, body::Body};

/// A response body that ends early with the status to which `end` resolves.
pub(super) struct EarlyEndBody<F> {
    /// `None` once the body has ended.
    inner: Option<Body>,
    end: Pin<Box<F>>,
}

impl<F: Future<Output = Status>> EarlyEndBody<F> {
    pub(super) fn new(inner: Body, end: F) -> Self {
        Self { inner: Some(inner), end: Box::pin(end) }
    }
}

impl<F: Future<Output = Status>> http_body::Body for EarlyEndBody<F> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(frame) = Pin::new(inner).poll_frame(context) {
            return Poll::Ready(frame);
        }
        let Poll::Ready(status) = self.end.as_mut().poll(context) else {
            return Poll::Pending;
        };
        // Dropping the body notifies the producer of the stream.
        self.inner = None;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}
