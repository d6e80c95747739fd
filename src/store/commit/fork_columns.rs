//! The data that a fork receives from its source, as parameters of a commit.

use crate::{session::fork_rows::Forked, store::pipeline::Param};

/// All columns of a fork.
#[derive(Default)]
pub(super) struct ForkColumns<'a> {
    pub(super) is_fork: bool,
    source: Option<&'a str>,
    at: Option<i64>,
    copies: bool,
    after: i64,
    up_to: i64,
    pub(super) opens: bool,
    /// Whether the fork is claimed but not complete.
    is_hidden: bool,
}

impl<'a> From<Option<Forked<'a>>> for ForkColumns<'a> {
    fn from(forked: Option<Forked<'a>>) -> Self {
        let Some(forked) = forked else {
            return Self::default();
        };
        let (after, up_to) = forked.copies.map_or((0, 0), |(after, up_to)| (after.0, up_to.0));
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

    /// Whether the named statement has something to write. Returns `None` if the statement does not belong to these
    /// columns.
    pub(super) fn need(&self, statement: &str) -> Option<bool> {
        match statement {
            "copy_messages" | "copy_parts" | "copy_prunes" | "copy_blobs" | "copy_calls" => Some(self.copies),
            "copy_compactions" => Some(self.opens),
            _ => None,
        }
    }
}
