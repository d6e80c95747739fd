//! What a fork gets from its source, as parameters of its commit.

use crate::{session::fork_rows::Forked, store::pipeline::Param};

/// All columns of it.
#[derive(Default)]
pub(super) struct ForkColumns<'a> {
    /// The session is a fork.
    pub(super) is_fork: bool,
    source: Option<&'a str>,
    at: Option<i64>,
    copies: bool,
    after: i64,
    up_to: i64,
    pub(super) opens: bool,
    /// It is claimed, and not complete.
    is_hidden: bool,
}

impl<'a> From<Option<Forked<'a>>> for ForkColumns<'a> {
    fn from(forked: Option<Forked<'a>>) -> Self {
        let Some(forked) = forked else {
            return Self::default();
        };
        let (after, up_to) = forked
            .copies
            .map_or((0, 0), |(after, up_to)| (after.0, up_to.0));
        Self {
            is_fork: true,
            source: Some(forked.source.as_str()),
            at: Some(forked.at.0),
            copies: forked.copies.is_some(),
            after,
            up_to,
            opens: forked.opens,
            is_hidden: !forked.opens,
        }
    }
}

impl ForkColumns<'_> {
    pub(super) fn values(&self) -> [(&'static str, Param<'_>); 5] {
        [
            ("source", &self.source),
            ("at", &self.at),
            ("copied_after", &self.after),
            ("copied_up_to", &self.up_to),
            ("is_hidden", &self.is_hidden),
        ]
    }

    /// Whether a statement of that name has something to write. `None`: it is another one's.
    pub(super) fn need(&self, statement: &str) -> Option<bool> {
        match statement {
            "store::commit::copy_messages"
            | "store::commit::copy_parts"
            | "store::commit::copy_prunes"
            | "store::commit::copy_blobs"
            | "store::commit::copy_calls" => Some(self.copies),
            "store::commit::copy_compactions" => Some(self.opens),
            _ => None,
        }
    }
}
