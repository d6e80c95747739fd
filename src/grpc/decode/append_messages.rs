//! Decodes AppendMessages.

use super::{
    Findings, Path, answers, context,
    findings::StoredBlobs,
    hash::{idempotency, request_hash},
    id, ignored, input, json, labels, media,
    messages_json::{self, ImportedMessage, MessagePaths},
    number, part, provided, response,
    text::{self, MIB, MaxLength},
    timestamp, tools,
};
use crate::{
    grpc::violations::RequestError,
    model::{
        Content, InputMessage, Part, PromptFormat, Role, ToolCall, ToolResult,
        command::{AppendMessages, SubmittedResult},
    },
    pb::{self, FieldReason},
};

pub const APPEND_MESSAGES: &str = "contextd.v1.SessionService/AppendMessages";
/// Maximum number of messages in a request.
pub(super) const MAX_MESSAGES: usize = 1_000;
/// Maximum size of a text, of reasoning and of arguments, in bytes.
const MAX_TEXT_SIZE: MaxLength = MaxLength::Bytes(MIB);

/// A decoded AppendMessagesRequest.
#[derive(Debug)]
pub struct DecodedAppend {
    pub command: AppendMessages,
    /// The positions of the messages in the request, if they use the format of another API.
    pub message_paths: Vec<MessagePaths>,
}

/// Decodes an AppendMessagesRequest. Tool calls without an id, in the format of another API, get one that
/// starts with `prefix`.
pub fn append_messages(
    mut request: pb::AppendMessagesRequest,
    stored: StoredBlobs,
    prefix: &str,
) -> Result<DecodedAppend, RequestError> {
    let mut found = Findings::with(APPEND_MESSAGES, stored);
    request
        .messages
        .iter_mut()
        .flat_map(|message| &mut message.parts)
        .for_each(ignored::clear_part);
    let hash = request_hash(APPEND_MESSAGES, &request);
    let pb::AppendMessagesRequest {
        session_id,
        request_id,
        messages,
        messages_json,
        messages_format,
        context_version,
        messages_model,
    } = request;
    let at = Path::to("messages");
    let shape = shape(at, &messages, &messages_json, messages_format, &mut found);
    let mut places = Vec::new();
    let messages: Vec<InputMessage> = match shape {
        Some(shape) => {
            let imported =
                messages_json::read(shape, &messages_json, &messages_model, prefix, &mut found);
            check_number(Path::to("messages_json"), imported.len(), &mut found);
            let read = |ImportedMessage {
                            message,
                            paths: place,
                        }: ImportedMessage| {
                let read = message_from(
                    Path::foreign(&place.message),
                    Some(&place),
                    message,
                    &mut found,
                );
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
            check_number(at, messages.len(), &mut found);
            // More are rejected, and not decoded.
            let messages = messages.into_iter().take(MAX_MESSAGES).enumerate();
            messages
                .map(|(i, m)| message(at.index(i), m, &mut found))
                .collect()
        }
    };
    let command = AppendMessages {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        idempotency: idempotency(request_id, hash, &mut found),
        messages,
        renames_calls: shape.is_some(),
        contents: found.take_contents(),
        version: number::large_count(Path::to("context_version"), context_version, &mut found),
    };
    found.finish(DecodedAppend {
        command,
        message_paths: places,
    })
}

/// Reports too many messages.
fn check_number(at: Path<'_>, messages: usize, found: &mut Findings) {
    if messages > MAX_MESSAGES {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MAX_MESSAGES} elements"),
        );
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
        (false, false) => found.invalid(
            at_json,
            FieldReason::Conflict,
            "messages must be empty if messages_json is set",
        ),
        (false, true) => {}
        (true, false) => return foreign_shape(at_format, format, found),
    }
    // Without messages_json the format is not used, but must be known.
    number::enum_value::<pb::PromptFormat>(at_format, format, found);
    None
}

/// The format of another API's messages. Reports anything else and returns `None`.
pub(super) fn foreign_shape(
    at: Path<'_>,
    format: i32,
    found: &mut Findings,
) -> Option<PromptFormat> {
    let format = number::enum_value(at, format, found)?;
    if format == pb::PromptFormat::Unspecified {
        found.required(at);
        return None;
    }
    let shape = context::shape_of(format);
    if matches!(shape, PromptFormat::Neutral | PromptFormat::Native) {
        found.invalid(
            at,
            FieldReason::Unsupported,
            "must be the format of another API",
        );
        return None;
    }
    Some(shape)
}

/// Decodes a message of any role.
pub(super) fn message(
    at: Path<'_>,
    message: pb::InputMessage,
    found: &mut Findings,
) -> InputMessage {
    message_from(at, None, message, found)
}

/// Decodes a message. `place` is its position if it uses another API's format.
fn message_from(
    at: Path<'_>,
    place: Option<&MessagePaths>,
    message: pb::InputMessage,
    found: &mut Findings,
) -> InputMessage {
    let pb::InputMessage {
        role,
        parts,
        pinned,
        metadata,
        response,
        create_time,
    } = message;
    let role = self::role(at.field("role"), role, found);
    if response.is_some() && role != Role::Assistant {
        found.invalid(
            at.field("response"),
            FieldReason::Unsupported,
            "is only allowed in assistant messages",
        );
    }
    let at_parts = at.field("parts");
    input::check_number(at_parts, &parts, found);
    let parts = parts.into_iter().take(input::MAX_PARTS).enumerate();
    InputMessage {
        role,
        parts: parts
            .filter_map(|(i, part)| {
                let there = place.and_then(|place| place.parts.get(i));
                let at = there.map_or(at_parts.index(i), |there| Path::foreign(there));
                self::part(at, role, place.is_some(), part, found)
            })
            .collect(),
        pinned,
        metadata: labels::labels(at.field("metadata"), metadata, found),
        response: response.and_then(|it| response::read(at.field("response"), it, found)),
        created_at: create_time
            .and_then(|it| timestamp::timestamp(at.field("create_time"), it, found)),
    }
}

