//! Distinguishes a client stream that ended from one that was cut off. The framework reports both as the end
//! of the stream, but a cancelled or disconnected upload must not be stored as if it were complete.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use futures_util::{StreamExt as _, stream};
use http::Request;
use http_body_util::{BodyStream, StreamBody};
use tonic::body::Body;

use super::middleware::{Answer, Middleware, Next};
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

/// Watches the bodies of RPCs that store uploads.
#[derive(Debug, Clone, Copy)]
pub struct BodyEndWatch;

impl Middleware<Body> for BodyEndWatch {
    fn handle<N: Next<Body>>(&self, mut request: Request<Body>, next: &mut N) -> Answer<N::Error> {
        if request.uri().path().strip_prefix('/') == Some(PUT_BLOB) {
            let ended = BodyEnd::default();
            request.extensions_mut().insert(ended.clone());
            let end = stream::poll_fn(move |_| {
                ended.0.store(true, Ordering::Release);
                Poll::Ready(None)
            });
            request = request.map(|body| Body::new(StreamBody::new(BodyStream::new(body).chain(end))));
        }
        Box::pin(next.call(request))
    }
}
