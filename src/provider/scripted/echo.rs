//! A prompt as neutral JSON, for hosts that test what their model sees.

use serde_json::{Value, json};

use crate::model::{Content, Message, Prompt, Role, ToolOutcome};

/// The prompt in one line of JSON.
pub(super) fn json(prompt: &Prompt) -> String {
    json!({
        "model": prompt.model,
        "system": prompt.system,
        "messages": prompt.transcript.messages().iter().map(message).collect::<Vec<_>>(),
        "tools": prompt.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
        "max_output_tokens": prompt.max_output_tokens,
    })
    .to_string()
}

/// A message with its role and parts.
fn message(message: &Message) -> Value {
    let parts: Vec<Value> = message.parts.iter().map(|stored| part(&stored.part.content)).collect();
    json!({ "role": role(message.role), "parts": parts })
}

/// A part under the name of its kind.
fn part(content: &Content) -> Value {
    match content {
        Content::Text(text) => json!({ "text": text }),
        Content::Reasoning { text, redacted } => json!({ "reasoning": { "text": text, "redacted": redacted } }),
        Content::Refusal(text) => json!({ "refusal": text }),
        Content::ToolCall(call) => {
            json!({ "tool_call": { "call_id": call.id.as_str(), "tool_name": call.name, "arguments_json": call.arguments } })
        }
        Content::ToolResult(result) => json!({ "tool_result": {
            "call_id": result.call.as_str(),
            "tool_name": result.name,
            "outcome": outcome(result.outcome),
            "texts": result.texts,
        } }),
    }
}

/// A role in a word.
fn role(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

/// An outcome in a word.
fn outcome(outcome: ToolOutcome) -> &'static str {
    match outcome {
        ToolOutcome::Success => "success",
        ToolOutcome::Error => "error",
        ToolOutcome::Denied => "denied",
        ToolOutcome::TimedOut => "timed_out",
        ToolOutcome::Cancelled => "cancelled",
    }
}
