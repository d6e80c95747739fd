//! Decodes WatchEvents and ListEvents.

use super::{Findings, Path, StreamOptions, id, number, page, stream};
use crate::{
    grpc::violations::RequestError,
    model::{Seq, SessionId, TurnId, command::Watch},
    pb,
};

pub const WATCH_EVENTS: &str = "contextd.v1.TurnService/WatchEvents";
pub const LIST_EVENTS: &str = "contextd.v1.TurnService/ListEvents";
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
pub fn watch_events(
    request: pb::WatchEventsRequest,
) -> Result<(Watch, StreamOptions), RequestError> {
    let mut found = Findings::of(WATCH_EVENTS);
    let pb::WatchEventsRequest {
        session_id,
        turn_id,
        after_seq,
        follow,
        stream,
    } = request;
    let watch = Watch {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        turn: id::optional_turn(Path::to("turn_id"), turn_id, &mut found),
        after: number::seq(Path::to("after_seq"), after_seq, &mut found),
        follow,
    };
    let stream = stream::options(stream, &mut found);
    found.finish((watch, stream))
}

/// Decodes a ListEventsRequest.
pub fn list_events(request: pb::ListEventsRequest) -> Result<ListEvents, RequestError> {
    let mut found = Findings::of(LIST_EVENTS);
    let pb::ListEventsRequest {
        session_id,
        turn_id,
        after_seq,
        page_size,
    } = request;
    let list = ListEvents {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        turn: id::optional_turn(Path::to("turn_id"), turn_id, &mut found),
        after: number::seq(Path::to("after_seq"), after_seq, &mut found),
        size: page::size(page_size, DEFAULT_EVENTS, &mut found),
    };
    found.finish(list)
}
