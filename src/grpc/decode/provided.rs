//! Decodes content that only a provider produces: citations, and items that only that provider can read.

use super::{Findings, Path, json, text};
use crate::{
    codec::field::Field as _,
    model::{Citation, ProviderItem},
    pb::{self, FieldReason},
};

/// Decodes the citations of a part. Returns true if any text in them was replaced.
pub(super) fn citations(
    at: Path<'_>,
    citations: Vec<pb::Citation>,
    is_text: bool,
    found: &mut Findings,
) -> (Vec<Citation>, bool) {
    if !citations.is_empty() && !is_text {
        found.invalid(at, FieldReason::Unsupported, "are only allowed on text from a model");
    }
    let mut any_replaced = false;
    let read = |(i, mut citation): (usize, pb::Citation)| {
        for text in [&mut citation.title, &mut citation.cited_text] {
            let (cleaned, replaced) = text::replace_nul(std::mem::take(text));
            *text = cleaned;
            any_replaced |= replaced;
        }
        let metadata = &citation.provider_metadata_json;
        if !metadata.is_empty() {
            let at = at.index(i);
            json::check_object(at.field("provider_metadata_json"), metadata, found);
        }
        Citation::from_field("citation", citation).ok()
    };
    let citations = citations.into_iter().enumerate().filter_map(read).collect();
    (citations, any_replaced)
}

/// Decodes a provider item.
pub(super) fn item(at: Path<'_>, item: pb::ProviderItem, found: &mut Findings) -> ProviderItem {
    let pb::ProviderItem { provider, kind, item_json, title } = item;
    json::check_object(at.field("item_json"), &item_json, found);
    ProviderItem { provider, kind, json: item_json, title }
}
