//! Formats the lines that are printed in addition to the response.

use contextd_proto::{self as pb, event::Payload, part::Content};

/// Maximum number of characters in a line about a call or its result.
const MAX_LINE_CHARS: usize = 120;

/// A line to print.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A notice.
    Plain(String),
    /// An error.
    Error(String),
}

/// The line about an event. Returns `None` for most events.
pub(super) fn event_line(payload: &Payload) -> Option<Line> {
    let line = match payload {
        Payload::ToolCallRequested(pending) => {
            let edited = if pending.arguments_edited { " (arguments edited)" } else { "" };
            format!("-> {}{edited}", call(pending.call.as_ref()?))
        }
        Payload::ApprovalRequested(pending) => {
            format!("?  {} needs approval", call(pending.call.as_ref()?))
        }
        Payload::ToolCallCompleted(completed) => {
            format!("<- {}", result(completed.result.as_ref()?))
        }
        Payload::ToolCallCancelled(closed) => {
            format!("<- {}: {}", one_line(&closed.tool_name), why_closed(closed.reason()))
        }
        Payload::UnsupportedInput(unsupported) => {
            format!("(input not supported by the model: {})", one_line(&unsupported.errors.join(" ")))
        }
        Payload::ModelSwitched(switched) => {
            format!("(model switched to {})", one_line(&switched.to_model))
        }
        Payload::ModelFallback(fallback) => {
            format!("(falling back to {})", one_line(&fallback.to_model))
        }
        Payload::Notice(notice) => format!("({})", one_line(&notice.text)),
        Payload::TurnRetrying(retrying) => next_attempt(retrying),
        Payload::QueuedMessageCancelled(_) => "(a queued message was cancelled)".to_owned(),
        Payload::QueuedMessageExpired(_) => "(a queued message expired)".to_owned(),
        Payload::QueuedMessageDropped(dropped) => {
            format!("(a queued message was dropped: {})", why_dropped(dropped.reason()))
        }
        Payload::TurnRecovered(_) => "(the server resumed the turn)".to_owned(),
        Payload::TurnCompleted(completed) => {
            format!("(stopped: {})", why_stopped(completed.reason())?)
        }
        Payload::TurnCancelled(_) => "(cancelled)".to_owned(),
        Payload::TurnFailed(failed) => {
            return Some(Line::Error(why_failed(failed.failure.as_ref())));
        }
        Payload::TextDelta(_)
        | Payload::ReasoningDelta(_)
        | Payload::ToolInputDelta(_)
        | Payload::Heartbeat(_)
        | Payload::Admitted(_)
        | Payload::Sync(_)
        | Payload::TurnStarted(_)
        | Payload::StepStarted(_)
        | Payload::MessageCommitted(_)
        | Payload::ActionRequired(_)
        | Payload::UsageRecorded(_)
        | Payload::MessageQueued(_)
        | Payload::MessagesApplied(_)
        | Payload::SessionUpdated(_)
        | Payload::ContextPruned(_)
        | Payload::ContextRestored(_)
        | Payload::CompactionStarted(_)
        | Payload::CompactionCompleted(_)
        | Payload::CompactionFailed(_)
        | Payload::CompactionReverted(_)
        | Payload::Thinking(_) => return None,
    };
    Some(Line::Plain(line))
}

fn next_attempt(retrying: &pb::TurnRetrying) -> String {
    let why = retrying.failure.as_ref().map(|failure| one_line(&failure.message)).unwrap_or_default();
    format!("(attempt {}: {why})", retrying.next_attempt)
}

/// The line about a queued message.
pub(super) fn queued(position: i32) -> String {
    format!("(queued at position {position})")
}

/// The lines about queued messages that a turn takes: those with known text, and the number of others.
pub(super) fn taken(known: &[&str], others: usize) -> Vec<String> {
    let mut lines: Vec<String> =
        known.iter().map(|words| format!("(sent to the model: {})", one_line(words))).collect();
    match others {
        0 => {}
        1 => lines.push("(a queued message was sent to the model)".to_owned()),
        several => lines.push(format!("({several} queued messages were sent to the model as one)")),
    }
    lines
}

fn why_dropped(reason: pb::DropReason) -> &'static str {
    match reason {
        pb::DropReason::Unspecified => "no reason given",
        pb::DropReason::SessionDeleted => "the session was deleted",
        pb::DropReason::Superseded => "a newer message replaced it",
        pb::DropReason::TooLarge => "it does not fit the model's context window",
        pb::DropReason::Unreadable => "it can no longer be read",
    }
}

/// A tool call: the tool and its arguments.
fn call(call: &pb::ToolCall) -> String {
    format!("{} {}", one_line(&call.tool_name), one_line(&call.arguments_json))
}

/// A tool result: the tool, its outcome if it failed, and the beginning of its output.
fn result(result: &pb::ToolResult) -> String {
    let outcome = match result.outcome() {
        pb::ToolOutcome::Unspecified | pb::ToolOutcome::Success => "",
        pb::ToolOutcome::Error => " failed",
        pb::ToolOutcome::Denied => " denied",
        pb::ToolOutcome::TimedOut => " timed out",
        pb::ToolOutcome::Cancelled => " cancelled",
    };
    let given: Vec<String> = result.parts.iter().map(part).collect();
    format!("{}{outcome}: {}", one_line(&result.tool_name), one_line(&given.join(" ")))
}

