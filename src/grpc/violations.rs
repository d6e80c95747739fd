//! Validation errors: the wrong fields of a request.

use crate::pb::FieldReason;

/// Why a request is rejected before any work is done for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestError {
    /// Fields are invalid.
    Invalid(Violations),
    /// The request is valid, but uses a feature that this server does not implement.
    NotImplemented {
        /// The RPC, e.g. `contextd.v1.TurnService/ExecuteTurn`.
        rpc: &'static str,
        /// Path of the first field that uses it.
        field: String,
    },
}

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Path as in the proto, e.g. `input.parts[2].media.media_type`.
    pub field: String,
    pub reason: FieldReason,
    /// What is expected, for people.
    pub description: String,
}

/// The violations of a request, up to the reported limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Violations {
    /// In the order in which they were found.
    pub listed: Vec<Violation>,
    /// Number of violations that are not listed.
    pub unlisted: usize,
    /// Size in bytes of the texts in the list.
    bytes: usize,
}

impl Violations {
    /// Maximum number of listed violations.
    pub const MAX_LISTED: usize = 25;
    /// Maximum size in bytes of the listed texts. A status travels in headers, of which clients accept 8 KiB,
    /// including the base64 overhead.
    pub const MAX_LISTED_BYTES: usize = 4 * 1024;

    /// Adds a violation. If the list is full, only counts it.
    pub fn add(&mut self, violation: Violation) {
        let bytes = self.bytes + violation.field.len() + violation.description.len();
        if self.unlisted > 0 || self.listed.len() == Self::MAX_LISTED || bytes > Self::MAX_LISTED_BYTES {
            self.unlisted += 1;
        } else {
            self.bytes = bytes;
            self.listed.push(violation);
        }
    }

    /// Whether there is no violation.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.unlisted == 0
    }
}

impl FromIterator<Violation> for Violations {
    fn from_iter<I: IntoIterator<Item = Violation>>(violations: I) -> Self {
        let mut all = Self::default();
        violations.into_iter().for_each(|violation| all.add(violation));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violation(description: &str) -> Violation {
        Violation { field: "name".into(), reason: FieldReason::Invalid, description: description.into() }
    }

    #[test]
    fn at_most_25_violations_are_listed_and_the_rest_counted() {
        let all: Violations = (0..30).map(|_| violation("is wrong")).collect();
        assert_eq!((all.listed.len(), all.unlisted), (25, 5));
    }

    #[test]
    fn long_violations_shorten_the_list() {
        let all: Violations = (0..6).map(|_| violation(&"x".repeat(1_000))).collect();
        assert_eq!((all.listed.len(), all.unlisted), (4, 2));
    }

    #[test]
    fn no_violation_is_listed_after_the_first_that_was_cut() {
        let mut all: Violations = (0..5).map(|_| violation(&"x".repeat(1_000))).collect();
        all.add(violation("short"));
        assert_eq!((all.listed.len(), all.unlisted), (4, 2));
    }

    #[test]
    fn no_violation_gives_an_empty_list() {
        assert!(Violations::default().is_empty());
        assert!(!Violations::from_iter([violation("")]).is_empty());
    }
}
