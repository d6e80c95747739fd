//! Errors that the framework reports by itself, before any handler runs, in the words of our table:
//! a request that is larger than the server reads, bytes that are not the message, and an RPC that
//! no version of ours has.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::status;

/// Characters of an unknown RPC's name that are shown.
const RPC_SHOWN: usize = 200;

/// Translates the framework's own refusals.
#[derive(Debug, Clone, Copy)]
pub struct WireErrors {
    /// The limit that is reported, in bytes.
    pub max_request_bytes: usize,
}

impl<S> Layer<S> for WireErrors {
    type Service = Translating<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Translating {
            inner,
            max_request_bytes: self.max_request_bytes,
        }
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
        let rpc = request.uri().path().trim_start_matches('/').to_owned();
        let answer = self.inner.call(request);
        let limit = self.max_request_bytes;
        Box::pin(async move {
            let response = answer.await?;
            Ok(match translated(&response, &rpc, limit) {
                Some(status) => status.into_http(),
                None => response,
            })
        })
    }
}

/// The status in our words. `None` means it is ours already, or not an error at the border. Each of
/// ours carries details, so what has none was said by the framework, and INTERNAL of its is a
/// request that it could not read.
fn translated<B>(response: &Response<B>, rpc: &str, limit: usize) -> Option<Status> {
    let status = Status::from_header_map(response.headers())?;
    if !status.details().is_empty() {
        return None;
    }
    let code = status.code();
    let words = status.message();
    if code == Code::OutOfRange && words.contains("message length too large") {
        Some(status::request_too_large(limit))
    } else if code == Code::Internal {
        Some(status::undecodable())
    } else if code == Code::Unimplemented && words.is_empty() {
        Some(status::not_implemented_rpc(
            &rpc.chars().take(RPC_SHOWN).collect::<String>(),
        ))
    } else {
        None
    }
}
