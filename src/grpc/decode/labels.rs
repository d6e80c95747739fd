//! Decodes the host's labels on sessions and messages.

use std::collections::BTreeMap;

use super::{
    Findings, Path,
    text::{self, AtMost},
};
use crate::pb::FieldReason;

/// Maximum number of labels.
const MOST: usize = 32;
/// Maximum length of a key, in characters.
const LONGEST_KEY: usize = 64;
/// Maximum length of a value, in characters.
const LONGEST_VALUE: usize = 1_024;

/// Decodes a `metadata` map.
pub(super) fn labels(
    at: Path<'_>,
    labels: BTreeMap<String, String>,
    found: &mut Findings,
) -> BTreeMap<String, String> {
    if labels.len() > MOST {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MOST} entries"),
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
    let key = text::line(at, key, AtMost::Chars(LONGEST_KEY), found);
    (
        key,
        text::prose(at, value, AtMost::Chars(LONGEST_VALUE), found),
    )
}
