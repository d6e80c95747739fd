//! Decodes the requests to create, read, list and export sessions and their messages.

use super::{
    Findings, PageRequest, Path, append_messages, config,
    hash::{idempotency, request_hash},
    id, labels, number, page, text,
};
use crate::{
    grpc::violations::RequestError,
    model::{PromptFormat, Seq, SessionId, command::CreateSession},
    pb::{self, rpc},
    session::SessionState,
    store::session_filter::SessionFilter,
};

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
pub fn create_session(mut request: pb::CreateSessionRequest) -> Result<CreateSession, RequestError> {
    let is_partial = config::is_partial(request.session.as_ref());
    let mut found = Findings::check(rpc::CREATE_SESSION, &mut request);
    if let Some(session) = request.session.as_ref().filter(|_| is_partial) {
        config::check_large_fields(Path::to("session"), session, None, &mut found);
    }
    let hash = request_hash(rpc::CREATE_SESSION, &request);
    let pb::CreateSessionRequest { session, request_id } = request;
    let at = Path::to("session");
    let mut session = session.unwrap_or_default();
    let session_id = std::mem::take(&mut session.session_id);
    let create = CreateSession {
        session: id::optional_session(session_id),
        draft: config::draft(at, session, &mut found),
        idempotency: idempotency(request_id, hash),
    };
    found.finish(create)
}

/// Decodes a GetSessionRequest.
pub fn get_session(mut request: pb::GetSessionRequest) -> Result<SessionId, RequestError> {
    let found = Findings::check(rpc::GET_SESSION, &mut request);
    let pb::GetSessionRequest { session_id } = request;
    let session = SessionId::new(session_id);
    found.finish(session)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSessions {
    pub filter: SessionFilter,
    pub page: PageRequest,
}

/// Decodes a ListSessionsRequest.
pub fn list_sessions(mut request: pb::ListSessionsRequest) -> Result<ListSessions, RequestError> {
    let found = Findings::check(rpc::LIST_SESSIONS, &mut request);
    let pb::ListSessionsRequest { page_size, page_token, filter } = request;
    let list =
        ListSessions { filter: session_filter(filter.unwrap_or_default()), page: page::page(page_size, page_token) };
    found.finish(list)
}

fn session_filter(filter: pb::SessionFilter) -> SessionFilter {
    let pb::SessionFilter { states, metadata, text_prefix, updated_since, updated_before } = filter;
    let mut states: Vec<SessionState> = states.into_iter().filter_map(session_state).collect();
    states.sort_unstable();
    states.dedup();
    SessionFilter {
        states,
        metadata: labels::labels(metadata),
        since: number::timestamp(updated_since),
        until: number::timestamp(updated_before),
        text: text::replace_nul(text_prefix).0,
    }
}

fn session_state(state: i32) -> Option<SessionState> {
    match number::choice(state)? {
        pb::SessionState::Unspecified => None,
        pb::SessionState::Idle => Some(SessionState::Idle),
        pb::SessionState::Running => Some(SessionState::Running),
        pb::SessionState::AwaitingTools => Some(SessionState::AwaitingTools),
    }
}

/// Decodes a ListMessagesRequest.
pub fn list_messages(mut request: pb::ListMessagesRequest) -> Result<ListMessages, RequestError> {
    let found = Findings::check(rpc::LIST_MESSAGES, &mut request);
    let pb::ListMessagesRequest { session_id, view, at_seq, newest_first, page_size, page_token } = request;
    let list = ListMessages {
        session: SessionId::new(session_id),
        view: message_view(view),
        at: number::optional_seq(at_seq),
        newest_first,
        page: page::page(page_size, page_token),
    };
    found.finish(list)
}

/// Decodes an ExportMessagesRequest.
pub fn export_messages(mut request: pb::ExportMessagesRequest) -> Result<ExportMessages, RequestError> {
    let mut found = Findings::check(rpc::EXPORT_MESSAGES, &mut request);
    let pb::ExportMessagesRequest { session_id, format, at_seq, page_size, page_token } = request;
    let shape = append_messages::foreign_shape(Path::to("format"), format, &mut found);
    let export = ExportMessages {
        session: SessionId::new(session_id),
        // Not used: a request without a format is rejected.
        shape: shape.unwrap_or(PromptFormat::Neutral),
        at: number::optional_seq(at_seq),
        page: page::page(page_size, page_token),
    };
    found.finish(export)
}

fn message_view(view: i32) -> MessageView {
    match number::choice(view) {
        Some(pb::MessageView::Unspecified | pb::MessageView::All) | None => MessageView::All,
        Some(pb::MessageView::Live) => MessageView::Live,
    }
}
