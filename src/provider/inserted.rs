//! Text that contextd inserts into a conversation where a service accepts it only in a certain
//! form. It is the same for every protocol, so that a switch of models does not change it.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::model::{Media, OutputPart, Tool, ToolCall, ToolOutcome, ToolResult};

/// User message before a conversation that starts with an assistant message.
pub(super) const OPENING: &str = "[The conversation begins.]";

/// Prefix of instructions within the conversation, for a service that accepts them only in a user
/// message.
pub(super) const INSTRUCTIONS: &str = "[Instructions]\n";

/// User message after a response that the model is to continue, for a model that does not accept an
/// assistant message at the end.
pub(super) const CONTINUE: &str = "[Continue.]";

/// Placeholder for the reasoning of another model's tool call, for a model that rejects calls
/// without reasoning.
pub(super) const NO_REASONING: &str = "[Not kept.]";

/// The input schema of a tool without arguments.
const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;

/// The content of a tool result as one text, for services that accept no media in tool results.
/// Each media part is replaced by a note that it follows. A single text, the usual case, is not
/// copied.
fn result_parts_text<'a>(parts: &'a [OutputPart]) -> Cow<'a, str> {
    let text = |given: &'a OutputPart| match given {
        OutputPart::Text(text) => Cow::Borrowed(text.as_str()),
        OutputPart::Media(medium) => Cow::Owned(media_follows_note(medium)),
    };
    match parts {
        [one] => text(one),
        several => Cow::Owned(several.iter().map(text).collect::<Vec<_>>().join("\n")),
    }
}

/// The text in a tool result that replaces a media part which follows the results.
pub(super) fn media_follows_note(medium: &Media) -> String {
    format!("[{}: shown after the results]", medium.title())
}

/// The text before media of a result that follow the results: their origin.
pub(super) fn origin_note(result: &ToolResult, medium: &Media) -> String {
    format!("[From the result of {}: {}]", result.name, medium.title())
}

/// The text of a result without text. Returns `None` for a success.
pub(super) fn outcome_text(outcome: ToolOutcome) -> Option<&'static str> {
    match outcome {
        ToolOutcome::Success => None,
        ToolOutcome::Error => Some("Error"),
        ToolOutcome::Denied => Some("Denied"),
        ToolOutcome::TimedOut => Some("Timed out"),
        ToolOutcome::Cancelled => Some("Cancelled"),
    }
}

/// The text that states a failure, for services without a field for the outcome. The text of a
/// result that timed out or was cancelled states it.
pub(super) fn failure_text(outcome: ToolOutcome) -> Option<&'static str> {
    match outcome {
        ToolOutcome::Success | ToolOutcome::TimedOut | ToolOutcome::Cancelled => None,
        ToolOutcome::Error | ToolOutcome::Denied => outcome_text(outcome),
    }
}

/// The content of a tool result as one text that also states a failure.
pub(super) fn result_text(result: &ToolResult) -> Cow<'_, str> {
    let text = result_parts_text(&result.parts);
    match (failure_text(result.outcome), &*text) {
        (None, _) => text,
        (Some(failure), "") => Cow::Borrowed(failure),
        (Some(failure), text) => Cow::Owned(format!("{failure}: {text}")),
    }
}

/// The arguments as the model wrote them. A call whose arguments are not a JSON object was never
/// run, and some services reject it in a request, so it is sent without arguments.
pub(super) fn arguments(call: &ToolCall) -> &str {
    if call.has_object() { &call.arguments } else { "{}" }
}

/// The input schema of a tool as the host wrote it, or that of a tool without arguments.
pub(super) fn schema(tool: &Tool) -> &RawValue {
    let given = tool.input_schema.as_deref();
    // Schemas are validated when they are received.
    let given = given.and_then(|schema| serde_json::from_str(schema).ok());
    given.unwrap_or_else(|| serde_json::from_str(NO_ARGUMENTS).expect("a constant"))
}
