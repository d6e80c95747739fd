//! Names of calls as services take them back. A model may call a tool by a name that no service
//! takes in a request, and a host may import one.

use std::borrow::Cow;

/// Characters of a name for OpenAI, what is compatible with it, and Gemini.
pub(in crate::provider) const MOST: usize = 64;

/// Characters of a name in a call for Anthropic.
pub(in crate::provider) const MOST_ANTHROPIC: usize = 200;

/// In place of a name without a character.
const NAMELESS: &str = "unnamed";

/// The name as it goes out, the same for the same name: what is no letter, digit, `_` or `-`
/// becomes `_`, and what is more than `most` characters is cut.
pub(in crate::provider) fn sent(name: &str, most: usize) -> Cow<'_, str> {
    if name.is_empty() {
        return Cow::Borrowed(NAMELESS);
    }
    if is_taken(name, most) {
        return Cow::Borrowed(name);
    }
    let taken = |character: char| {
        if is_plain(character) { character } else { '_' }
    };
    Cow::Owned(name.chars().map(taken).take(most).collect())
}

/// Whether a service takes the name as it is.
pub(in crate::provider) fn is_taken(name: &str, most: usize) -> bool {
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
            ("look", MOST, "look"),
            ("$READFILE", MOST, "_READFILE"),
            (
                "get_weather<|channel|>commentary",
                MOST,
                "get_weather__channel__commentary",
            ),
            ("functions.look:0", MOST, "functions_look_0"),
            ("größe", MOST, "gr__e"),
            ("", MOST, "unnamed"),
            (&long, MOST, &long[..64]),
            (&long, MOST_ANTHROPIC, &long),
        ];
        for (name, most, expected) in table {
            let name = sent(name, most);
            assert_eq!(name, expected);
            assert!(is_taken(&name, most));
            assert_eq!(sent(&name, most), name, "what is taken stays as it is");
        }
    }
}
