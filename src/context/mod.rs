//! The thinking of contextd: pure functions from model to model, without IO, clock or async.

pub mod calls;
pub mod coalesce;
pub mod estimate;
pub mod generation;
pub mod prompt;
pub mod sanitize;
pub mod tokens;
pub mod truncate;

#[cfg(test)]
pub(crate) mod testing;
