//! The statements that a commit runs, and the values of their parameters.

use tokio_postgres::types::ToSql;

use super::function::{Arguments, Function};
use crate::store::{Error, pipeline::Param};

/// The statements to run, and the values of their named parameters.
#[derive(Default)]
pub(super) struct Values<'a> {
    wanted: Vec<&'static str>,
    named: Vec<(&'static str, Box<dyn ToSql + Sync + Send + 'a>)>,
}

impl<'a> Values<'a> {
    /// Adds statements to run.
    pub(super) fn run(&mut self, statements: &[&'static str]) {
        self.wanted.extend(statements);
    }

    /// Sets the value of a parameter.
    pub(super) fn set(&mut self, name: &'static str, value: impl ToSql + Sync + Send + 'a) {
        self.named.push((name, Box::new(value)));
    }

    /// Adds the statements that write these rows, if there are any. Each column of the rows is a parameter.
    pub(super) fn rows<'v, R>(&'v mut self, statements: &[&'static str], rows: &'a [R]) -> Columns<'v, 'a, R> {
        if !rows.is_empty() {
            self.run(statements);
        }
        Columns { values: self, rows }
    }

    /// The arguments of the function that writes the commit.
    pub(super) fn arguments(&self, function: &'static Function) -> Result<Arguments<'_>, Error> {
        let named: Vec<_> = self.named.iter().map(|(name, value)| (*name, &**value as Param<'_>)).collect();
        Ok(function.arguments(&named, |statement| self.wanted.contains(&statement))?)
    }
}

/// Rows whose columns are parameters, one array each.
pub(super) struct Columns<'v, 'a, R> {
    values: &'v mut Values<'a>,
    rows: &'a [R],
}

impl<'a, R> Columns<'_, 'a, R> {
    /// Sets a parameter to a column of the rows.
    pub(super) fn column<V: ToSql + Sync + Send + 'a>(
        &mut self,
        name: &'static str,
        of: impl Fn(&'a R) -> V,
    ) -> &mut Self {
        let column: Vec<V> = self.rows.iter().map(of).collect();
        self.values.set(name, column);
        self
    }
}
