//! A fast path for words of plain English: splits ASCII letters and digits like OpenAI's patterns, without running the
//! regular expression.

/// How a vocabulary splits words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// A word ends before a capital letter, and includes its `'s`.
    ByCase,
    /// A word consists of letters, and `'s` is a separate piece.
    ByLetters,
}

impl Words {
    /// The end of the first piece. Returns `None` if only the pattern can determine it.
    pub(super) fn end(self, bytes: &[u8]) -> Option<usize> {
        let first = *bytes.first()?;
        if first.is_ascii_digit() {
            return number(bytes);
        }
        if !first.is_ascii() || matches!(first, b'\r' | b'\n') || (first == b'\'' && self == Self::ByLetters) {
            return None;
        }
        let begin = usize::from(!first.is_ascii_alphabetic());
        let letters = &bytes[begin..];
        let length = match self {
            Self::ByCase => {
                let capitals = run(letters, u8::is_ascii_uppercase);
                capitals + run(&letters[capitals..], u8::is_ascii_lowercase)
            }
            Self::ByLetters => run(letters, u8::is_ascii_alphabetic),
        };
        let end = begin + length;
        let goes_on = match bytes.get(end) {
            Some(b'\'') => self == Self::ByCase,
            Some(next) => !next.is_ascii(),
            None => false,
        };
        (length > 0 && !goes_on).then_some(end)
    }
}

/// Up to three digits.
fn number(bytes: &[u8]) -> Option<usize> {
    const MAX_DIGITS: usize = 3;
    let length = run(&bytes[..bytes.len().min(MAX_DIGITS)], u8::is_ascii_digit);
    let goes_on = length < MAX_DIGITS && bytes.get(length).is_some_and(|next| !next.is_ascii());
    (!goes_on).then_some(length)
}

/// The number of leading bytes of this kind.
fn run(bytes: &[u8], kind: impl Fn(&u8) -> bool) -> usize {
    bytes.iter().position(|byte| !kind(byte)).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_boundaries_follow_the_patterns() {
        let table = [
            ("word next", Some(4), Some(4)),
            (" word", Some(5), Some(5)),
            ("  word", None, None),
            ("camelCase", Some(5), Some(9)),
            ("HTTPServer.", Some(10), Some(10)),
            ("it's", None, Some(2)),
            ("'save", Some(5), None),
            ("(word)", Some(5), Some(5)),
            ("caf\u{e9}", None, None),
            ("12345", Some(3), Some(3)),
            ("12 ", Some(2), Some(2)),
            ("1\u{662}", None, None),
            ("123\u{662}", Some(3), Some(3)),
            ("\nword", None, None),
            ("...", None, None),
            ("", None, None),
        ];
        for (text, by_case, by_letters) in table {
            assert_eq!(Words::ByCase.end(text.as_bytes()), by_case, "{text:?}");
            assert_eq!(Words::ByLetters.end(text.as_bytes()), by_letters, "{text:?}");
        }
    }
}
