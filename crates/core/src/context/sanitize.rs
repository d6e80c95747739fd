//! Sanitizes text from tools, so that it can be stored and sent to a model.

/// A sanitized text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SanitizedText {
    pub text: String,
    /// Characters that cannot be stored were replaced.
    pub replaced: bool,
}

/// Replaces NUL by U+FFFD, removes terminal escape sequences (CSI such as colors, OSC such as titles and links) and
/// converts CRLF to LF.
///
/// Everything else is kept: tabs, lone carriage returns, other control characters, and incomplete escape sequences.
/// Only the replacement of NUL is reported, because the removed sequences are not text.
pub fn sanitize_text(text: &str) -> SanitizedText {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        if let Some(length) = escape_sequence(rest.as_bytes()) {
            rest = &rest[length..];
            continue;
        }
        match char {
            '\0' => clean.push(char::REPLACEMENT_CHARACTER),
            '\n' => {
                clean.truncate(clean.trim_end_matches('\r').len());
                clean.push('\n');
            }
            other => clean.push(other),
        }
        rest = &rest[char.len_utf8()..];
    }
    SanitizedText { text: clean, replaced: text.contains('\0') }
}

/// The length of the complete escape sequence that the text begins with. Returns `None` if there is none. A sequence
/// never contains another ESC, so the searches for its end take linear time over the whole text.
fn escape_sequence(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [0x1b, b'[', ..] => csi(bytes),
        [0x1b, b']', ..] => osc(bytes),
        _ => None,
    }
}

/// `ESC [`, parameter bytes, intermediate bytes, one final byte.
fn csi(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().skip(2).position(|byte| !matches!(byte, 0x20..=0x3f))? + 2;
    matches!(bytes[end], 0x40..=0x7e).then_some(end + 1)
}

/// `ESC ]`, text without a line break, then BEL or `ESC \`.
fn osc(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().skip(2).position(|byte| matches!(byte, 0x07 | 0x1b | b'\n' | b'\0'))? + 2;
    match bytes[end..] {
        [0x07, ..] => Some(end + 1),
        [0x1b, b'\\', ..] => Some(end + 2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_control_sequences_are_removed_from_text() {
        let table = [
            ("", "", false),
            ("plain\ttext\n", "plain\ttext\n", false),
            ("a\0b", "a\u{fffd}b", true),
            ("\0\0", "\u{fffd}\u{fffd}", true),
            ("one\r\ntwo\r\n", "one\ntwo\n", false),
            ("one\r\r\ntwo", "one\ntwo", false),
            ("10%\r20%", "10%\r20%", false),
            ("\x1b[31mred\x1b[0m", "red", false),
            ("\x1b[1;38;5;208mbold\x1b[m", "bold", false),
            ("\x1b[?25l\x1b[2Kdone\r\x1b[K\n", "done\n", false),
            ("\x1b]0;title\x07text", "text", false),
            ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link", false),
            ("\x1b]0;never ends\nmore", "\x1b]0;never ends\nmore", false),
            ("\x1b[12", "\x1b[12", false),
            ("\x1b[12é", "\x1b[12é", false),
            ("\x1b[\x1b[0mx", "\x1b[x", false),
            ("\x1b", "\x1b", false),
            ("\x07\x08\u{feff}日本語🎉", "\x07\x08\u{feff}日本語🎉", false),
            ("array[0m]", "array[0m]", false),
        ];
        for (input, text, replaced) in table {
            assert_eq!(sanitize_text(input), SanitizedText { text: text.to_owned(), replaced }, "{input:?}");
        }
    }

    #[test]
    fn a_megabyte_of_unterminated_escapes_is_sanitized_quickly() {
        let text = "\x1b]".repeat(500_000);
        assert_eq!(sanitize_text(&text).text, text);
    }

    proptest! {
        #[test]
        fn clean_text_holds_neither_nul_nor_crlf(text in "[ab\\x00\\r\\n\\x1b\\[\\]0-9m\\x07é]{0,60}") {
            let clean = sanitize_text(&text).text;
            prop_assert!(!clean.contains('\0'));
            prop_assert!(!clean.contains("\r\n"));
        }

        #[test]
        fn text_without_control_characters_is_untouched(text in "\\PC*") {
            prop_assert_eq!(sanitize_text(&text), SanitizedText { text, replaced: false });
        }
    }
}
