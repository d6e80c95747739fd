//! Encodes a prompt as neutral JSON, for hosts that test what their model receives.

use serde_json::{Value, json};

use crate::model::{
    Content, Contents, Generation, Media, Message, Prompt, Role, ToolOutcome, ToolResult,
    generation::{ReasoningEffort, ResponseFormat, ToolChoice, UpTo},
    media::Source,
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

/// The settings that are set, under their names in the API.
fn generation(generation: &Generation) -> Value {
    let Generation {
        temperature,
        top_p,
        top_k,
        stop_sequences,
        seed,
        reasoning_effort,
        reasoning_budget_tokens,
        tool_choice,
        parallel_tool_calls,
        response_format,
        provider_options,
    } = generation;
    let all = [
        ("temperature", json!(temperature.map(UpTo::get))),
        ("top_p", json!(top_p.map(UpTo::get))),
        ("top_k", json!(top_k)),
        (
            "stop_sequences",
            if stop_sequences.is_empty() {
                Value::Null
            } else {
                json!(stop_sequences)
            },
        ),
        ("seed", json!(seed)),
        ("reasoning_effort", json!(reasoning_effort.map(effort))),
        ("reasoning_budget_tokens", json!(reasoning_budget_tokens)),
        (
            "tool_choice",
            tool_choice.as_ref().map_or(Value::Null, choice),
        ),
        ("parallel_tool_calls", json!(parallel_tool_calls)),
        (
            "response_format",
            response_format.as_ref().map_or(Value::Null, format),
        ),
        ("provider_options_json", json!(provider_options)),
    ];
    let set = all.into_iter().filter(|(_, setting)| !setting.is_null());
    Value::Object(
        set.map(|(name, setting)| (name.to_owned(), setting))
            .collect(),
    )
}

/// The name of a level of reasoning effort.
fn effort(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::None => "none",
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Xhigh => "xhigh",
        ReasoningEffort::Max => "max",
    }
}

/// The name of a rule, or the tool that must be called.
fn choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({ "tool_name": name }),
    }
}

/// The response format.
fn format(format: &ResponseFormat) -> Value {
    let ResponseFormat {
        schema,
        name,
        strict,
    } = format;
    json!({ "json_schema": schema, "name": name, "strict": strict })
}

/// A message with its role and parts.
fn message(message: &Message, contents: &Contents) -> Value {
    let parts: Vec<Value> = message
        .parts
        .iter()
        .map(|stored| part(&stored.part.content, contents))
        .collect();
    json!({ "role": role(message.role), "parts": parts })
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
    let media: Vec<Value> = result
        .media()
        .map(|medium| media(medium, contents))
        .collect();
    if !media.is_empty() {
        told["media"] = Value::Array(media);
    }
    told
}

/// A media part: its URL, or the number of bytes of content in the prompt.
fn media(media: &Media, contents: &Contents) -> Value {
    let Media {
        media_type,
        source,
        filename,
    } = media;
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
