//! The counters of a session's context, and their columns.

use tokio_postgres::Row;

use super::{Error, pipeline::Param, row::get};
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

/// The counters as columns of the session row.
pub(super) struct CounterColumns<'a> {
    messages: i32,
    overhead: i64,
    tokens: &'a [i64],
    parts: &'a [i32],
}

impl<'a> From<&'a TokenCounters> for CounterColumns<'a> {
    fn from(counters: &'a TokenCounters) -> Self {
        Self {
            messages: counters.messages,
            overhead: counters.overhead,
            tokens: &counters.tokens,
            parts: &counters.parts,
        }
    }
}

impl CounterColumns<'_> {
    pub(super) fn values(&self) -> [(&'static str, Param<'_>); 4] {
        [
            ("ctx_messages", &self.messages),
            ("ctx_overhead", &self.overhead),
            ("ctx_tokens", &self.tokens),
            ("ctx_parts", &self.parts),
        ]
    }
}
