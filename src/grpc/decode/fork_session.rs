//! Decodes ForkSession.

use super::{
    Findings,
    hash::{idempotency, request_hash},
    id, number,
};
use crate::{
    grpc::violations::RequestError,
    model::{SessionId, command::ForkSession},
    pb::{self, rpc},
};

/// Decodes a ForkSessionRequest.
pub fn fork_session(mut request: pb::ForkSessionRequest) -> Result<ForkSession, RequestError> {
    let found = Findings::check(rpc::FORK_SESSION, &mut request);
    let hash = request_hash(rpc::FORK_SESSION, &request);
    let pb::ForkSessionRequest { session_id, at_seq, new_session_id, request_id } = request;
    let fork = ForkSession {
        session: SessionId::new(session_id),
        at: number::optional_seq(at_seq),
        new: id::optional_session(new_session_id),
        idempotency: idempotency(request_id, hash),
    };
    found.finish(fork)
}
