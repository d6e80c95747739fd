//! MIME types.

use super::{
    Findings, Path,
    text::{self, AtMost},
};
use crate::pb::FieldReason;

/// Most characters of a MIME type with its parameters.
const LONGEST: AtMost = AtMost::Chars(255);

/// Reads a MIME type that must be given: `type/subtype`, with parameters or without. It is kept as
/// it is.
pub(super) fn required(at: Path<'_>, media_type: String, found: &mut Findings) -> String {
    if media_type.is_empty() {
        found.required(at);
    } else if text::bounded(at, &media_type, LONGEST, found) && !is_media_type(&media_type) {
        found.invalid(
            at,
            FieldReason::Invalid,
            "must be a MIME type, e.g. image/png",
        );
    }
    media_type
}

fn is_media_type(text: &str) -> bool {
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    let halves = essence.trim_end().split_once('/');
    halves.is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
        && parameters.chars().all(|c| c == ' ' || c.is_ascii_graphic())
}

/// A token of RFC 9110.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_has_two_halves_and_printable_parameters() {
        for text in [
            "image/png",
            "text/plain; charset=utf-8",
            "application/vnd.a+json",
            "TEXT/X ;a=\"b c\"",
        ] {
            assert!(is_media_type(text), "{text}");
        }
        for text in [
            "png",
            "image/",
            "/png",
            "image/png/x",
            "image /png",
            "text/plain; a=\n",
            "té/xt",
            "; a",
            " a/b",
        ] {
            assert!(!is_media_type(text), "{text}");
        }
    }
}
