//! The calls in messages that a host appends, as parameters of their commit.

use crate::{
    session::{
        import_rows::{ImportRows, ImportedCall},
        mark_rows::PartPosition,
    },
    store::pipeline::Param,
};

/// All columns of imported calls.
#[derive(Default)]
pub(super) struct ImportColumns<'a> {
    calls: Vec<&'a str>,
    names: Vec<&'a str>,
    made: Places<'a>,
    results: Places<'a>,
    answered: Vec<&'a str>,
    answers: Places<'a>,
}

impl<'a> From<Option<ImportRows<'a>>> for ImportColumns<'a> {
    fn from(imported: Option<ImportRows<'a>>) -> Self {
        let mut columns = Self::default();
        let Some(ImportRows { calls, answers, .. }) = imported else {
            return columns;
        };
        for ImportedCall { id, name, made, answered } in calls {
            columns.calls.push(id.as_str());
            columns.names.push(name);
            columns.made.push(Some(made));
            columns.results.push(answered.as_ref());
        }
        for (id, answered) in answers {
            columns.answered.push(id.as_str());
            columns.answers.push(Some(answered));
        }
        columns
    }
}

impl ImportColumns<'_> {
    pub(super) fn values(&self) -> [(&'static str, Param<'_>); 9] {
        [
            ("imported_calls", &self.calls),
            ("imported_names", &self.names),
            ("imported_messages", &self.made.messages),
            ("imported_parts", &self.made.positions),
            ("imported_results", &self.results.messages),
            ("imported_positions", &self.results.positions),
            ("answered_calls", &self.answered),
            ("answered_messages", &self.answers.messages),
            ("answered_positions", &self.answers.positions),
        ]
    }

    /// Whether the named statement has something to write. Returns `None` if the statement does not belong to these
    /// columns.
    pub(super) fn need(&self, statement: &str) -> Option<bool> {
        match statement {
            "import_calls" => Some(!self.calls.is_empty()),
            "import_answers" => Some(!self.answered.is_empty()),
            _ => None,
        }
    }
}

/// Places as columns. An empty message id means no place.
#[derive(Default)]
struct Places<'a> {
    messages: Vec<&'a str>,
    positions: Vec<i32>,
}

impl<'a> Places<'a> {
    fn push(&mut self, place: Option<&'a PartPosition>) {
        let (message, position) = place.map_or(("", 0), |(message, position)| (message.as_str(), *position));
        self.messages.push(message);
        self.positions.push(i32::try_from(position).unwrap_or(i32::MAX));
    }
}
