//! Decodes MIME types.

use super::{
    Findings, Path,
    text::{self, MaxLength},
};
use crate::{model::media::is_media_type, pb::FieldReason};

/// Maximum length of a MIME type with its parameters, in characters.
const MAX_MEDIA_TYPE_LENGTH: MaxLength = MaxLength::Chars(255);

/// Decodes a required MIME type: `type/subtype`, with or without parameters. It is not normalized.
pub(super) fn required(at: Path<'_>, media_type: String, found: &mut Findings) -> String {
    if media_type.is_empty() {
        found.required(at);
    } else if text::check_length(at, &media_type, MAX_MEDIA_TYPE_LENGTH, found)
        && !is_media_type(&media_type)
    {
        found.invalid(
            at,
            FieldReason::Invalid,
            "must be a MIME type, e.g. image/png",
        );
    }
    media_type
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
