//! Decodes content that only a provider produces: citations, and items that only that provider can read.

use super::{
    Findings, Path, json, number,
    text::{self, KIB, MIB, MaxLength},
};
use crate::{
    codec,
    model::{Citation, ProviderItem},
    pb::{self, FieldReason},
};

/// Maximum number of citations in a part.
const MAX_CITATIONS: usize = 256;
/// Maximum size of a text in a citation, in bytes.
const MAX_CITATION_TEXT_SIZE: MaxLength = MaxLength::Bytes(64 * KIB);
/// Maximum length of a URL, in characters.
const MAX_URL_LENGTH: MaxLength = MaxLength::Chars(8_192);
/// Maximum length of a name, kind or title, in characters.
const MAX_NAME_LENGTH: MaxLength = MaxLength::Chars(256);
/// Maximum size of a provider item, in bytes.
const MAX_ITEM_SIZE: MaxLength = MaxLength::Bytes(MIB);

/// Decodes the citations of a part. Returns true if any text in them was replaced.
pub(super) fn citations(
    at: Path<'_>,
    citations: Vec<pb::Citation>,
    is_text: bool,
    found: &mut Findings,
) -> (Vec<Citation>, bool) {
    if !citations.is_empty() && !is_text {
        found.invalid(
            at,
            FieldReason::Unsupported,
            "are only allowed on text from a model",
        );
    }
    if citations.len() > MAX_CITATIONS {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MAX_CITATIONS} elements"),
        );
    }
    let replaced = citations.iter().any(has_nul);
    let read = |(i, citation): (usize, pb::Citation)| {
        let citation = checked_citation(at.index(i), citation, found);
        codec::citation::from_pb(citation).ok()
    };
    let citations = citations.into_iter().enumerate().filter_map(read);
    (citations.collect(), replaced)
}

/// Whether a text of a citation has NUL, which cannot be stored and is replaced.
fn has_nul(citation: &pb::Citation) -> bool {
    citation.title.contains('\0') || citation.cited_text.contains('\0')
}

fn checked_citation(at: Path<'_>, citation: pb::Citation, found: &mut Findings) -> pb::Citation {
    let pb::Citation {
        url,
        title,
        cited_text,
        start_byte,
        end_byte,
        provider_metadata_json,
    } = citation;
    number::not_negative(at.field("start_byte"), start_byte.into(), found);
    number::not_negative(at.field("end_byte"), end_byte.into(), found);
    let at_metadata = at.field("provider_metadata_json");
    text::check_length(
        at_metadata,
        &provider_metadata_json,
        MAX_CITATION_TEXT_SIZE,
        found,
    );
    let metadata = json::optional_object(at_metadata, provider_metadata_json, found);
    pb::Citation {
        url: text::single_line(at.field("url"), url, MAX_URL_LENGTH, found),
        title: text::free_text(at.field("title"), title, MAX_CITATION_TEXT_SIZE, found),
        cited_text: text::free_text(
            at.field("cited_text"),
            cited_text,
            MAX_CITATION_TEXT_SIZE,
            found,
        ),
        start_byte,
        end_byte,
        provider_metadata_json: metadata.unwrap_or_default(),
    }
}

/// Decodes a provider item.
pub(super) fn item(at: Path<'_>, item: pb::ProviderItem, found: &mut Findings) -> ProviderItem {
    let pb::ProviderItem {
        provider,
        kind,
        item_json,
        title,
    } = item;
    for (field, name) in [("provider", &provider), ("kind", &kind)] {
        if name.is_empty() {
            found.required(at.field(field));
        }
    }
    let json = json::object(at.field("item_json"), item_json, found);
    text::check_length(at.field("item_json"), &json, MAX_ITEM_SIZE, found);
    ProviderItem {
        provider: text::single_line(at.field("provider"), provider, MAX_NAME_LENGTH, found),
        kind: text::single_line(at.field("kind"), kind, MAX_NAME_LENGTH, found),
        json,
        title: text::single_line(at.field("title"), title, MAX_NAME_LENGTH, found),
    }
}
