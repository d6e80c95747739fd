//! Decodes parts of user messages and tool results.

use super::{Findings, Path, json, media, text};
use crate::{
    model::{Content, OutputPart, Part},
    pb::{self, FieldReason, limits, part},
};

/// Decodes a part of a user message. Reports a part that is neither text nor media, and returns `None`.
pub(super) fn user_part(at: Path<'_>, part: pb::Part, found: &mut Findings) -> Option<Part> {
    let pb::Part { content, citations, provider_metadata_json, tokens: _, preview_of: _, sanitized: imported } = part;
    refuse_citations(at, &citations, found);
    let bare = provider_metadata_json.is_empty();
    let provider_metadata = json::optional_object(at.field("provider_metadata_json"), provider_metadata_json, found);
    let (content, sanitized) = match text_or_medium(at, content, found)? {
        OutputPart::Text(text) => self::text(at.field("text"), text, bare, found),
        OutputPart::Media(medium) => (Content::Media(medium), false),
    };
    Some(Part { content, citations: Vec::new(), provider_metadata, sanitized: sanitized || imported })
}

/// Decodes a text. It must not be empty if it is `bare`: without metadata of a provider. Returns true if characters were
/// replaced.
pub(super) fn text(at: Path<'_>, text: String, bare: bool, found: &mut Findings) -> (Content, bool) {
    if text.is_empty() && bare {
        found.required(at);
    }
    limits::part::TEXT.check(at, &text, found);
    let (text, sanitized) = text::replace_nul(text);
    (Content::Text(text), sanitized)
}

/// Decodes a part of a tool result. Reports a part that is neither text nor media, and returns `None`. The
/// size limit applies to the whole result.
pub(super) fn result_part(at: Path<'_>, part: pb::Part, found: &mut Findings) -> Option<OutputPart> {
    let pb::Part { content, citations, provider_metadata_json, tokens: _, preview_of: _, sanitized: _ } = part;
    refuse_citations(at, &citations, found);
    if !provider_metadata_json.is_empty() {
        let at = at.field("provider_metadata_json");
        found.invalid(at, FieldReason::Unsupported, "is only allowed on content from a provider");
    }
    text_or_medium(at, content, found)
}

/// Reports citations of a text that no model wrote.
pub(super) fn refuse_citations(at: Path<'_>, citations: &[pb::Citation], found: &mut Findings) {
    if !citations.is_empty() {
        found.invalid(at.field("citations"), FieldReason::Unsupported, "are only allowed on text from a model");
    }
}

fn text_or_medium(at: Path<'_>, content: Option<part::Content>, found: &mut Findings) -> Option<OutputPart> {
    use part::Content;
    let other = match content {
        Some(Content::Text(text)) => return Some(OutputPart::Text(text)),
        Some(Content::Media(media)) => {
            return media::read(at.field("media"), media, found).map(OutputPart::Media);
        }
        Some(other) => other.kind(),
        None => {
            found.invalid(at, FieldReason::Invalid, "must have content: text or media");
            return None;
        }
    };
    found.invalid(at.field(other), FieldReason::Unsupported, "only text and media are allowed here");
    None
}
