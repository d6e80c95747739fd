//! Errors that the framework reports by itself, before any handler runs, in the words of our table: a request that is larger than
//! the server reads, and bytes that are not the message.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::status;

/// Translates the framework's own refusals.
#[derive(Debug, Clone, Copy)]
pub struct WireErrors {
    /// The limit that is told, in bytes.
    pub max_request_bytes: usize,
}

impl<S> Layer<S> for WireErrors {
    type Service = Translating<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Translating { inner, max_request_bytes: self.max_request_bytes }
    }
}

/// A service whose refusals are translated.
#[derive(Debug, Clone)]
pub struct Translating<S> {
    inner: S,
    max_request_bytes: usize,
}

impl<S, Q, B> Service<Request<Q>> for Translating<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: Default,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let (answer, limit) = (self.inner.call(request), self.max_request_bytes);
        Box::pin(async move {
            let response = answer.await?;
            Ok(match translated(&response, limit) {
                Some(status) => status.into_http(),
                None => response,
            })
        })
    }
}

/// The status in our words; none: it is ours already, or not an error at the border.
fn translated<B>(response: &Response<B>, limit: usize) -> Option<Status> {
    let status = Status::from_header_map(response.headers())?;
    if !status.details().is_empty() {
        return None;
    }
    let says = |code: Code, words: &str| status.code() == code && status.message().contains(words);
    if says(Code::OutOfRange, "message length too large") {
        Some(status::request_too_large(limit))
    } else if says(Code::Internal, "failed to decode Protobuf message") {
        Some(status::undecodable())
    } else {
        None
    }
}
