//! Encodes parts of messages as blocks, and adds blocks to the hashed prefix.

use std::borrow::Cow;

use super::{
    KIND, media,
    wire::{Block, Content as Written, WireRole},
};
use crate::{
    model::{Contents, Part, ToolCall, ToolOutcome, ToolResult, json::replace_lone_surrogates},
    provider::{
        authorship,
        body::Json,
        call_ids::CallIdMap,
        inputs::{self, Input, is_blank},
        inserted,
        prefix::Prefix,
    },
};

/// Encodes texts and media. The service rejects blank texts.
pub(super) fn blocks<'a>(given: impl Iterator<Item = Input<'a>>, contents: &Contents) -> Vec<Block<'a>> {
    let block = |given| match given {
        Input::Text(text) => (!is_blank(text)).then(|| Block::text(text)),
        Input::Media(medium) => Some(media::block(medium, contents)),
    };
    given.filter_map(block).collect()
}

/// Encodes a tool result. An error must have some text.
pub(super) fn tool_result<'a>(result: &'a ToolResult, ids: &'a CallIdMap, contents: &Contents) -> Block<'a> {
    let mut content = blocks(inputs::of_result(result), contents);
    if content.is_empty() {
        content.extend(inserted::outcome_text(result.outcome).map(Block::text));
    }
    Block::new(Written::ToolResult {
        tool_use_id: ids.get(&result.call),
        content,
        is_error: result.outcome != ToolOutcome::Success,
    })
}

/// Decodes the reasoning to send, and whether it has a signature. Returns `None` if there is
/// nothing to send.
pub(super) fn thinking<'a>(part: &Part, text: &'a str) -> Option<(Written<'a>, bool)> {
    if let Some(data) = authorship::attached_string(KIND, part, "redacted_thinking") {
        return Some((Written::RedactedThinking { data }, true));
    }
    let signature = authorship::attached_string(KIND, part, "signature");
    let is_signed = signature.is_some();
    let content = Written::Thinking { thinking: text, signature };
    (is_signed || !text.is_empty()).then_some((content, is_signed))
}

/// The citations of a text as the service wrote them.
pub(super) fn citations<'a>(part: &'a Part, own: bool) -> Vec<Json<'a>> {
    let cited = part.citations.iter().filter(|_| own);
    let json = cited.filter_map(|citation| citation.provider_metadata.as_deref());
    json.map(|json| Json(Cow::Borrowed(json))).collect()
}

/// The arguments of a call. Unpaired surrogates, which the service rejects, are replaced.
pub(super) fn arguments(call: &ToolCall) -> Json<'_> {
    Json(replace_lone_surrogates(inserted::arguments(call)))
}

/// Adds a block to the hashed prefix. Cache markers are not included.
pub(super) fn add(prefix: &mut Prefix, speaker: WireRole, block: &Block<'_>) {
    let who = match speaker {
        WireRole::User => "user",
        WireRole::Assistant => "assistant",
        WireRole::System => "system",
    };
    match block {
        Block::Item(json) => prefix.add(who, ["item", &json.0]),
        Block::Own { content, .. } => match content {
            Written::Text { text, citations } => {
                let citations = citations.iter().map(|json| json.0.as_ref());
                prefix.add(who, ["text", text.as_ref()].into_iter().chain(citations));
            }
            Written::Image { source } => prefix.add(who, ["image", source.text()]),
            Written::Document { source, title } => {
                prefix.add(who, ["document", source.text(), title]);
            }
            Written::ToolUse { id, name, input, caller: _ } => prefix.add(who, ["tool_use", id, name, &input.0]),
            Written::ToolResult { tool_use_id, content, is_error } => {
                let error = if *is_error { "error" } else { "" };
                prefix.add(who, ["tool_result", tool_use_id, error]);
                content.iter().for_each(|block| add(prefix, speaker, block));
            }
            Written::Thinking { thinking, signature } => {
                let signature = signature.as_deref().unwrap_or_default();
                prefix.add(who, ["thinking", *thinking, signature]);
            }
            Written::RedactedThinking { data } => prefix.add(who, ["redacted_thinking", data]),
        },
    }
}
