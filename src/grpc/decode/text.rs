//! Decodes and checks texts: their length, and characters that cannot be stored.

use std::collections::BTreeMap;

use super::{Findings, Path};
use crate::pb::FieldReason;

pub(super) const KIB: usize = 1_024;
pub(super) const MIB: usize = 1_024 * KIB;

/// The maximum length of a text.
#[derive(Debug, Clone, Copy)]
pub(super) enum MaxLength {
    /// Unicode scalar values.
    Chars(usize),
    /// Bytes of UTF-8.
    Bytes(usize),
}

impl MaxLength {
    fn fits(self, text: &str) -> bool {
        match self {
            Self::Chars(most) => text.chars().nth(most).is_none(),
            Self::Bytes(most) => text.len() <= most,
        }
    }

    fn describe(self) -> String {
        match self {
            Self::Chars(most) => format!("{most} characters"),
            Self::Bytes(most) => format!("{most} bytes"),
        }
    }
}

/// Decodes a text for people or models: checks its length and replaces NUL.
pub(super) fn free_text(
    at: Path<'_>,
    text: String,
    most: MaxLength,
    found: &mut Findings,
) -> String {
    check_length(at, &text, most, found);
    replace_nul(text).0
}

/// Decodes a single-line text such as a name: checks its length and reports control characters.
pub(super) fn single_line(
    at: Path<'_>,
    text: String,
    most: MaxLength,
    found: &mut Findings,
) -> String {
    check_single_line(at, &text, most, found);
    text
}

/// Reports a text that is too long or contains control characters.
pub(super) fn check_single_line(at: Path<'_>, text: &str, most: MaxLength, found: &mut Findings) {
    if check_length(at, text, most, found) && text.contains(char::is_control) {
        found.invalid(
            at,
            FieldReason::Invalid,
            "must not contain control characters",
        );
    }
}

/// Reports a text that is too long. Returns true if it is not.
pub(super) fn check_length(
    at: Path<'_>,
    text: &str,
    most: MaxLength,
    found: &mut Findings,
) -> bool {
    let holds = most.fits(text);
    if !holds {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must be at most {}", most.describe()),
        );
    }
    holds
}

/// Reports names that occur twice in a list.
pub(super) fn check_unique_names<'a>(
    at: Path<'_>,
    names: impl Iterator<Item = &'a String>,
    found: &mut Findings,
) {
    let mut seen = BTreeMap::new();
    for (i, name) in names.enumerate().filter(|(_, name)| !name.is_empty()) {
        let first = *seen.entry(name).or_insert(i);
        if first != i {
            let description = format!("{} has the same name", at.index(first));
            found.invalid(
                at.index(i).field("name"),
                FieldReason::Conflict,
                description,
            );
        }
    }
}

/// Replaces NUL, which PostgreSQL cannot store, with U+FFFD. Returns true if there was one.
pub(super) fn replace_nul(text: String) -> (String, bool) {
    if text.contains('\0') {
        (text.replace('\0', "\u{FFFD}"), true)
    } else {
        (text, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_limits_count_scalar_values_or_bytes() {
        assert!(MaxLength::Chars(2).fits("üü"));
        assert!(!MaxLength::Chars(2).fits("üüü"));
        assert!(MaxLength::Bytes(4).fits("üü"));
        assert!(!MaxLength::Bytes(3).fits("üü"));
    }

    #[test]
    fn nul_becomes_the_replacement_character() {
        assert_eq!(
            replace_nul("a\0b\0".into()),
            ("a\u{FFFD}b\u{FFFD}".into(), true)
        );
        assert_eq!(replace_nul("a\u{1}\n".into()), ("a\u{1}\n".into(), false));
    }
}
