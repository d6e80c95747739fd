//! Decodes ForkSession.

use super::{
    Findings, Path,
    hash::{idempotency, request_hash},
    id, number,
};
use crate::{grpc::violations::RequestError, model::command::ForkSession, pb};

pub const FORK_SESSION: &str = "contextd.v1.SessionService/ForkSession";

/// Decodes a ForkSessionRequest.
pub fn fork_session(request: pb::ForkSessionRequest) -> Result<ForkSession, RequestError> {
    let mut found = Findings::of(FORK_SESSION);
    let hash = request_hash(FORK_SESSION, &request);
    let pb::ForkSessionRequest {
        session_id,
        at_seq,
        new_session_id,
        request_id,
    } = request;
    let fork = ForkSession {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        at: number::optional_seq(Path::to("at_seq"), at_seq, &mut found),
        new: id::optional_session(Path::to("new_session_id"), new_session_id, &mut found),
        idempotency: idempotency(request_id, hash, &mut found),
    };
    found.finish(fork)
}
