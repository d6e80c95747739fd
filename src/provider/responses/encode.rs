//! Encodes a prompt as a request body. Encoding is pure and deterministic.

use super::{dialect::CALL_IDS, encode_options::EncodeOptions, input, options, wire};
use crate::{
    model::{Prompt, Tool, derive},
    provider::{body::Body, call_ids::CallIdMap, inserted},
};

/// Instructions for a service that requires some, if the prompt has none.
const NO_INSTRUCTIONS: &str = "You are a helpful assistant.";

/// The body of the request for a prompt. The service is requested not to store it.
pub fn body(prompt: &Prompt, form: EncodeOptions<'_>) -> Vec<u8> {
    let mut body = content(prompt, form);
    body.set("stream", true);
    body.set("store", false);
    if form.dialect.cache_key {
        body.set_some("prompt_cache_key", cache_key(prompt));
    }
    options::write(&mut body, prompt, form);
    body.bytes()
}

/// The body of the request for a token count.
pub(super) fn count_request(prompt: &Prompt, form: EncodeOptions<'_>) -> Vec<u8> {
    let mut body = content(prompt, form);
    options::write_counted(&mut body, prompt, form);
    body.bytes()
}

/// Encodes what the model reads, without the generation settings.
fn content(prompt: &Prompt, form: EncodeOptions<'_>) -> Body {
    let ids = CallIdMap::of(prompt.transcript.messages(), CALL_IDS);
    let mut body = Body::default();
    body.set("model", &prompt.model);
    let instructions = prompt.instructions();
    if !instructions.is_empty() {
        body.set("instructions", instructions);
    } else if form.dialect.needs_instructions {
        body.set("instructions", NO_INSTRUCTIONS);
    }
    body.set("input", input::items(prompt, form, &ids));
    let host = prompt.tools.iter().map(tool);
    let own = prompt.provider_tools.iter();
    let own = own.filter_map(|json| serde_json::from_str(json).ok().map(wire::Tool::Provider));
    let tools: Vec<wire::Tool<'_>> = host.chain(own).collect();
    body.set_some("tools", Some(tools).filter(|tools| !tools.is_empty()));
    body
}

fn tool(tool: &Tool) -> wire::Tool<'_> {
    wire::Tool::Host {
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
