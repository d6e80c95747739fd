//! The last measured model call of a session, as columns of the session row.

use tokio_postgres::Row;

use super::{Error, number::Number as _, row::get};
use crate::model::{Anchor, TokenBasis};

/// Decodes the last measured call. Returns `None` if there was none, or if an older version of contextd measured it
/// without recording the model.
pub(super) fn anchor(row: &Row) -> Result<Option<Anchor>, Error> {
    let Some(model) = get::<Option<String>>(row, "anchor_model")? else {
        return Ok(None);
    };
    let Some(version) = get::<Option<i64>>(row, "anchor_version")? else {
        return Ok(None);
    };
    let Some(estimated_at_anchor) = get::<Option<i64>>(row, "anchor_tokens")? else {
        return Ok(None);
    };
    let number = |column| {
        Ok::<_, Error>(get::<Option<i32>>(row, column)?.and_then(|n| u32::try_from(n).ok()).unwrap_or_default())
    };
    Ok(Some(Anchor {
        model,
        version,
        input: number("anchor_input")?,
        output: number("anchor_output")?,
        estimated_at_anchor,
        cached: number("anchor_cached")?,
        estimated: number("anchor_estimated")?,
        basis: get::<Option<i16>>(row, "anchor_basis")?.map_or(Ok(TokenBasis::Heuristic), TokenBasis::of_number)?,
    }))
}
