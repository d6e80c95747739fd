//! Decodes WatchEvents and ListEvents.

use super::{Findings, StreamOptions, id, page, stream};
use crate::{
    grpc::violations::RequestError,
    model::{Seq, SessionId, TurnId, command::Watch},
    pb::{self, rpc},
};

/// Default page size of ListEvents.
const DEFAULT_EVENTS: u32 = 100;

/// A validated request of ListEvents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEvents {
    pub session: SessionId,
    /// Return only events of this turn.
    pub turn: Option<TurnId>,
    /// Return only events after this seq.
    pub after: Seq,
    /// Maximum number of events.
    pub size: u32,
}

/// Decodes a WatchEventsRequest.
pub fn watch_events(mut request: pb::WatchEventsRequest) -> Result<(Watch, StreamOptions), RequestError> {
    let found = Findings::check(rpc::WATCH_EVENTS, &mut request);
    let pb::WatchEventsRequest { session_id, turn_id, after_seq, follow, stream } = request;
    let watch =
        Watch { session: SessionId::new(session_id), turn: id::optional_turn(turn_id), after: Seq(after_seq), follow };
    let stream = stream::options(stream);
    found.finish((watch, stream))
}

/// Decodes a ListEventsRequest.
pub fn list_events(mut request: pb::ListEventsRequest) -> Result<ListEvents, RequestError> {
    let found = Findings::check(rpc::LIST_EVENTS, &mut request);
    let pb::ListEventsRequest { session_id, turn_id, after_seq, page_size } = request;
    let list = ListEvents {
        session: SessionId::new(session_id),
        turn: id::optional_turn(turn_id),
        after: Seq(after_seq),
        size: page::size(page_size, DEFAULT_EVENTS),
    };
    found.finish(list)
}
