//! Translates errors that the framework returns before a handler runs into statuses of our table: a request
//! over the size limit, bytes that do not decode, and an unknown RPC.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::status;

/// Maximum length of an unknown RPC's name in the error, in characters.
const MAX_RPC_CHARS: usize = 200;

/// The layer that translates errors of the framework.
#[derive(Debug, Clone, Copy)]
pub struct WireErrorLayer {
    /// The size limit to report, in bytes.
    pub max_request_bytes: usize,
}

impl<S> Layer<S> for WireErrorLayer {
    type Service = WireErrorService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        WireErrorService { inner, max_request_bytes: self.max_request_bytes }
    }
}

/// A service whose framework errors are translated.
#[derive(Debug, Clone)]
pub struct WireErrorService<S> {
    inner: S,
    max_request_bytes: usize,
}

impl<S, Q, B> Service<Request<Q>> for WireErrorService<S>
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

/// The translated status. Returns `None` if the status is ours or is not an error of the framework. All our
/// statuses carry details, so a status without details is from the framework. Its INTERNAL means that it
/// could not decode the request.
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
        Some(status::not_implemented_rpc(&rpc.chars().take(MAX_RPC_CHARS).collect::<String>()))
    } else {
        None
    }
}
