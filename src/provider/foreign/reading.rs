//! What was read of foreign messages so far.

use super::{FlawKind, Foreign, ForeignFlaw, ForeignMessage, ForeignPart};
use crate::model::Role;

/// Flaws that are noted; far more than are reported.
const MOST_FLAWS: usize = 1_000;

/// What was read so far.
#[derive(Debug)]
pub(in crate::provider) struct Reading<'a> {
    pub(super) foreign: Foreign,
    /// What ids begin with that are made here.
    pub(super) prefix: &'a str,
    /// How many were made.
    pub(super) made: usize,
}

impl Reading<'_> {
    /// Notes something wrong.
    pub(in crate::provider) fn note(&mut self, at: String, kind: FlawKind, why: impl Into<String>) {
        if self.foreign.flaws.len() < MOST_FLAWS {
            self.foreign.flaws.push(ForeignFlaw {
                at,
                kind,
                why: why.into(),
            });
        }
    }

    /// Adds a message, unless nothing is in it: services write empty answers, and need none back.
    pub(in crate::provider) fn add(&mut self, at: &str, role: Role, parts: Vec<ForeignPart>) {
        if !parts.is_empty() {
            self.foreign.messages.push(ForeignMessage {
                at: at.to_owned(),
                role,
                parts,
            });
        }
    }

    /// An id for a call that has none.
    pub(in crate::provider) fn make_id(&mut self) -> String {
        self.made += 1;
        format!("{}{}", self.prefix, self.made)
    }
}
