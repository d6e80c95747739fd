//! Validates model names for a protocol. A caller chooses the name, so it must not change the path
//! or add a query in the request URL.

/// Limit on the length of a name, in bytes.
const MAX_BYTES: usize = 256;

/// Where the requests of a protocol carry the model name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModelNames {
    #[default]
    InBody,
    /// In the path: segments of letters, digits, `.`, `_` and `-`.
    InPath,
}

impl ModelNames {
    /// Whether the protocol accepts a name.
    pub fn accepts(self, name: &str) -> bool {
        let segment =
            |segment: &str| !matches!(segment, "." | "..") && segment.chars().all(|it| self.takes_character(it));
        let has_empty = || name.split('/').any(str::is_empty);
        (1..=MAX_BYTES).contains(&name.len())
            && name.split('/').all(segment)
            && match self {
                Self::InBody => true,
                Self::InPath => !has_empty(),
            }
    }

    /// Describes the names that the protocol accepts, for error messages.
    pub fn rule(self) -> &'static str {
        match self {
            Self::InBody => "a name must not contain control characters, any of ? # % \\, or a segment . or ..",
            Self::InPath => {
                "a name consists of segments of letters, digits, '.', '_' and '-', separated by '/', and no segment may be . or .."
            }
        }
    }

    fn takes_character(self, character: char) -> bool {
        match self {
            Self::InBody => !character.is_control() && !matches!(character, '?' | '#' | '%' | '\\'),
            Self::InPath => character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_model_is_a_name_in_each_protocol() {
        let long = "a".repeat(257);
        let table: [(&str, bool, bool); 18] = [
            ("gpt-5.1", true, true),
            ("tunedModels/my_model-1", true, true),
            ("publishers/google/models/gemini-2.5-pro", true, true),
            ("llama3.1:8b", true, false),
            ("@cf/meta/llama", true, false),
            ("/models/My model.gguf", true, false),
            ("g/../admin/keys?x=", false, false),
            ("g/../admin/keys", false, false),
            ("..", false, false),
            (".", false, false),
            ("a//b", true, false),
            ("a%2fb", false, false),
            ("a#b", false, false),
            ("a\\b", false, false),
            ("a\nb", false, false),
            ("a:countTokens", true, false),
            ("", false, false),
            (&long, false, false),
        ];
        for (name, in_body, in_path) in table {
            assert_eq!(ModelNames::InBody.accepts(name), in_body, "{name}");
            assert_eq!(ModelNames::InPath.accepts(name), in_path, "{name}");
        }
    }
}
