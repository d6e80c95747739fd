//! The limits of request fields. `build/limits.rs` generates the checks from the option `limit` in `proto/`.

mod check;
mod path;

use std::fmt;

use crate::FieldReason;

pub use self::path::Path;

/// Collects the invalid fields of a request.
pub trait Report {
    /// Reports an invalid field, with a description of what is expected.
    fn invalid(&mut self, at: Path<'_>, reason: FieldReason, description: String);

    /// Reports a required field that is not set.
    fn required(&mut self, at: Path<'_>) {
        self.invalid(at, FieldReason::Required, "must be set".to_owned());
    }
}

/// A message that a request can contain.
pub trait Limited {
    /// Reports all fields that exceed their limits. `at` is the path of this message.
    fn check(&self, at: Path<'_>, found: &mut dyn Report);

    /// Clears the fields that only the server sets.
    fn clear_output_only(&mut self);
}

/// The limit of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLimit {
    /// Whether the text must not be empty.
    pub required: bool,
    /// The maximum length.
    pub size: Size,
    /// The allowed characters.
    pub form: Form,
}

impl TextLimit {
    /// Whether the text is within the maximum length.
    pub fn fits(&self, text: &str) -> bool {
        match self.size {
            Size::Characters(most) => text.chars().nth(most).is_none(),
            Size::Bytes(most) => text.len() <= most,
            Size::Request => true,
        }
    }

    /// Reports a text that is empty but required, too long, or has characters that are not allowed.
    pub fn check(&self, at: Path<'_>, text: &str, found: &mut dyn Report) {
        check::text(at, text, self, found);
    }
}

/// The maximum length of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// In Unicode scalar values.
    Characters(usize),
    /// In bytes of UTF-8.
    Bytes(usize),
    /// Bounded only by the size of the request.
    Request,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Characters(most) => write!(f, "{most} characters"),
            Self::Bytes(most) => write!(f, "{most} bytes"),
            Self::Request => f.write_str("the size of a request"),
        }
    }
}

/// The allowed characters of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// All characters.
    Any,
    /// All except control characters.
    Line,
    /// The characters of ids.
    Id,
    /// The characters of names that models use.
    Name,
    /// The characters of ids of tenants.
    Tenant,
}

impl Form {
    /// Whether all characters of the text are allowed.
    fn allows(self, text: &str) -> bool {
        let only = |others: &[u8], is_letter: fn(&u8) -> bool| {
            text.bytes().all(|byte| is_letter(&byte) || byte.is_ascii_digit() || others.contains(&byte))
        };
        match self {
            Self::Any => true,
            Self::Line => !text.contains(char::is_control),
            Self::Id => only(b"._:-", u8::is_ascii_alphabetic),
            Self::Name => only(b"_-", u8::is_ascii_alphabetic),
            Self::Tenant => only(b"._-", u8::is_ascii_lowercase),
        }
    }

    /// What is expected of a text that has other characters.
    fn expected(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Line => "must not contain control characters",
            Self::Id => "must contain only the characters [A-Za-z0-9._:-]",
            Self::Name => "must contain only the characters [A-Za-z0-9_-]",
            Self::Tenant => "must contain only the characters [a-z0-9._-]",
        }
    }
}

include!(concat!(env!("OUT_DIR"), "/limits.rs"));

#[cfg(test)]
mod tests;
