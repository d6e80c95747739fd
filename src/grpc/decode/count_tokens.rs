//! Decodes CountTokens.

use super::{Decode, Findings, Path, append_messages, media, text, tools};
use crate::{
    codec::DecodeError,
    model::{BlobId, SessionId, command::CountTokens},
    pb::{self, FieldReason, limits::count_tokens_request},
};

impl Decode for pb::CountTokensRequest {
    type Command = CountTokens;

    fn blobs(&self) -> Vec<BlobId> {
        media::blobs_in_messages(&self.messages)
    }

    fn read(self, found: &mut Findings) -> Result<CountTokens, DecodeError> {
        let Self { model, session_id, messages, system_prompt, tools, exact } = self;
        let at = Path::to("messages");
        if !session_id.is_empty() && !system_prompt.is_empty() {
            found.invalid(Path::to("system_prompt"), FieldReason::Conflict, "must be empty if session_id is set");
        }
        // More are rejected, and not decoded.
        let messages = messages.into_iter().take(count_tokens_request::MESSAGES);
        let messages = messages.enumerate();
        Ok(CountTokens {
            session: text::non_empty(session_id).map(SessionId::new),
            model: text::non_empty(model),
            messages: messages.map(|(i, it)| append_messages::message(at.index(i), it, found)).collect(),
            contents: found.take_contents(),
            system: text::replace_nul(system_prompt).0,
            tools: tools.map(|tools| tools::set(Path::to("tools"), tools, found)),
            exact,
        })
    }
}
