//! Encodes a prompt as provider-neutral JSON, for hosts that test what their model receives.

use serde_json::{Value, json};

use crate::{
    model::{
        Content, Contents, Generation, Media, Message, Prompt, Role, ToolOutcome, ToolResult,
        generation::ResponseFormat, media::Source,
    },
    provider::body::{self, plain_settings},
};

/// Encodes a prompt as one line of JSON.
pub(super) fn json(prompt: &Prompt) -> String {
    json!({
        "model": prompt.model,
        "system": prompt.instructions(),
        "messages": prompt.transcript.messages().iter().map(|it| message(it, &prompt.contents)).collect::<Vec<_>>(),
        "tools": prompt.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
        "max_output_tokens": prompt.max_output_tokens,
        "generation": generation(&prompt.generation),
    })
    .to_string()
}

/// The generation settings that have a value, keyed by their names in the API.
fn generation(generation: &Generation) -> Value {
    let names = ["temperature", "top_p", "top_k", "seed", "stop_sequences"];
    let choice = generation.tool_choice.as_ref();
    let choice = choice.map(|it| body::tool_choice(it, |name| json!({ "tool_name": name })));
    let format = generation.response_format.as_ref().map(format);
    let budget = generation.reasoning_budget_tokens;
    let options = generation.provider_options.as_deref();
    let parallel = generation.parallel_tool_calls;
    let others = [
        ("reasoning_effort", json!(generation.reasoning_effort)),
        ("reasoning_budget_tokens", json!(budget)),
        ("tool_choice", json!(choice)),
        ("parallel_tool_calls", json!(parallel)),
        ("response_format", json!(format)),
        ("provider_options_json", json!(options)),
    ];
    let set = others.into_iter().filter(|(_, setting)| !setting.is_null());
    let all = plain_settings(generation, names).chain(set);
    all.map(|(name, setting)| (name.to_owned(), setting)).collect()
}

/// The response format.
fn format(format: &ResponseFormat) -> Value {
    let ResponseFormat { schema, name, strict } = format;
    json!({ "json_schema": schema, "name": name, "strict": strict })
}

/// A message with its role and parts.
fn message(message: &Message, contents: &Contents) -> Value {
    let parts = message.parts.iter();
    let parts = parts.map(|stored| part(&stored.part.content, contents));
    json!({ "role": role(message.role), "parts": parts.collect::<Vec<_>>() })
}

/// A part, keyed by its kind.
fn part(content: &Content, contents: &Contents) -> Value {
    match content {
        Content::Text(text) => json!({ "text": text }),
        Content::Reasoning { text, redacted } => {
            json!({ "reasoning": { "text": text, "redacted": redacted } })
        }
        Content::Refusal(text) => json!({ "refusal": text }),
        Content::ToolCall(call) => {
            json!({ "tool_call": { "call_id": call.id.as_str(), "tool_name": call.name, "arguments_json": call.arguments } })
        }
        Content::Media(medium) => json!({ "media": media(medium, contents) }),
        Content::ProviderItem(item) => json!({ "provider_item": item.kind, "item": item.json }),
        Content::Unknown(part) => json!({ "unknown": part.kind }),
        Content::ToolResult(result) => json!({ "tool_result": self::result(result, contents) }),
    }
}

/// A tool result. The media are listed only if there are any.
fn result(result: &ToolResult, contents: &Contents) -> Value {
    let mut told = json!({
        "call_id": result.call.as_str(),
        "tool_name": result.name,
        "outcome": outcome(result.outcome),
        "texts": result.texts().collect::<Vec<_>>(),
    });
    let media = result.media().map(|medium| media(medium, contents));
    let media: Vec<Value> = media.collect();
    if !media.is_empty() {
        told["media"] = Value::Array(media);
    }
    told
}

/// A media part: its URL, or the number of bytes of content in the prompt.
fn media(media: &Media, contents: &Contents) -> Value {
    let Media { media_type, source, filename } = media;
    match source {
        Source::Blob(kept) => json!({
            "media_type": media_type,
            "filename": filename,
            "blob_id": kept.id.as_str(),
            "bytes": contents.get(&kept.id).map(|content| content.len()),
        }),
        Source::Url(url) => json!({ "media_type": media_type, "filename": filename, "url": url }),
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

fn outcome(outcome: ToolOutcome) -> &'static str {
    match outcome {
        ToolOutcome::Success => "success",
        ToolOutcome::Error => "error",
        ToolOutcome::Denied => "denied",
        ToolOutcome::TimedOut => "timed_out",
        ToolOutcome::Cancelled => "cancelled",
    }
}
