//! Decodes the requests to create, read, list and export sessions and their messages.

use super::{
    Findings, PageRequest, Path, append_messages, config,
    hash::{idempotency, request_hash},
    id, ignored, labels, number, page,
    text::{self, MaxLength},
    timestamp,
};
use crate::{
    grpc::violations::RequestError,
    model::{PromptFormat, Seq, SessionId, command::CreateSession},
    pb::{self, FieldReason},
    session::SessionState,
    store::{session_filter::SessionFilter, session_labels::TITLE_CHARS},
};

pub const CREATE_SESSION: &str = "contextd.v1.SessionService/CreateSession";
pub const GET_SESSION: &str = "contextd.v1.SessionService/GetSession";
pub const LIST_SESSIONS: &str = "contextd.v1.SessionService/ListSessions";
pub const LIST_MESSAGES: &str = "contextd.v1.SessionService/ListMessages";

pub const EXPORT_MESSAGES: &str = "contextd.v1.SessionService/ExportMessages";

/// A validated request of ListMessages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListMessages {
    pub session: SessionId,
    pub view: MessageView,
    /// List messages as of this seq. `None` for the current state.
    pub at: Option<Seq>,
    pub newest_first: bool,
    pub page: PageRequest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportMessages {
    pub session: SessionId,
    /// The format; never one of this API.
    pub shape: PromptFormat,
    /// Export the context as of this seq. `None` for the current state.
    pub at: Option<Seq>,
    pub page: PageRequest,
}

/// Which messages a list contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageView {
    /// All messages ever committed.
    All,
    /// The messages of the next prompt.
    Live,
}

/// Decodes a CreateSessionRequest.
pub fn create_session(
    mut request: pb::CreateSessionRequest,
) -> Result<CreateSession, RequestError> {
    let mut found = Findings::of(CREATE_SESSION);
    if let Some(session) = &request.session {
        config::check_large_fields(Path::to("session"), session, None, &mut found);
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

/// Decodes a GetSessionRequest.
pub fn get_session(request: pb::GetSessionRequest) -> Result<SessionId, RequestError> {
    let mut found = Findings::of(GET_SESSION);
    let pb::GetSessionRequest { session_id } = request;
    let session = id::session(Path::to("session_id"), session_id, &mut found);
    found.finish(session)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSessions {
    pub filter: SessionFilter,
    pub page: PageRequest,
}

/// Decodes a ListSessionsRequest.
pub fn list_sessions(request: pb::ListSessionsRequest) -> Result<ListSessions, RequestError> {
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
        // Decoded like a title: control characters are allowed.
        text: text::free_text(text_at, text_prefix, MaxLength::Chars(TITLE_CHARS), found),
    }
}

fn session_state(at: Path<'_>, state: i32, found: &mut Findings) -> Option<SessionState> {
    match number::enum_value(at, state, found)? {
        pb::SessionState::Unspecified => {
            found.invalid(
                at,
                FieldReason::Required,
                "must not be SESSION_STATE_UNSPECIFIED",
            );
            None
        }
        pb::SessionState::Idle => Some(SessionState::Idle),
        pb::SessionState::Running => Some(SessionState::Running),
        pb::SessionState::AwaitingTools => Some(SessionState::AwaitingTools),
    }
}

/// Decodes a ListMessagesRequest.
pub fn list_messages(request: pb::ListMessagesRequest) -> Result<ListMessages, RequestError> {
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

/// Decodes an ExportMessagesRequest.
pub fn export_messages(request: pb::ExportMessagesRequest) -> Result<ExportMessages, RequestError> {
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
        // Not used: a request without a format is rejected.
        shape: shape.unwrap_or(PromptFormat::Neutral),
        at: number::optional_seq(Path::to("at_seq"), at_seq, &mut found),
        page: page::page(page_size, page_token, &mut found),
    };
    found.finish(export)
}

fn message_view(at: Path<'_>, view: i32, found: &mut Findings) -> MessageView {
    match number::enum_value(at, view, found) {
        Some(pb::MessageView::Unspecified | pb::MessageView::All) | None => MessageView::All,
        Some(pb::MessageView::Live) => MessageView::Live,
    }
}
