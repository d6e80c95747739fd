//! Decodes the requests to read, list and cancel turns.

use super::{
    Findings, PageRequest,
    hash::{idempotency, request_hash},
    id, number, page, text,
};
use crate::{
    grpc::violations::RequestError,
    model::{SessionId, TurnId, command::CancelTurn},
    pb::{self, rpc},
};

/// A validated request of GetTurn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetTurn {
    pub session: SessionId,
    pub turn: TurnId,
}

/// A validated request of ListTurns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListTurns {
    pub session: SessionId,
    pub page: PageRequest,
}

/// Decodes a GetTurnRequest.
pub fn get_turn(mut request: pb::GetTurnRequest) -> Result<GetTurn, RequestError> {
    let found = Findings::check(rpc::GET_TURN, &mut request);
    let pb::GetTurnRequest { session_id, turn_id } = request;
    let get = GetTurn { session: SessionId::new(session_id), turn: TurnId::new(turn_id) };
    found.finish(get)
}

/// Decodes a ListTurnsRequest.
pub fn list_turns(mut request: pb::ListTurnsRequest) -> Result<ListTurns, RequestError> {
    let found = Findings::check(rpc::LIST_TURNS, &mut request);
    let pb::ListTurnsRequest { session_id, page_size, page_token } = request;
    let list = ListTurns { session: SessionId::new(session_id), page: page::page(page_size, page_token) };
    found.finish(list)
}

/// Decodes a CancelTurnRequest.
pub fn cancel_turn(mut request: pb::CancelTurnRequest) -> Result<CancelTurn, RequestError> {
    let found = Findings::check(rpc::CANCEL_TURN, &mut request);
    let hash = request_hash(rpc::CANCEL_TURN, &request);
    let pb::CancelTurnRequest { session_id, turn_id, request_id, mode, reason } = request;
    let cancel = CancelTurn {
        session: SessionId::new(session_id),
        turn: id::optional_turn(turn_id),
        idempotency: idempotency(request_id, hash),
        rollback: matches!(number::choice(mode), Some(pb::CancelMode::Rollback)),
        reason: text::replace_nul(reason).0,
    };
    found.finish(cancel)
}
