//! The state of reading messages in another API's format.

use std::collections::BTreeSet;

use super::{FlawKind, ForeignConversation, ForeignFlaw, ForeignMessage, ForeignPart, order::results_follow_calls};
use crate::model::Role;

/// Limit on the defects that are noted, far more than are reported.
const MAX_FLAWS: usize = 1_000;

/// The state of one read.
#[derive(Debug)]
pub(crate) struct Importer<'a> {
    pub(super) foreign: ForeignConversation,
    /// Prefix of generated call ids.
    pub(super) prefix: &'a str,
    /// Number of generated call ids.
    pub(super) made: usize,
    /// Paths of the strings in which unpaired surrogates were replaced.
    pub(super) replaced: BTreeSet<String>,
}

impl Importer<'_> {
    /// Notes a defect.
    pub(crate) fn note(&mut self, at: String, kind: FlawKind, why: impl Into<String>) {
        if self.foreign.flaws.len() < MAX_FLAWS {
            self.foreign.flaws.push(ForeignFlaw { at, kind, why: why.into() });
        }
    }

    /// Adds a message unless it is empty: services write empty responses and do not need them back.
    pub(crate) fn add(&mut self, at: &str, role: Role, parts: Vec<ForeignPart>) {
        if !parts.is_empty() {
            self.foreign.messages.push(ForeignMessage { at: at.to_owned(), role, parts });
        }
    }

    /// Returns the messages, with results moved after their calls and each part marked if anything
    /// in it was replaced.
    pub(super) fn finish(self) -> ForeignConversation {
        let Self { mut foreign, replaced, .. } = self;
        let parts = foreign.messages.iter_mut();
        for part in parts.flat_map(|message| &mut message.parts) {
            let first = replaced.range(part.at.clone()..).next();
            part.sanitized = first.is_some_and(|at| at.starts_with(&part.at));
        }
        foreign.messages = results_follow_calls(foreign.messages);
        foreign
    }

    /// Generates an id for a call that has none.
    pub(crate) fn make_id(&mut self) -> String {
        self.made += 1;
        format!("{}{}", self.prefix, self.made)
    }
}
