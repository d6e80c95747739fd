//! Replaces characters of texts that cannot be stored, and checks names.

use std::collections::BTreeMap;

use super::{Findings, Path};
use crate::pb::FieldReason;

/// A text, or `None` if it is empty.
pub(super) fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Reports names that occur twice in a list.
pub(super) fn check_unique_names<'a>(at: Path<'_>, names: impl Iterator<Item = &'a String>, found: &mut Findings) {
    let mut seen = BTreeMap::new();
    for (i, name) in names.enumerate().filter(|(_, name)| !name.is_empty()) {
        let first = *seen.entry(name).or_insert(i);
        if first != i {
            let description = format!("{} has the same name", at.index(first));
            found.invalid(at.index(i).field("name"), FieldReason::Conflict, description);
        }
    }
}

/// Replaces NUL, which PostgreSQL cannot store, with U+FFFD. Returns true if there was one.
pub(super) fn replace_nul(text: String) -> (String, bool) {
    if text.contains('\0') { (text.replace('\0', "\u{FFFD}"), true) } else { (text, false) }
}

/// Like [`replace_nul`], in place.
pub(super) fn clean(text: &mut String) {
    *text = replace_nul(std::mem::take(text)).0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_becomes_the_replacement_character() {
        assert_eq!(replace_nul("a\0b\0".into()), ("a\u{FFFD}b\u{FFFD}".into(), true));
        assert_eq!(replace_nul("a\u{1}\n".into()), ("a\u{1}\n".into(), false));
    }
}
