//! Decodes CountTokens.

use super::{Findings, Path, append_messages, findings::StoredBlobs, id, text, tools};
use crate::{
    grpc::violations::RequestError,
    model::command::CountTokens,
    pb::{self, FieldReason, limits::count_tokens_request, rpc},
};

/// Decodes a CountTokensRequest.
pub fn count_tokens(mut request: pb::CountTokensRequest, stored: StoredBlobs) -> Result<CountTokens, RequestError> {
    let mut found = Findings::check_with(rpc::COUNT_TOKENS, &mut request, stored);
    let pb::CountTokensRequest { model, session_id, messages, system_prompt, tools, exact } = request;
    let at = Path::to("messages");
    if !session_id.is_empty() && !system_prompt.is_empty() {
        found.invalid(Path::to("system_prompt"), FieldReason::Conflict, "must be empty if session_id is set");
    }
    // More are rejected, and not decoded.
    let messages = messages.into_iter().take(count_tokens_request::MESSAGES);
    let messages = messages.enumerate();
    let command = CountTokens {
        session: id::optional_session(session_id),
        model: text::non_empty(model),
        messages: messages.map(|(i, it)| append_messages::message(at.index(i), it, &mut found)).collect(),
        contents: found.take_contents(),
        system: text::replace_nul(system_prompt).0,
        tools: tools.map(|tools| tools::set(Path::to("tools"), tools, &mut found)),
        exact,
    };
    found.finish(command)
}
