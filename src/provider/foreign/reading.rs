//! What was read of foreign messages so far.

use std::collections::BTreeSet;

use super::{
    FlawKind, Foreign, ForeignFlaw, ForeignMessage, ForeignPart, order::results_follow_calls,
};
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
    /// Where halves of characters were replaced.
    pub(super) replaced: BTreeSet<String>,
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

    /// The messages, results after their calls, and for each of their parts whether anything in it was
    /// replaced.
    pub(super) fn finish(self) -> Foreign {
        let Self {
            mut foreign,
            replaced,
            ..
        } = self;
        let parts = foreign.messages.iter_mut();
        for part in parts.flat_map(|message| &mut message.parts) {
            let first = replaced.range(part.at.clone()..).next();
            part.sanitized = first.is_some_and(|at| at.starts_with(&part.at));
        }
        foreign.messages = results_follow_calls(foreign.messages);
        foreign
    }

    /// An id for a call that has none.
    pub(in crate::provider) fn make_id(&mut self) -> String {
        self.made += 1;
        format!("{}{}", self.prefix, self.made)
    }
}
