//! The requests about sessions: create, read, list, and list their messages.

use super::{
    Findings, PageRequest, Path, append_messages, config,
    hash::{idempotency, request_hash},
    id, ignored, labels, number, page,
    text::{self, AtMost},
    timestamp,
};
use crate::{
    grpc::violations::Refused,
    model::{PromptShape, Seq, SessionId, command::CreateSession},
    pb::{self, FieldReason},
    session::SessionState,
    store::{session_filter::SessionFilter, session_labels::TITLE_CHARS},
};

/// Name of the RPC.
pub const CREATE_SESSION: &str = "contextd.v1.SessionService/CreateSession";
/// Name of the RPC.
pub const GET_SESSION: &str = "contextd.v1.SessionService/GetSession";
/// Name of the RPC.
pub const LIST_SESSIONS: &str = "contextd.v1.SessionService/ListSessions";
/// Name of the RPC.
pub const LIST_MESSAGES: &str = "contextd.v1.SessionService/ListMessages";

/// Name of the RPC.
pub const EXPORT_MESSAGES: &str = "contextd.v1.SessionService/ExportMessages";

/// Which messages to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListMessages {
    /// The session.
    pub session: SessionId,
    /// Which of its messages.
    pub view: MessageView,
    /// As they were at this seq. `None` means as they are now.
    pub at: Option<Seq>,
    /// Newest first.
    pub newest_first: bool,
    /// Which page.
    pub page: PageRequest,
}

/// What to export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportMessages {
    /// The session.
    pub session: SessionId,
    /// In which shape; never this API's own.
    pub shape: PromptShape,
    /// As it was at this seq. `None` means as it is now.
    pub at: Option<Seq>,
    /// Which page.
    pub page: PageRequest,
}

/// Which messages a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageView {
    /// Everything ever committed.
    All,
    /// What the next prompt is made of.
    Live,
}

/// Reads a CreateSessionRequest.
pub fn create_session(mut request: pb::CreateSessionRequest) -> Result<CreateSession, Refused> {
    let mut found = Findings::of(CREATE_SESSION);
    if let Some(session) = &request.session {
        config::check_whole(Path::to("session"), session, None, &mut found);
    }
    request.session.iter_mut().for_each(ignored::clear_session);
    let hash = request_hash(CREATE_SESSION, &request);
    let pb::CreateSessionRequest {
        session,
        request_id,
    } = request;
    let at = Path::to("session");
    let mut session = session.unwrap_or_default();
    let session_id = std::mem::take(&mut session.session_id);
    let create = CreateSession {
        session: id::optional_session(at.field("session_id"), session_id, &mut found),
        draft: config::draft(at, session, &mut found),
        idempotency: idempotency(request_id, hash, &mut found),
    };
    found.finish(create)
}

/// Reads a GetSessionRequest.
pub fn get_session(request: pb::GetSessionRequest) -> Result<SessionId, Refused> {
    let mut found = Findings::of(GET_SESSION);
    let pb::GetSessionRequest { session_id } = request;
    let session = id::session(Path::to("session_id"), session_id, &mut found);
    found.finish(session)
}

/// Which sessions to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSessions {
    /// Which of them.
    pub filter: SessionFilter,
    /// Which page.
    pub page: PageRequest,
}

/// Reads a ListSessionsRequest.
pub fn list_sessions(request: pb::ListSessionsRequest) -> Result<ListSessions, Refused> {
    let mut found = Findings::of(LIST_SESSIONS);
    let pb::ListSessionsRequest {
        page_size,
        page_token,
        filter,
    } = request;
    let list = ListSessions {
        filter: session_filter(Path::to("filter"), filter.unwrap_or_default(), &mut found),
        page: page::page(page_size, page_token, &mut found),
    };
    found.finish(list)
}

fn session_filter(at: Path<'_>, filter: pb::SessionFilter, found: &mut Findings) -> SessionFilter {
    let pb::SessionFilter {
        states,
        metadata,
        text_prefix,
        updated_since,
        updated_before,
    } = filter;
    let text_at = at.field("text_prefix");
    let since_at = at.field("updated_since");
    let before_at = at.field("updated_before");
    let mut states: Vec<SessionState> = states
        .into_iter()
        .enumerate()
        .filter_map(|(n, state)| session_state(at.field("states").index(n), state, found))
        .collect();
    states.sort_unstable();
    states.dedup();
    SessionFilter {
        states,
        metadata: labels::labels(at.field("metadata"), metadata, found),
        since: updated_since.and_then(|time| timestamp::timestamp(since_at, time, found)),
        until: updated_before.and_then(|time| timestamp::timestamp(before_at, time, found)),
        // As a title is stored: with its control characters.
        text: text::prose(text_at, text_prefix, AtMost::Chars(TITLE_CHARS), found),
    }
}

fn session_state(at: Path<'_>, state: i32, found: &mut Findings) -> Option<SessionState> {
    match number::known(at, state, found)? {
        pb::SessionState::Unspecified => {
            found.invalid(at, FieldReason::Required, "must name a state");
            None
        }
        pb::SessionState::Idle => Some(SessionState::Idle),
        pb::SessionState::Running => Some(SessionState::Running),
        pb::SessionState::AwaitingTools => Some(SessionState::AwaitingTools),
    }
}

/// Reads a ListMessagesRequest.
pub fn list_messages(request: pb::ListMessagesRequest) -> Result<ListMessages, Refused> {
    let mut found = Findings::of(LIST_MESSAGES);
    let pb::ListMessagesRequest {
        session_id,
        view,
        at_seq,
        newest_first,
        page_size,
        page_token,
    } = request;
    let list = ListMessages {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        view: message_view(Path::to("view"), view, &mut found),
        at: number::optional_seq(Path::to("at_seq"), at_seq, &mut found),
        newest_first,
        page: page::page(page_size, page_token, &mut found),
    };
    found.finish(list)
}

/// Reads an ExportMessagesRequest.
pub fn export_messages(request: pb::ExportMessagesRequest) -> Result<ExportMessages, Refused> {
    let mut found = Findings::of(EXPORT_MESSAGES);
    let pb::ExportMessagesRequest {
        session_id,
        format,
        at_seq,
        page_size,
        page_token,
    } = request;
    let shape = append_messages::foreign_shape(Path::to("format"), format, &mut found);
    let export = ExportMessages {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        // Without one the request is refused.
        shape: shape.unwrap_or(PromptShape::Neutral),
        at: number::optional_seq(Path::to("at_seq"), at_seq, &mut found),
        page: page::page(page_size, page_token, &mut found),
    };
    found.finish(export)
}

fn message_view(at: Path<'_>, view: i32, found: &mut Findings) -> MessageView {
    match number::known(at, view, found) {
        Some(pb::MessageView::Unspecified | pb::MessageView::All) | None => MessageView::All,
        Some(pb::MessageView::Live) => MessageView::Live,
    }
}
