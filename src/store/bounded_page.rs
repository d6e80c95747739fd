//! Pages of rows that are truncated at a limit of bytes.

use tokio_postgres::Row;

use super::{Error, row::get};

/// The beginning of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundedPage<T> {
    /// The items that fit.
    pub items: Vec<T>,
    /// Whether more rows belong to the page or follow it.
    pub more: bool,
}

impl<T> BoundedPage<T> {
    /// Creates it from decoded rows, whose column `page_rows` has the number of rows of the whole page.
    pub(super) fn new(items: Vec<T>, rows: &[Row]) -> Result<Self, Error> {
        let page: i64 = rows.first().map_or(Ok(0), |row| get(row, "page_rows"))?;
        let more = usize::try_from(page).is_ok_and(|page| page > items.len());
        Ok(Self { items, more })
    }
}
