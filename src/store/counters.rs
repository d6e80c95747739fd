//! Decodes counters of a session's context.

use tokio_postgres::Row;

use super::{Error, row::get};
use crate::session::counters::TokenCounters;

/// Decodes the columns of `{counter_columns}` in `sql/fragments.sql`.
pub(super) fn counters(row: &Row) -> Result<TokenCounters, Error> {
    let columns = ["ctx_messages", "ctx_overhead", "ctx_tokens", "ctx_parts"];
    of_columns(row, columns)
}

/// Decodes a change of the counters, as stored with a compaction.
pub(super) fn shift(row: &Row) -> Result<TokenCounters, Error> {
    let columns = ["delta_messages", "delta_overhead", "delta_tokens", "delta_parts"];
    of_columns(row, columns)
}

fn of_columns(row: &Row, [messages, overhead, tokens, parts]: [&str; 4]) -> Result<TokenCounters, Error> {
    let corrupt = || Error::Corrupt("a row has an unexpected number of counters".to_owned());
    let tokens: Vec<i64> = get(row, tokens)?;
    let parts: Vec<i32> = get(row, parts)?;
    Ok(TokenCounters {
        messages: get(row, messages)?,
        overhead: get(row, overhead)?,
        tokens: tokens.try_into().map_err(|_| corrupt())?,
        parts: parts.try_into().map_err(|_| corrupt())?,
    })
}
