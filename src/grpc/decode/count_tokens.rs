//! Decodes CountTokens.

use super::{Findings, Path, append_messages, config, findings::StoredBlobs, id, text, tools};
use crate::{
    grpc::violations::RequestError,
    model::command::CountTokens,
    pb::{self, FieldReason},
};

pub const COUNT_TOKENS: &str = "contextd.v1.ContextService/CountTokens";

/// Decodes a CountTokensRequest.
pub fn count_tokens(
    request: pb::CountTokensRequest,
    stored: StoredBlobs,
) -> Result<CountTokens, RequestError> {
    let mut found = Findings::with(COUNT_TOKENS, stored);
    let pb::CountTokensRequest {
        model,
        session_id,
        messages,
        system_prompt,
        tools,
        exact,
    } = request;
    let at = Path::to("messages");
    if messages.len() > append_messages::MAX_MESSAGES {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!(
                "must have at most {} elements",
                append_messages::MAX_MESSAGES
            ),
        );
    }
    if !session_id.is_empty() && !system_prompt.is_empty() {
        found.invalid(
            Path::to("system_prompt"),
            FieldReason::Conflict,
            "must be empty if session_id is set",
        );
    }
    let model = config::model(Path::to("model"), model, &mut found);
    let messages = messages
        .into_iter()
        .take(append_messages::MAX_MESSAGES)
        .enumerate();
    let command = CountTokens {
        session: id::optional_session(Path::to("session_id"), session_id, &mut found),
        model: (!model.is_empty()).then_some(model),
        messages: messages
            .map(|(i, it)| append_messages::message(at.index(i), it, &mut found))
            .collect(),
        contents: found.take_contents(),
        system: text::replace_nul(system_prompt).0,
        tools: tools.map(|tools| tools::set(Path::to("tools"), tools, &mut found)),
        exact,
    };
    found.finish(command)
}
