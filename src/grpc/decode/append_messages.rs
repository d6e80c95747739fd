//! Decodes AppendMessages.

use uuid::Uuid;

use super::{
    Decode, Findings, Path, answers, json, labels, media,
    messages_json::{self, ImportedMessage, MessagePaths},
    number, part, provided, response, text,
};
use crate::{
    codec::{DecodeError, field::Field as _},
    model::{
        BlobId, CallId, Content, InputMessage, Part, PromptFormat, Role, SessionId, ToolCall, ToolResult,
        command::{AppendMessages, SubmittedResult},
    },
    pb::{
        self, FieldReason,
        limits::{Limited as _, append_messages_request, input_message},
    },
};

/// A decoded AppendMessagesRequest.
#[derive(Debug)]
pub struct DecodedAppend {
    pub command: AppendMessages,
    /// The positions of the messages in the request, if they use the format of another API.
    pub message_paths: Vec<MessagePaths>,
}

impl Decode for pb::AppendMessagesRequest {
    type Command = DecodedAppend;

    fn blobs(&self) -> Vec<BlobId> {
        media::blobs_in_messages(&self.messages)
    }

    fn read(self, found: &mut Findings) -> Result<DecodedAppend, DecodeError> {
        let Self { session_id, request_id, messages, messages_json, messages_format, context_version, messages_model } =
            self;
        let at = Path::to("messages");
        let shape = shape(at, &messages, &messages_json, messages_format, found);
        let mut places = Vec::new();
        let messages: Vec<InputMessage> = match shape {
            Some(shape) => {
                // Tool calls without an id, in the format of another API, get one.
                let prefix = format!("call_{}_", Uuid::now_v7().simple());
                let imported = messages_json::read(shape, &messages_json, &messages_model, &prefix, found);
                check_items(Path::to("messages_json"), imported.len(), append_messages_request::MESSAGES, found);
                let read = |ImportedMessage { message, paths: place }: ImportedMessage| {
                    let read = message_from(Path::foreign(&place.message), Some(&place), message, found);
                    places.push(place);
                    read
                };
                imported.into_iter().map(read).collect()
            }
            None => {
                if !messages_model.is_empty() {
                    found.invalid(
                        Path::to("messages_model"),
                        FieldReason::Conflict,
                        "must be empty if messages_json is not set",
                    );
                }
                // More are rejected, and not decoded.
                let messages = messages.into_iter().take(append_messages_request::MESSAGES);
                messages.enumerate().map(|(i, m)| message(at.index(i), m, found)).collect()
            }
        };
        let command = AppendMessages {
            session: SessionId::new(session_id),
            idempotency: found.idempotency(request_id),
            messages,
            renames_calls: shape.is_some(),
            contents: found.take_contents(),
            version: number::large_count(context_version),
        };
        Ok(DecodedAppend { command, message_paths: places })
    }
}

/// Reports too many messages, or too many parts of a message, in the format of another API.
fn check_items(at: Path<'_>, items: usize, most: usize, found: &mut Findings) {
    if items > most {
        let description = format!("must have at most {most} elements");
        found.invalid(at, FieldReason::TooLarge, description);
    }
}

/// The format of `messages_json`. Returns `None` if the request does not use it. Reports a request that has
/// messages in no format or in two.
fn shape(
    at: Path<'_>,
    messages: &[pb::InputMessage],
    json: &str,
    format: i32,
    found: &mut Findings,
) -> Option<PromptFormat> {
    let at_json = Path::to("messages_json");
    let at_format = Path::to("messages_format");
    match (messages.is_empty(), json.is_empty()) {
        (true, true) => found.required(at),
        (false, false) => {
            found.invalid(at_json, FieldReason::Conflict, "messages must be empty if messages_json is set")
        }
        (false, true) => {}
        (true, false) if format == 0 => found.required(at_format),
        (true, false) => return foreign_shape(at_format, format, found),
    }
    None
}

/// The format of another API's messages. Reports another format of this API, and returns `None`.
pub(super) fn foreign_shape(at: Path<'_>, format: i32, found: &mut Findings) -> Option<PromptFormat> {
    let shape = PromptFormat::from_field("format", format).ok().filter(|_| format != 0)?;
    if matches!(shape, PromptFormat::Neutral | PromptFormat::Native) {
        found.invalid(at, FieldReason::Unsupported, "must be the format of another API");
        return None;
    }
    Some(shape)
}

/// Decodes a message of any role.
pub(super) fn message(at: Path<'_>, message: pb::InputMessage, found: &mut Findings) -> InputMessage {
    message_from(at, None, message, found)
}

