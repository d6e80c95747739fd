//! Decodes the requests to read, list and cancel turns.

use super::{
    Findings, PageRequest, Path,
    hash::{idempotency, request_hash},
    id, number, page,
    text::{self, MaxLength},
};
use crate::{
    grpc::violations::RequestError,
    model::{SessionId, TurnId, command::CancelTurn},
    pb,
};

pub const GET_TURN: &str = "contextd.v1.TurnService/GetTurn";
pub const LIST_TURNS: &str = "contextd.v1.TurnService/ListTurns";
pub const CANCEL_TURN: &str = "contextd.v1.TurnService/CancelTurn";
/// Maximum length of the reason for a cancellation, in characters.
const MAX_REASON_LENGTH: MaxLength = MaxLength::Chars(1_024);

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
pub fn get_turn(request: pb::GetTurnRequest) -> Result<GetTurn, RequestError> {
    let mut found = Findings::of(GET_TURN);
    let pb::GetTurnRequest {
        session_id,
        turn_id,
    } = request;
    let get = GetTurn {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        turn: id::turn(Path::to("turn_id"), turn_id, &mut found),
    };
    found.finish(get)
}

/// Decodes a ListTurnsRequest.
pub fn list_turns(request: pb::ListTurnsRequest) -> Result<ListTurns, RequestError> {
    let mut found = Findings::of(LIST_TURNS);
    let pb::ListTurnsRequest {
        session_id,
        page_size,
        page_token,
    } = request;
    let list = ListTurns {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        page: page::page(page_size, page_token, &mut found),
    };
    found.finish(list)
}

/// Decodes a CancelTurnRequest.
pub fn cancel_turn(request: pb::CancelTurnRequest) -> Result<CancelTurn, RequestError> {
    let mut found = Findings::of(CANCEL_TURN);
    let hash = request_hash(CANCEL_TURN, &request);
    let pb::CancelTurnRequest {
        session_id,
        turn_id,
        request_id,
        mode,
        reason,
    } = request;
    let cancel = CancelTurn {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        turn: id::optional_turn(Path::to("turn_id"), turn_id, &mut found),
        idempotency: idempotency(request_id, hash, &mut found),
        rollback: matches!(
            number::enum_value(Path::to("mode"), mode, &mut found),
            Some(pb::CancelMode::Rollback)
        ),
        reason: text::free_text(Path::to("reason"), reason, MAX_REASON_LENGTH, &mut found),
    };
    found.finish(cancel)
}
