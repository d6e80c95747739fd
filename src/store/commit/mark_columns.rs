//! Tool results that are pruned from the context, or restored to it, as parameters of a commit.

use crate::{
    session::mark_rows::{Mark, Marks},
    store::{pipeline::Param, rows::signed},
};

/// All columns of pruned or restored results.
#[derive(Default)]
pub(super) struct MarkColumns<'a> {
    mark: Option<Mark>,
    messages: Vec<&'a str>,
    positions: Vec<i32>,
    placeholder: i32,
    pruned_at: i64,
}

impl<'a> From<Option<Marks<'a>>> for MarkColumns<'a> {
    fn from(marks: Option<Marks<'a>>) -> Self {
        let Some(Marks { places, mark }) = marks else {
            return Self::default();
        };
        let mut columns = Self { mark: Some(mark), ..Self::default() };
        for (message, position) in places {
            columns.messages.push(message.as_str());
            columns.positions.push(i32::try_from(*position).unwrap_or(i32::MAX));
        }
        match mark {
            Mark::Pruned { placeholder } => columns.placeholder = signed(placeholder),
            Mark::Restored { pruned_at } => columns.pruned_at = pruned_at.0,
        }
        columns
    }
}

impl MarkColumns<'_> {
    pub(super) fn values(&self) -> [(&'static str, Param<'_>); 4] {
        [
            ("marked_messages", &self.messages),
            ("marked_positions", &self.positions),
            ("placeholder", &self.placeholder),
            ("pruned_at", &self.pruned_at),
        ]
    }

    /// Whether the named statement has something to write. Returns `None` if the statement does not belong to these
    /// columns.
    pub(super) fn need(&self, statement: &str) -> Option<bool> {
        match statement {
            "prune" => Some(matches!(self.mark, Some(Mark::Pruned { .. }))),
            "past_prune" | "restore" => Some(matches!(self.mark, Some(Mark::Restored { .. }))),
            _ => None,
        }
    }
}