fn role(at: Path<'_>, role: i32, found: &mut Findings) -> Role {
    match number::enum_value(at, role, found) {
        Some(pb::Role::Unspecified | pb::Role::User) | None => Role::User,
        Some(pb::Role::System) => Role::System,
        Some(pb::Role::Assistant) => Role::Assistant,
        Some(pb::Role::Tool) => Role::Tool,
    }
}

fn part(
    at: Path<'_>,
    role: Role,
    is_foreign: bool,
    part: pb::Part,
    found: &mut Findings,
) -> Option<Part> {
    match role {
        Role::System | Role::User => part::user_part(at, part, found),
        Role::Assistant => response_part(at, part, found),
        Role::Tool => result_part(at, is_foreign, part, found),
    }
}

/// Decodes a part of a model response. Reports a part that a response cannot contain, and returns `None`.
fn response_part(at: Path<'_>, part: pb::Part, found: &mut Findings) -> Option<Part> {
    use pb::part::Content as Wire;
    let pb::Part {
        content,
        citations,
        provider_metadata_json,
        tokens: _,
        preview_of: _,
        sanitized: imported,
    } = part;
    let is_text = matches!(content, Some(Wire::Text(_)));
    let (citations, replaced) =
        provided::citations(at.field("citations"), citations, is_text, found);
    let bare = provider_metadata_json.is_empty();
    let provider_metadata = json::optional_object(
        at.field("provider_metadata_json"),
        provider_metadata_json,
        found,
    );
    let (content, sanitized) = match content {
        Some(Wire::Text(text)) => {
            if text.is_empty() && bare {
                found.required(at.field("text"));
            }
            let (text, sanitized) = cleaned(at.field("text"), text, found);
            (Content::Text(text), sanitized)
        }
        Some(Wire::Reasoning(pb::Reasoning { text, redacted })) => {
            let (text, sanitized) = cleaned(at.field("reasoning").field("text"), text, found);
            (Content::Reasoning { text, redacted }, sanitized)
        }
        Some(Wire::ToolCall(call)) => self::call(at.field("tool_call"), call, found),
        Some(Wire::Refusal(text)) => {
            let (text, sanitized) = cleaned(at.field("refusal"), text, found);
            (Content::Refusal(text), sanitized)
        }
        Some(Wire::Media(media)) => (
            Content::Media(media::read(at.field("media"), media, found)?),
            false,
        ),
        Some(Wire::ProviderItem(item)) => (
            Content::ProviderItem(provided::item(at.field("provider_item"), item, found)),
            false,
        ),
        Some(Wire::StepStart(_)) => {
            found.not_implemented(at.field("step_start"));
            return None;
        }
        Some(Wire::ToolResult(_)) => {
            return misplaced(
                at.field("tool_result"),
                "is only allowed with role TOOL",
                found,
            );
        }
        Some(Wire::CompactionMarker(_)) => {
            return misplaced(
                at.field("compaction_marker"),
                "is only written by compactions",
                found,
            );
        }
        None => {
            found.invalid(at, FieldReason::Invalid, "must have content");
            return None;
        }
    };
    Some(Part {
        content,
        citations,
        provider_metadata,
        sanitized: sanitized || replaced || imported,
    })
}

/// Decodes a part that must be a tool result. Reports anything else and returns `None`.
fn result_part(
    at: Path<'_>,
    is_foreign: bool,
    part: pb::Part,
    found: &mut Findings,
) -> Option<Part> {
    use pb::part::Content as Wire;
    let pb::Part {
        content,
        citations,
        provider_metadata_json,
        tokens: _,
        preview_of: _,
        sanitized: imported,
    } = part;
    part::refuse_citations(at, &citations, found);
    let metadata = at.field("provider_metadata_json");
    let provider_metadata = json::optional_object(metadata, provider_metadata_json, found);
    let other = match content {
        Some(Wire::ToolResult(result)) => {
            let SubmittedResult {
                call,
                parts,
                outcome,
                sanitized,
                display_text,
            } = if is_foreign {
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
            return Some(Part {
                content,
                citations: Vec::new(),
                provider_metadata,
                sanitized: sanitized || imported,
            });
        }
        Some(Wire::Text(_)) => "text",
        Some(Wire::Reasoning(_)) => "reasoning",
        Some(Wire::ToolCall(_)) => "tool_call",
        Some(Wire::Media(_)) => "media",
        Some(Wire::Refusal(_)) => "refusal",
        Some(Wire::ProviderItem(_)) => "provider_item",
        Some(Wire::StepStart(_)) => "step_start",
        Some(Wire::CompactionMarker(_)) => "compaction_marker",
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
fn call(at: Path<'_>, call: pb::ToolCall, found: &mut Findings) -> (Content, bool) {
    let pb::ToolCall {
        call_id,
        tool_name,
        arguments_json,
        arguments_blob: _,
    } = call;
    tools::check_name(at.field("tool_name"), &tool_name, found);
    let (arguments, sanitized) = cleaned(at.field("arguments_json"), arguments_json, found);
    let arguments = if arguments.is_empty() {
        "{}".to_owned()
    } else {
        arguments
    };
    let id = id::call(at.field("call_id"), call_id, found);
    (
        Content::ToolCall(ToolCall {
            id,
            name: tool_name,
            arguments,
        }),
        sanitized,
    )
}

fn cleaned(at: Path<'_>, text: String, found: &mut Findings) -> (String, bool) {
    text::check_length(at, &text, MAX_TEXT_SIZE, found);
    text::replace_nul(text)
}