/// A message: its role and content.
pub(super) fn message(message: &pb::Message) -> String {
    let who = match message.role() {
        pb::Role::System => "system",
        pb::Role::Unspecified | pb::Role::User => "you",
        pb::Role::Assistant => "model",
        pb::Role::Tool => "tools",
    };
    let parts: Vec<String> = message.parts.iter().map(part).filter(|words| !words.is_empty()).collect();
    format!("{who}: {}", printable(&parts.join("\n"), true))
}

/// A part as text.
fn part(part: &pb::Part) -> String {
    match &part.content {
        Some(Content::Text(text) | Content::Refusal(text)) => text.clone(),
        Some(Content::Reasoning(reasoning)) => format!("({})", reasoning.text),
        Some(Content::ToolCall(made)) => format!("-> {}", call(made)),
        Some(Content::ToolResult(given)) => format!("<- {}", result(given)),
        Some(Content::CompactionMarker(marker)) => {
            format!("(summary of {} messages: {})", marker.messages_compacted, marker.summary)
        }
        Some(Content::Media(_) | Content::ProviderItem(_)) => unstreamed_content(part).unwrap_or_default(),
        Some(Content::StepStart(_)) => String::new(),
        None => "(content that this version does not support)".to_owned(),
    }
}

/// The line about content of a response that is not streamed. Returns `None` for tool calls, which have
/// separate lines, and for streamed content.
pub(super) fn unstreamed_content(part: &pb::Part) -> Option<String> {
    if let Some(blob) = &part.preview_of {
        return Some(format!("(truncated: the full content, {} bytes, is blob {})", blob.size_bytes, blob.blob_id));
    }
    match part.content.as_ref()? {
        Content::Media(media) => {
            Some(format!("({})", one_line(format!("{} {}", media.media_type, media.filename).trim())))
        }
        Content::ProviderItem(item) if item.title.is_empty() => Some(format!("({})", one_line(&item.kind))),
        Content::ProviderItem(item) => Some(format!("({})", one_line(&item.title))),
        Content::Text(_)
        | Content::Refusal(_)
        | Content::Reasoning(_)
        | Content::ToolCall(_)
        | Content::ToolResult(_)
        | Content::StepStart(_)
        | Content::CompactionMarker(_) => None,
    }
}

fn why_closed(reason: pb::ToolCallCancelReason) -> &'static str {
    match reason {
        pb::ToolCallCancelReason::Unspecified => "closed without a result",
        pb::ToolCallCancelReason::TurnCancelled => "closed because the turn was cancelled",
        pb::ToolCallCancelReason::TurnEnded => "closed because the turn ended",
        pb::ToolCallCancelReason::Incomplete => "not run because the call is incomplete",
        pb::ToolCallCancelReason::UnknownTool => "not run because the tool does not exist",
    }
}

/// Why a turn stopped before the model had finished. Returns `None` if it had finished.
fn why_stopped(reason: pb::CompletionReason) -> Option<&'static str> {
    match reason {
        pb::CompletionReason::Unspecified | pb::CompletionReason::Stop => None,
        pb::CompletionReason::MaxSteps => Some("step limit reached"),
        pb::CompletionReason::Length => Some("output limit reached"),
        pb::CompletionReason::ContentFilter => Some("content filter"),
        pb::CompletionReason::Budget => Some("token budget used up"),
        pb::CompletionReason::Deadline => Some("turn timeout reached"),
        pb::CompletionReason::Empty => Some("the model returned no response"),
    }
}

fn why_failed(failure: Option<&pb::Failure>) -> String {
    let Some(failure) = failure else {
        return "the turn failed".to_owned();
    };
    let name = failure.reason().as_str_name();
    format!(
        "the turn failed: {} ({})",
        one_line(&failure.message),
        name.strip_prefix("FAILURE_REASON_").unwrap_or(name)
    )
}

/// Text that is safe to print on a terminal: without control characters except tabs and line feeds, so that
/// output of a model or tool cannot move the cursor or set the title. Unchanged if `terminal` is false.
pub(super) fn printable(text: &str, terminal: bool) -> String {
    let harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if !terminal {
        return text.to_owned();
    }
    text.chars().map(|c| if harmless(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// The beginning of a text, on one line.
pub(super) fn one_line(text: &str) -> String {
    let mut words = printable(text.trim(), true).replace(['\n', '\t'], " ");
    if let Some((end, _)) = words.char_indices().nth(MAX_LINE_CHARS) {
        words.truncate(end);
        words.push_str(" ...");
    }
    words
}

/// Formats a number with thousands separators: 16,000.
pub(super) fn number(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (value, expected) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567"), (-16_000, "-16,000")]
        {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn any_text_is_shortened_to_one_line() {
        assert_eq!(one_line(" a\n\tb "), "a  b");
        assert_eq!(one_line("\u{1b}]0;title\u{7}"), "\u{fffd}]0;title\u{fffd}");
        assert_eq!(one_line(&"é".repeat(MAX_LINE_CHARS)), "é".repeat(MAX_LINE_CHARS));
        assert_eq!(one_line(&"é".repeat(MAX_LINE_CHARS + 1)), format!("{} ...", "é".repeat(MAX_LINE_CHARS)));
    }
}
