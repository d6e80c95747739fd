//! Encodes a prompt as a request body. Encoding is pure and deterministic.

use super::{dialect::CALL_IDS, encode_options::EncodeOptions, input, options, wire};
use crate::{
    model::{Prompt, PromptFormat, PromptNote, Tool, derive},
    provider::{
        Request,
        body::{self, Body},
        call_ids::CallIdMap,
        inserted,
    },
};

/// Instructions for a service that requires some, if the prompt has none.
const NO_INSTRUCTIONS: &str = "You are a helpful assistant.";

/// The request for a prompt. The service is requested not to store it.
pub fn request(prompt: &Prompt, form: EncodeOptions<'_>) -> Request {
    let (mut body, left_out) = content(prompt, form);
    body.set("stream", true);
    body.set("store", false);
    if form.dialect.cache_key {
        body.set_some("prompt_cache_key", cache_key(prompt));
    }
    options::write(&mut body, prompt, form);
    Request { shape: PromptFormat::OpenAiResponses, body: body.bytes(), left_out }
}

/// The body of the request for a token count.
pub(super) fn count_request(prompt: &Prompt, form: EncodeOptions<'_>) -> Vec<u8> {
    let (mut body, _) = content(prompt, form);
    options::write_counted(&mut body, prompt, form);
    body.bytes()
}

/// Encodes what the model reads, without the generation settings. Also returns what was left out.
fn content(prompt: &Prompt, form: EncodeOptions<'_>) -> (Body, Vec<PromptNote>) {
    let ids = CallIdMap::of(prompt.transcript.messages(), CALL_IDS);
    let mut body = Body::default();
    body.set("model", &prompt.model);
    let instructions = prompt.instructions();
    if !instructions.is_empty() {
        body.set("instructions", instructions);
    } else if form.dialect.needs_instructions {
        body.set("instructions", NO_INSTRUCTIONS);
    }
    let (items, left_out) = input::items(prompt, form, &ids);
    body.set("input", items);
    body.set_list("tools", body::tools(prompt.tools.iter().map(tool), prompt));
    (body, left_out)
}

fn tool(tool: &Tool) -> wire::Tool<'_> {
    wire::Tool {
        kind: "function",
        name: &tool.name,
        description: &tool.description,
        parameters: inserted::schema(tool),
        strict: tool.strict.unwrap_or(false),
    }
}

/// A key that the requests of one conversation share until it is compacted. After a compaction they
/// no longer have a common prefix with earlier requests, and so the key changes.
fn cache_key(prompt: &Prompt) -> Option<String> {
    let first = prompt.transcript.messages().first()?;
    let key = derive::fingerprint(["prompt cache", first.id.as_str()]);
    Some(key.chars().take(32).collect())
}
