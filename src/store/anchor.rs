//! The last measured model call of a session, as columns of the session row.

use tokio_postgres::Row;

use super::{Error, pipeline::Param, row::get, rows::signed};
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
        basis: basis(get(row, "anchor_basis")?)?,
    }))
}

/// The stored number of a token basis.
fn basis_number(basis: TokenBasis) -> i16 {
    match basis {
        TokenBasis::Actual => 1,
        TokenBasis::Calibrated => 2,
        TokenBasis::Tokenizer => 3,
        TokenBasis::Heuristic => 4,
    }
}

fn basis(number: Option<i16>) -> Result<TokenBasis, Error> {
    match number {
        Some(1) => Ok(TokenBasis::Actual),
        Some(2) => Ok(TokenBasis::Calibrated),
        Some(3) => Ok(TokenBasis::Tokenizer),
        Some(4) | None => Ok(TokenBasis::Heuristic),
        Some(other) => Err(Error::Corrupt(format!("unknown token basis {other}"))),
    }
}

/// The last measured call as columns of the session row.
#[derive(Default)]
pub(super) struct AnchorColumns<'a> {
    model: Option<&'a str>,
    version: Option<i64>,
    input: Option<i32>,
    output: Option<i32>,
    tokens: Option<i64>,
    cached: Option<i32>,
    estimated: Option<i32>,
    basis: Option<i16>,
}

impl<'a> From<Option<&'a Anchor>> for AnchorColumns<'a> {
    fn from(anchor: Option<&'a Anchor>) -> Self {
        let Some(Anchor { model, version, input, output, estimated_at_anchor, cached, estimated, basis }) = anchor
        else {
            return Self::default();
        };
        Self {
            model: Some(model),
            version: Some(*version),
            input: Some(signed(*input)),
            output: Some(signed(*output)),
            tokens: Some(*estimated_at_anchor),
            cached: Some(signed(*cached)),
            estimated: Some(signed(*estimated)),
            basis: Some(basis_number(*basis)),
        }
    }
}

impl AnchorColumns<'_> {
    pub(super) fn values(&self) -> [(&'static str, Param<'_>); 8] {
        [
            ("anchor_model", &self.model),
            ("anchor_version", &self.version),
            ("anchor_input", &self.input),
            ("anchor_output", &self.output),
            ("anchor_tokens", &self.tokens),
            ("anchor_cached", &self.cached),
            ("anchor_estimated", &self.estimated),
            ("anchor_basis", &self.basis),
        ]
    }
}
