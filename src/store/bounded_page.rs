//! Pages of rows that are cut where they would take up too many bytes.

use tokio_postgres::Row;

use super::{Error, row::get};

/// The beginning of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    /// As many as there was room for.
    pub items: Vec<T>,
    /// More rows belong to the page, or follow it.
    pub more: bool,
}

impl<T> Listed<T> {
    /// The items of these rows, whose column `page_rows` says how many the page would have had.
    pub(super) fn new(items: Vec<T>, rows: &[Row]) -> Result<Self, Error> {
        let page: i64 = rows.first().map_or(Ok(0), |row| get(row, "page_rows"))?;
        let more = usize::try_from(page).is_ok_and(|page| page > items.len());
        Ok(Self { items, more })
    }

    /// Leaves at most so many.
    pub fn truncate(&mut self, most: usize) {
        self.more |= self.items.len() > most;
        self.items.truncate(most);
    }
}
