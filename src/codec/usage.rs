//! Token counts, to and from their proto forms.

use crate::{
    model::{TokenBasis, TokenCount, Usage, UsagePurpose, UsageTotals, event::Estimate},
    pb,
};

use super::{
    DecodeError,
    number::{known, signed, unsigned},
};

/// Converts the usage of one call.
pub fn to_pb(usage: &Usage) -> pb::Usage {
    let Usage {
        input,
        output,
        reasoning,
        cache_read,
        cache_write,
        provider_tool_calls,
        provider_json,
    } = usage;
    pb::Usage {
        input_tokens: signed(*input),
        output_tokens: signed(*output),
        reasoning_tokens: signed(*reasoning),
        cache_read_tokens: signed(*cache_read),
        cache_write_tokens: signed(*cache_write),
        total_tokens: signed(input.saturating_add(*output)),
        provider_usage_json: provider_json.clone(),
        provider_tool_calls: signed(*provider_tool_calls),
    }
}

/// Reads the stored usage of one call; the stored total is ignored.
pub fn from_pb(usage: pb::Usage) -> Result<Usage, DecodeError> {
    let pb::Usage {
        input_tokens,
        output_tokens,
        reasoning_tokens,
        cache_read_tokens,
        cache_write_tokens,
        total_tokens: _,
        provider_usage_json,
        provider_tool_calls,
    } = usage;
    Ok(Usage {
        input: unsigned("usage", input_tokens)?,
        output: unsigned("usage", output_tokens)?,
        reasoning: unsigned("usage", reasoning_tokens)?,
        cache_read: unsigned("usage", cache_read_tokens)?,
        cache_write: unsigned("usage", cache_write_tokens)?,
        provider_tool_calls: unsigned("usage", provider_tool_calls)?,
        provider_json: provider_usage_json,
    })
}

/// Converts totals over calls.
pub fn totals_to_pb(totals: &UsageTotals) -> pb::UsageTotals {
    let UsageTotals {
        calls,
        input,
        output,
        reasoning,
        cache_read,
        cache_write,
    } = *totals;
    pb::UsageTotals {
        calls,
        input_tokens: input,
        output_tokens: output,
        reasoning_tokens: reasoning,
        cache_read_tokens: cache_read,
        cache_write_tokens: cache_write,
        total_tokens: totals.total(),
    }
}

/// Reads stored totals.
pub fn totals_from_pb(totals: pb::UsageTotals) -> UsageTotals {
    let pb::UsageTotals {
        calls,
        input_tokens,
        output_tokens,
        reasoning_tokens,
        cache_read_tokens,
        cache_write_tokens,
        total_tokens: _,
    } = totals;
    UsageTotals {
        calls,
        input: input_tokens,
        output: output_tokens,
        reasoning: reasoning_tokens,
        cache_read: cache_read_tokens,
        cache_write: cache_write_tokens,
    }
}

/// Converts an estimated size.
pub fn count_to_pb(count: &TokenCount) -> pb::TokenCount {
    let TokenCount {
        tokens,
        basis,
        margin,
        estimator,
    } = count;
    pb::TokenCount {
        tokens: signed(*tokens),
        basis: basis_to_pb(*basis).into(),
        margin: signed(*margin),
        estimator: estimator.clone(),
    }
}

/// Converts the size of a stored part. All estimators of this version count characters, and none reports a margin for a
/// part.
pub fn size_to_pb(tokens: u32, estimator: &str) -> pb::TokenCount {
    count_to_pb(&TokenCount {
        tokens,
        basis: TokenBasis::Heuristic,
        margin: 0,
        estimator: estimator.to_owned(),
    })
}

/// Converts an estimate and the usage that was reported for it.
pub fn estimate_to_pb(estimate: &Estimate) -> pb::CallEstimate {
    let Estimate {
        estimated,
        actual,
        basis,
    } = *estimate;
    pb::CallEstimate {
        estimated_tokens: signed(estimated),
        actual_tokens: signed(actual),
        error_tokens: signed(estimated).saturating_sub(signed(actual)),
        error_ratio: estimate.error_ratio(),
        basis: basis_to_pb(basis).into(),
    }
}

/// Converts the basis of a token count.
pub fn basis_to_pb(basis: TokenBasis) -> pb::TokenBasis {
    match basis {
        TokenBasis::Actual => pb::TokenBasis::Actual,
        TokenBasis::Calibrated => pb::TokenBasis::Calibrated,
        TokenBasis::Tokenizer => pb::TokenBasis::Tokenizer,
        TokenBasis::Heuristic => pb::TokenBasis::Heuristic,
    }
}

/// Reads a stored estimated size.
pub fn count_from_pb(count: pb::TokenCount) -> Result<TokenCount, DecodeError> {
    let pb::TokenCount {
        tokens,
        basis,
        margin,
        estimator,
    } = count;
    Ok(TokenCount {
        tokens: unsigned("size", tokens)?,
        basis: basis_from_pb(known("token basis", basis)?),
        margin: unsigned("size", margin)?,
        estimator,
    })
}

/// Reads a stored estimate.
pub fn estimate_from_pb(estimate: pb::CallEstimate) -> Result<Estimate, DecodeError> {
    let pb::CallEstimate {
        estimated_tokens,
        actual_tokens,
        error_tokens: _,
        error_ratio: _,
        basis,
    } = estimate;
    Ok(Estimate {
        estimated: unsigned("estimate", estimated_tokens)?,
        actual: unsigned("estimate", actual_tokens)?,
        basis: basis_from_pb(known("token basis", basis)?),
    })
}

/// As the proto specifies, an unknown basis is treated like HEURISTIC.
fn basis_from_pb(basis: pb::TokenBasis) -> TokenBasis {
    match basis {
        pb::TokenBasis::Actual => TokenBasis::Actual,
        pb::TokenBasis::Calibrated => TokenBasis::Calibrated,
        pb::TokenBasis::Tokenizer => TokenBasis::Tokenizer,
        pb::TokenBasis::Heuristic | pb::TokenBasis::Unspecified => TokenBasis::Heuristic,
    }
}

/// Converts the purpose of a call.
pub fn purpose_to_pb(purpose: UsagePurpose) -> pb::UsagePurpose {
    match purpose {
        UsagePurpose::Turn => pb::UsagePurpose::Turn,
        UsagePurpose::Compaction => pb::UsagePurpose::Compaction,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::arbitrary;

    proptest! {
        #[test]
        fn usage_round_trips_and_its_total_is_filled_in(usage in arbitrary::usage()) {
            let wire = to_pb(&usage);
            prop_assert_eq!(i64::from(wire.total_tokens), i64::from(usage.input) + i64::from(usage.output));
            prop_assert_eq!(from_pb(wire), Ok(usage));
        }
    }

    #[test]
    fn an_estimated_count_states_its_error_margin() {
        let check = |estimated, actual, error_tokens, error_ratio| {
            let wire = estimate_to_pb(&Estimate {
                estimated,
                actual,
                basis: TokenBasis::Heuristic,
            });
            assert_eq!(
                (wire.error_tokens, wire.error_ratio),
                (error_tokens, error_ratio)
            );
        };
        check(5_120, 5_115, 5, 5.0 / 5_115.0);
        check(50, 100, -50, -0.5);
        check(7, 0, 7, 0.0);
    }
}
