//! Decodes content that only a provider produces: citations, and items that only that provider can read.

use super::{
    Findings, Path, json, number,
    text::{self, AtMost, KIB, MIB},
};
use crate::{
    codec,
    model::{Citation, ProviderItem},
    pb::{self, FieldReason},
};

/// Maximum number of citations in a part.
const MOST_CITATIONS: usize = 256;
/// Maximum size of a text in a citation, in bytes.
const LONGEST_QUOTE: AtMost = AtMost::Bytes(64 * KIB);
/// Maximum length of a URL, in characters.
const LONGEST_URL: AtMost = AtMost::Chars(8_192);
/// Maximum length of a name, kind or title, in characters.
const LONGEST_NAME: AtMost = AtMost::Chars(256);
/// Maximum size of a provider item, in bytes.
const LONGEST_ITEM: AtMost = AtMost::Bytes(MIB);

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
    if citations.len() > MOST_CITATIONS {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MOST_CITATIONS} elements"),
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
    text::bounded(at_metadata, &provider_metadata_json, LONGEST_QUOTE, found);
    let metadata = json::optional_object(at_metadata, provider_metadata_json, found);
    pb::Citation {
        url: text::line(at.field("url"), url, LONGEST_URL, found),
        title: text::prose(at.field("title"), title, LONGEST_QUOTE, found),
        cited_text: text::prose(at.field("cited_text"), cited_text, LONGEST_QUOTE, found),
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
    text::bounded(at.field("item_json"), &json, LONGEST_ITEM, found);
    ProviderItem {
        provider: text::line(at.field("provider"), provider, LONGEST_NAME, found),
        kind: text::line(at.field("kind"), kind, LONGEST_NAME, found),
        json,
        title: text::line(at.field("title"), title, LONGEST_NAME, found),
    }
}
