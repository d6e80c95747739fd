//! Translates errors that the framework returns before a handler runs into statuses of our table: a request
//! over the size limit, bytes that do not decode, and an unknown RPC.

use http::{Request, Response};
use tonic::{Code, Status};

use super::{
    middleware::{Answer, Middleware, Next},
    status,
};

/// Maximum length of an unknown RPC's name in the error, in characters.
const MAX_RPC_CHARS: usize = 200;

/// Translates errors of the framework.
#[derive(Debug, Clone, Copy)]
pub struct WireErrors {
    /// The size limit to report, in bytes.
    pub max_request_bytes: usize,
}

impl<Q> Middleware<Q> for WireErrors {
    fn handle<N: Next<Q>>(&self, request: Request<Q>, next: &mut N) -> Answer<N::Error> {
        let rpc = request.uri().path().trim_start_matches('/').to_owned();
        let answer = next.call(request);
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
