//! Converts messages in another API's format to the messages that a client of this API would send.

use crate::{
    codec::field::Field as _,
    model::{PromptFormat, Role, config::is_model_reference},
    pb::{self, FieldReason, media, part},
    provider::foreign::{
        self, FlawKind, ForeignContent, ForeignConversation, ForeignFlaw, ForeignMedia, ForeignMessage, ForeignPart,
        ForeignSource,
    },
};

use super::{Findings, Path};

/// The field with the messages.
const FIELD: &str = "messages_json";

/// A converted message, and its position in the request.
#[derive(Debug)]
pub(super) struct ImportedMessage {
    pub(super) message: pb::InputMessage,
    pub(super) paths: MessagePaths,
}

/// The positions of a message and its parts in the request, such as `messages_json[3].content[1]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagePaths {
    pub message: String,
    /// The parts in order.
    pub parts: Vec<String>,
}

/// Decodes messages in the given format. `model` is the `PROVIDER/MODEL` that wrote them, empty if unknown.
/// Tool calls without an id get one that starts with `prefix`.
pub(super) fn read(
    shape: PromptFormat,
    json: &str,
    model: &str,
    prefix: &str,
    found: &mut Findings,
) -> Vec<ImportedMessage> {
    let provider = provider(model, found);
    let ForeignConversation { messages, flaws } = foreign::read(shape, json, prefix);
    for ForeignFlaw { at, kind, why } in flaws {
        let reason = match kind {
            FlawKind::Missing => FieldReason::Required,
            FlawKind::Malformed => FieldReason::Invalid,
            FlawKind::Unsupported => FieldReason::Unsupported,
            FlawKind::TooLarge => FieldReason::TooLarge,
            FlawKind::NotJson => FieldReason::NotJson,
        };
        found.invalid(Path::foreign(&format!("{FIELD}{at}")), reason, why);
    }
    let holds_items = messages
        .iter()
        .flat_map(|message| &message.parts)
        .find(|part| matches!(part.content, ForeignContent::Item { reader: None, .. }));
    if let (Some(item), true) = (holds_items, model.is_empty()) {
        let why = format!("must be set, because only the provider that created {FIELD}{} can read it", item.at);
        found.invalid(Path::to("messages_model"), FieldReason::Required, why);
        return Vec::new();
    }
    let leading = messages.iter().take_while(|message| message.role == Role::System).count();
    let convert = |(index, message)| imported(message, index < leading, (provider, model));
    messages.into_iter().enumerate().map(convert).collect()
}

/// The provider of a model.
fn provider<'a>(model: &'a str, found: &mut Findings) -> &'a str {
    let at = Path::to("messages_model");
    match model.split_once('/') {
        Some((provider, _)) if is_model_reference(model) => provider,
        Some(_) | None => {
            if !model.is_empty() {
                found.invalid(at, FieldReason::Invalid, "must look like PROVIDER/MODEL");
            }
            ""
        }
    }
}

/// Converts a message. `leading` system messages are kept when the session is compacted.
fn imported(message: ForeignMessage, leading: bool, (provider, model): (&str, &str)) -> ImportedMessage {
    let ForeignMessage { at, role, parts } = message;
    let place = MessagePaths {
        message: format!("{FIELD}{at}"),
        parts: parts.iter().map(|part| format!("{FIELD}{}", part.at)).collect(),
    };
    let calls = parts.iter().any(|part| matches!(part.content, ForeignContent::Call { .. }));
    let finish = if calls { pb::FinishReason::ToolCalls } else { pb::FinishReason::Stop };
    let written = role == Role::Assistant && !model.is_empty();
    let response = written.then(|| pb::ModelResponse {
        provider: provider.to_owned(),
        model: model.to_owned(),
        finish_reason: finish.into(),
        ..pb::ModelResponse::default()
    });
    let message = pb::InputMessage {
        role: role.to_field(),
        parts: parts.into_iter().map(|part| self::part(part, provider)).collect(),
        pinned: leading,
        response,
        ..pb::InputMessage::default()
    };
    ImportedMessage { message, paths: place }
}

fn part(part: ForeignPart, provider: &str) -> pb::Part {
    let ForeignPart { at: _, content, citations, metadata, sanitized } = part;
    pb::Part {
        content: Some(self::content(content, provider)),
        citations: citations.to_field(),
        provider_metadata_json: metadata.unwrap_or_default(),
        sanitized,
        ..pb::Part::default()
    }
}

fn content(content: ForeignContent, provider: &str) -> part::Content {
    match content {
        ForeignContent::Text(text) => part::Content::Text(text),
        ForeignContent::Reasoning { text, redacted } => part::Content::Reasoning(pb::Reasoning { text, redacted }),
        ForeignContent::Refusal(text) => part::Content::Refusal(text),
        ForeignContent::Media(media) => part::Content::Media(self::media(media)),
        ForeignContent::Call { id, name, arguments } => part::Content::ToolCall(pb::ToolCall {
            call_id: id,
            tool_name: name,
            arguments_json: arguments,
            arguments_blob: None,
        }),
        ForeignContent::Result { call, parts, outcome } => {
            let parts = parts.into_iter().map(|it| self::content(it, provider));
            part::Content::ToolResult(pb::ToolResult {
                call_id: call,
                parts: parts.map(|content| pb::Part { content: Some(content), ..pb::Part::default() }).collect(),
                outcome: outcome.to_field(),
                ..pb::ToolResult::default()
            })
        }
        ForeignContent::Item { kind, json, title, reader } => part::Content::ProviderItem(pb::ProviderItem {
            provider: reader.unwrap_or(provider).to_owned(),
            kind,
            item_json: json,
            title,
        }),
    }
}

fn media(media: ForeignMedia) -> pb::Media {
    let ForeignMedia { media_type, filename, source } = media;
    pb::Media {
        media_type,
        filename,
        source: Some(match source {
            ForeignSource::Data(data) => media::Source::Data(data),
            ForeignSource::Url(url) => media::Source::Url(url),
        }),
        ..pb::Media::default()
    }
}