/// Decodes a message. `place` is its position if it uses another API's format, and then its limits are checked
/// here, since the request has it as text.
fn message_from(
    at: Path<'_>,
    place: Option<&MessagePaths>,
    message: pb::InputMessage,
    found: &mut Findings,
) -> InputMessage {
    let pb::InputMessage { role, parts, pinned, metadata, response, create_time } = message;
    let role = number::choice_or(role, Role::User);
    if response.is_some() && role != Role::Assistant {
        found.invalid(at.field("response"), FieldReason::Unsupported, "is only allowed in assistant messages");
    }
    let at_parts = at.field("parts");
    if place.is_some() {
        if parts.is_empty() {
            found.required(at_parts);
        }
        check_items(at_parts, parts.len(), input_message::PARTS, found);
    }
    let parts = parts.into_iter().take(input_message::PARTS).enumerate();
    InputMessage {
        role,
        parts: parts
            .filter_map(|(i, part)| {
                let there = place.and_then(|place| place.parts.get(i));
                let at = there.map_or(at_parts.index(i), |there| Path::foreign(there));
                if place.is_some() {
                    part.check(at, found);
                }
                self::part(at, role, place.is_some(), part, found)
            })
            .collect(),
        pinned,
        metadata: labels::labels(metadata),
        response: response.and_then(|it| response::read(at.field("response"), it, found)),
        created_at: number::timestamp(create_time),
    }
}

fn part(at: Path<'_>, role: Role, is_foreign: bool, part: pb::Part, found: &mut Findings) -> Option<Part> {
    match role {
        Role::System | Role::User => part::user_part(at, part, found),
        Role::Assistant => response_part(at, part, found),
        Role::Tool => result_part(at, is_foreign, part, found),
    }
}

/// Decodes a part of a model response. Reports a part that a response cannot contain, and returns `None`.
fn response_part(at: Path<'_>, part: pb::Part, found: &mut Findings) -> Option<Part> {
    use pb::part::Content as Wire;
    let pb::Part { content, citations, provider_metadata_json, tokens: _, preview_of: _, sanitized: imported } = part;
    let is_text = matches!(content, Some(Wire::Text(_)));
    let (citations, replaced) = provided::citations(at.field("citations"), citations, is_text, found);
    let bare = provider_metadata_json.is_empty();
    let provider_metadata = json::optional_object(at.field("provider_metadata_json"), provider_metadata_json, found);
    let (content, sanitized) = match content {
        Some(Wire::Text(text)) => part::text(at.field("text"), text, bare, found),
        Some(Wire::Reasoning(pb::Reasoning { text, redacted })) => {
            let (text, sanitized) = text::replace_nul(text);
            (Content::Reasoning { text, redacted }, sanitized)
        }
        Some(Wire::ToolCall(call)) => self::call(call),
        Some(Wire::Refusal(text)) => {
            let (text, sanitized) = text::replace_nul(text);
            (Content::Refusal(text), sanitized)
        }
        Some(Wire::Media(media)) => (Content::Media(media::read(at.field("media"), media, found)?), false),
        Some(Wire::ProviderItem(item)) => {
            (Content::ProviderItem(provided::item(at.field("provider_item"), item, found)), false)
        }
        Some(Wire::StepStart(_)) => {
            found.not_implemented(at.field("step_start"));
            return None;
        }
        Some(Wire::ToolResult(_)) => {
            return misplaced(at.field("tool_result"), "is only allowed with role TOOL", found);
        }
        Some(Wire::CompactionMarker(_)) => {
            return misplaced(at.field("compaction_marker"), "is only written by compactions", found);
        }
        None => {
            found.invalid(at, FieldReason::Invalid, "must have content");
            return None;
        }
    };
    Some(Part { content, citations, provider_metadata, sanitized: sanitized || replaced || imported })
}

/// Decodes a part that must be a tool result. Reports anything else and returns `None`.
fn result_part(at: Path<'_>, is_foreign: bool, part: pb::Part, found: &mut Findings) -> Option<Part> {
    use pb::part::Content as Wire;
    let pb::Part { content, citations, provider_metadata_json, tokens: _, preview_of: _, sanitized: imported } = part;
    part::refuse_citations(at, &citations, found);
    let metadata = at.field("provider_metadata_json");
    let provider_metadata = json::optional_object(metadata, provider_metadata_json, found);
    let other = match content {
        Some(Wire::ToolResult(result)) => {
            let SubmittedResult { call, parts, outcome, sanitized, display_text } = if is_foreign {
                answers::foreign_result(at.field("tool_result"), result, found)
            } else {
                answers::result(at.field("tool_result"), result, found)
            };
            let content = Content::ToolResult(ToolResult {
                call,
                name: String::new(),
                parts,
                outcome,
                truncation: None,
                display_text,
            });
            return Some(Part { content, citations: Vec::new(), provider_metadata, sanitized: sanitized || imported });
        }
        Some(other) => other.kind(),
        None => {
            found.invalid(at, FieldReason::Invalid, "must have content: tool_result");
            return None;
        }
    };
    misplaced(at.field(other), "role TOOL allows only tool_result", found)
}

fn misplaced(at: Path<'_>, why: &str, found: &mut Findings) -> Option<Part> {
    found.invalid(at, FieldReason::Unsupported, why);
    None
}

/// Decodes a tool call. Models write arguments that are not valid JSON, so they are stored unchanged; empty
/// arguments become `{}`.
fn call(call: pb::ToolCall) -> (Content, bool) {
    let pb::ToolCall { call_id, tool_name, arguments_json, arguments_blob: _ } = call;
    let (arguments, sanitized) = text::replace_nul(arguments_json);
    let arguments = if arguments.is_empty() { "{}".to_owned() } else { arguments };
    let id = CallId::new(call_id);
    (Content::ToolCall(ToolCall { id, name: tool_name, arguments }), sanitized)
}
