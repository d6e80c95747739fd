//! Rewrites the tool names in calls to what a service accepts. A model may call a tool by a name
//! that services reject in a request, and a host may import one.

use std::borrow::Cow;

/// Maximum length of a tool name, in characters, for OpenAI, compatible services and Gemini.
pub(super) const MAX_NAME_CHARS: usize = 64;

/// Maximum length of a tool name in a call, in characters, for Anthropic.
pub(super) const MAX_NAME_CHARS_ANTHROPIC: usize = 200;

/// Replaces an empty name.
const NAMELESS: &str = "unnamed";

/// Returns the name to send. Characters other than letters, digits, `_` and `-` become `_`, and the
/// name is truncated to `most` characters. The result is deterministic.
pub(super) fn sanitize(name: &str, most: usize) -> Cow<'_, str> {
    if name.is_empty() {
        return Cow::Borrowed(NAMELESS);
    }
    if is_accepted(name, most) {
        return Cow::Borrowed(name);
    }
    let taken = |character: char| {
        if is_plain(character) { character } else { '_' }
    };
    Cow::Owned(name.chars().map(taken).take(most).collect())
}

/// Whether a service accepts the name unchanged.
pub(super) fn is_accepted(name: &str, most: usize) -> bool {
    (1..=most).contains(&name.len()) && name.chars().all(is_plain)
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_service_refuses_are_sent_in_characters_that_it_takes() {
        let long = "a".repeat(65);
        let table: [(&str, usize, &str); 8] = [
            ("look", MAX_NAME_CHARS, "look"),
            ("$READFILE", MAX_NAME_CHARS, "_READFILE"),
            ("get_weather<|channel|>commentary", MAX_NAME_CHARS, "get_weather__channel__commentary"),
            ("functions.look:0", MAX_NAME_CHARS, "functions_look_0"),
            ("größe", MAX_NAME_CHARS, "gr__e"),
            ("", MAX_NAME_CHARS, "unnamed"),
            (&long, MAX_NAME_CHARS, &long[..64]),
            (&long, MAX_NAME_CHARS_ANTHROPIC, &long),
        ];
        for (name, most, expected) in table {
            let name = sanitize(name, most);
            assert_eq!(name, expected);
            assert!(is_accepted(&name, most));
            assert_eq!(sanitize(&name, most), name, "what is taken stays as it is");
        }
    }
}
