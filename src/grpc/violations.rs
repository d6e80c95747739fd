//! Why a request is refused before anything is done about it.

use crate::pb::FieldReason;

/// Why a request cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Fields are wrong.
    Invalid(Violations),
    /// The request is valid, but asks for something that this server does not do.
    NotImplemented {
        /// The RPC, e.g. `contextd.v1.TurnService/ExecuteTurn`.
        rpc: &'static str,
        /// Path of the first field that asks for it.
        field: String,
    },
}

/// One wrong field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Path as in the proto, e.g. `input.parts[2].media.media_type`.
    pub field: String,
    /// What kind of mistake it is.
    pub reason: FieldReason,
    /// What is expected, for people.
    pub description: String,
}

/// All that is wrong with a request, up to the reported limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Violations {
    /// In the order they were found.
    pub listed: Vec<Violation>,
    /// How many more there are.
    pub cut: usize,
    /// Text in the list, in bytes.
    bytes: usize,
}

impl Violations {
    /// Most violations that are listed.
    pub const MOST: usize = 25;
    /// Most text that is listed, in bytes: a status travels in headers, and clients take 8 KiB of
    /// them with base64 on top.
    pub const MOST_BYTES: usize = 4 * 1024;

    /// Adds one, or only counts it when the list is full.
    pub fn add(&mut self, violation: Violation) {
        let bytes = self.bytes + violation.field.len() + violation.description.len();
        if self.cut > 0 || self.listed.len() == Self::MOST || bytes > Self::MOST_BYTES {
            self.cut += 1;
        } else {
            self.bytes = bytes;
            self.listed.push(violation);
        }
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.cut == 0
    }
}

impl FromIterator<Violation> for Violations {
    fn from_iter<I: IntoIterator<Item = Violation>>(violations: I) -> Self {
        let mut all = Self::default();
        violations
            .into_iter()
            .for_each(|violation| all.add(violation));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violation(description: &str) -> Violation {
        Violation {
            field: "name".into(),
            reason: FieldReason::Invalid,
            description: description.into(),
        }
    }

    #[test]
    fn at_most_25_violations_are_listed_and_the_rest_counted() {
        let all: Violations = (0..30).map(|_| violation("is wrong")).collect();
        assert_eq!((all.listed.len(), all.cut), (25, 5));
    }

    #[test]
    fn long_violations_shorten_the_list() {
        let all: Violations = (0..6).map(|_| violation(&"x".repeat(1_000))).collect();
        assert_eq!((all.listed.len(), all.cut), (4, 2));
    }

    #[test]
    fn no_violation_is_listed_after_the_first_that_was_cut() {
        let mut all: Violations = (0..5).map(|_| violation(&"x".repeat(1_000))).collect();
        all.add(violation("short"));
        assert_eq!((all.listed.len(), all.cut), (4, 2));
    }

    #[test]
    fn no_violation_gives_an_empty_list() {
        assert!(Violations::default().is_empty());
        assert!(!Violations::from_iter([violation("")]).is_empty());
    }
}
