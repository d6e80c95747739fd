//! Encodes a prompt as a request body. Encoding is pure and deterministic.

use std::collections::BTreeMap;

use super::{
    encode_options::EncodeOptions,
    messages::{Conversation, conversation},
    options, wire,
};
use crate::{
    model::{Prompt, PromptFormat, PromptNote, Tool},
    provider::{Request, authorship, body::Body, call_ids::CallIdMap, inserted},
};

/// The request for a prompt, and the prompt's fingerprint if the model binds its reasoning to it.
pub fn request(prompt: &Prompt, form: EncodeOptions<'_>) -> (Request, Option<String>) {
    let EncodeOptions { dialect, .. } = form;
    let (mut body, left_out, fingerprint) = content(prompt, form);
    body.set("stream", true);
    if dialect.asks_for_usage {
        body.set("stream_options", BTreeMap::from([("include_usage", true)]));
    }
    body.set_some(dialect.max_tokens, prompt.max_output_tokens);
    options::write(&mut body, prompt, dialect);
    (Request { shape: PromptFormat::OpenAiChat, body: body.bytes(), left_out }, fingerprint)
}

/// Encodes what the model reads, without the generation settings. Also returns what was left out,
/// and the fingerprint.
pub(super) fn content(prompt: &Prompt, form: EncodeOptions<'_>) -> (Body, Vec<PromptNote>, Option<String>) {
    let EncodeOptions { dialect, provider, .. } = form;
    let ids = CallIdMap::keeping(prompt.transcript.messages(), dialect.call_ids, |message| {
        dialect.own_call_ids && authorship::wrote(provider, &prompt.model, message)
    });
    let Conversation { messages, left_out, fingerprint } = conversation(prompt, form, &ids);
    let mut body = Body::default();
    body.set("model", &prompt.model);
    body.set("messages", messages);
    body.set_list("tools", prompt.tools.iter().map(tool).collect());
    (body, left_out, fingerprint)
}

fn tool(tool: &Tool) -> wire::Tool<'_> {
    wire::Tool {
        kind: "function",
        function: wire::ToolFunction {
            name: &tool.name,
            description: &tool.description,
            parameters: inserted::schema(tool),
            strict: tool.strict,
        },
    }
}
