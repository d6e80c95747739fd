//! The error of reading stored bytes.

use std::fmt;

/// Stored bytes or columns that cannot be read: they are damaged, or a newer version wrote them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a stored {what} cannot be read: {why}")]
pub struct DecodeError {
    what: &'static str,
    why: String,
}

impl DecodeError {
    /// Creates an error that names what was read and the reason.
    pub fn new(what: &'static str, why: impl fmt::Display) -> Self {
        Self { what, why: why.to_string() }
    }

    /// The name of what was read.
    pub fn what(&self) -> &'static str {
        self.what
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codec_error_names_the_field_and_the_cause() {
        let error = DecodeError::new("part", "its kind is \"hologram\"");
        assert_eq!(error.to_string(), "a stored part cannot be read: its kind is \"hologram\"");
    }
}
