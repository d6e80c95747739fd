//! Pages of rows with a limit in bytes.

use tokio_postgres::Row;

use super::{Error, row::get};

/// The items of a page, truncated to the byte limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundedPage<T> {
    /// The items that fit.
    pub items: Vec<T>,
    /// Whether more rows exist after these items, on this page or on a later one.
    pub more: bool,
}

impl<T> BoundedPage<T> {
    /// Creates a page from its decoded rows. Their column `page_rows` is the number of rows before truncation.
    pub(super) fn new(items: Vec<T>, rows: &[Row]) -> Result<Self, Error> {
        let page: i64 = rows.first().map_or(Ok(0), |row| get(row, "page_rows"))?;
        let more = usize::try_from(page).is_ok_and(|page| page > items.len());
        Ok(Self { items, more })
    }
}
