//! Encodes a prompt as a request body. Encoding is pure and deterministic.

use std::collections::BTreeMap;

use super::{dialect::MaxTokens, encode_options::EncodeOptions, messages::messages, options, wire};
use crate::{
    model::{Prompt, Tool},
    provider::{authorship, body::Body, call_ids::CallIdMap, inserted},
};

/// The body of the request for a prompt.
pub fn body(prompt: &Prompt, form: EncodeOptions<'_>) -> Vec<u8> {
    let EncodeOptions { dialect, .. } = form;
    let mut body = content(prompt, form);
    body.set("stream", true);
    if dialect.asks_for_usage {
        body.set("stream_options", BTreeMap::from([("include_usage", true)]));
    }
    let limit = match dialect.max_tokens {
        MaxTokens::Completion => "max_completion_tokens",
        MaxTokens::Plain => "max_tokens",
    };
    body.set_some(limit, prompt.max_output_tokens);
    options::write(&mut body, prompt, dialect);
    body.bytes()
}

/// Encodes what the model reads, without the generation settings.
pub(super) fn content(prompt: &Prompt, form: EncodeOptions<'_>) -> Body {
    let EncodeOptions { dialect, provider, .. } = form;
    let ids = CallIdMap::keeping(prompt.transcript.messages(), dialect.call_ids, |message| {
        dialect.own_call_ids && authorship::wrote(provider, &prompt.model, message)
    });
    let mut body = Body::default();
    body.set("model", &prompt.model);
    body.set("messages", messages(prompt, form, &ids));
    if !prompt.tools.is_empty() {
        body.set("tools", prompt.tools.iter().map(tool).collect::<Vec<_>>());
    }
    body
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
