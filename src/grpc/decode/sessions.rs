//! Decodes CreateSession and ExportMessages.

use super::{Decode, Findings, PageRequest, Path, append_messages, config, number, text};
use crate::{
    codec::DecodeError,
    model::{PromptFormat, Seq, SessionId, command::CreateSession},
    pb::{self, limits::Limited as _},
};

/// A validated request of ExportMessages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportMessages {
    pub session: SessionId,
    /// The format of another API.
    pub shape: PromptFormat,
    /// Export the context as of this seq. `None` for the current state.
    pub at: Option<Seq>,
    pub page: PageRequest,
}

impl Decode for pb::CreateSessionRequest {
    type Command = CreateSession;

    fn clear_server_fields(&mut self, found: &mut Findings) {
        config::check_large_fields(self.session.as_ref(), None, found);
        self.clear_output_only();
    }

    fn read(self, found: &mut Findings) -> Result<CreateSession, DecodeError> {
        let Self { session, request_id } = self;
        let mut session = session.unwrap_or_default();
        let session_id = std::mem::take(&mut session.session_id);
        Ok(CreateSession {
            session: text::non_empty(session_id).map(SessionId::new),
            draft: config::draft(Path::to("session"), session, found),
            idempotency: found.idempotency(request_id),
        })
    }
}

impl Decode for pb::ExportMessagesRequest {
    type Command = ExportMessages;

    fn read(self, found: &mut Findings) -> Result<ExportMessages, DecodeError> {
        let Self { session_id, format, at_seq, page_size, page_token } = self;
        let shape = append_messages::foreign_shape(Path::to("format"), format, found);
        Ok(ExportMessages {
            session: SessionId::new(session_id),
            // Not used: a request without a format is rejected.
            shape: shape.unwrap_or(PromptFormat::Neutral),
            at: number::optional_seq(at_seq),
            page: PageRequest::new(page_size, page_token),
        })
    }
}
