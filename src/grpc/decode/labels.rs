//! Decodes the host's labels on sessions and messages.

use std::collections::BTreeMap;

use super::{
    Findings, Path,
    text::{self, MaxLength},
};
use crate::pb::FieldReason;

/// Maximum number of labels.
const MAX_LABELS: usize = 32;
/// Maximum length of a key, in characters.
const MAX_KEY_CHARS: usize = 64;
/// Maximum length of a value, in characters.
const MAX_VALUE_CHARS: usize = 1_024;

/// Decodes a `metadata` map.
pub(super) fn labels(
    at: Path<'_>,
    labels: BTreeMap<String, String>,
    found: &mut Findings,
) -> BTreeMap<String, String> {
    if labels.len() > MAX_LABELS {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MAX_LABELS} entries"),
        );
    }
    labels
        .into_iter()
        .map(|(key, value)| label(at, key, value, found))
        .collect()
}

fn label(at: Path<'_>, key: String, value: String, found: &mut Findings) -> (String, String) {
    let shown = key.clone();
    let at = at.key(&shown);
    if key.is_empty() {
        found.invalid(at, FieldReason::Invalid, "the key must not be empty");
    }
    let key = text::single_line(at, key, MaxLength::Chars(MAX_KEY_CHARS), found);
    (
        key,
        text::free_text(at, value, MaxLength::Chars(MAX_VALUE_CHARS), found),
    )
}
