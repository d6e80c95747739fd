//! Token counts, to and from their proto forms.

use crate::{
    model::{TokenBasis, TokenCount, Usage, UsagePurpose, UsageTotals, event::Estimate},
    pb,
};

use super::{
    field::{Field as _, choices, messages},
    number::signed,
};

choices! {
    // As the proto specifies, an unknown basis is treated like HEURISTIC.
    TokenBasis = TokenBasis {
        Actual, Calibrated, Tokenizer, Heuristic;
        Unspecified => Heuristic
    }
    UsagePurpose = UsagePurpose { Turn, Compaction }
}

messages! {
    Usage = Usage {
        input = input_tokens,
        output = output_tokens,
        reasoning = reasoning_tokens,
        cache_read = cache_read_tokens,
        cache_write = cache_write_tokens,
        provider_tool_calls,
        provider_json = provider_usage_json,
        _ = total_tokens: |usage| signed(usage.input.saturating_add(usage.output)),
    }
    UsageTotals = UsageTotals {
        calls,
        input = input_tokens,
        output = output_tokens,
        reasoning = reasoning_tokens,
        cache_read = cache_read_tokens,
        cache_write = cache_write_tokens,
        _ = total_tokens: |totals| totals.total(),
    }
    TokenCount = TokenCount { tokens, basis, margin, estimator, }
    Estimate = CallEstimate {
        estimated = estimated_tokens,
        actual = actual_tokens,
        basis,
        _ = error_tokens: |it| signed(it.estimated).saturating_sub(signed(it.actual)),
        _ = error_ratio: |it| it.error_ratio(),
    }
}

/// Converts the size of a stored part. All estimators of this version count characters, and none reports a margin for a
/// part.
pub fn size_to_pb(tokens: u32, estimator: &str) -> pb::TokenCount {
    TokenCount { tokens, basis: TokenBasis::Heuristic, margin: 0, estimator: estimator.to_owned() }.to_field()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::arbitrary;

    proptest! {
        #[test]
        fn usage_round_trips_and_its_total_is_filled_in(usage in arbitrary::usage()) {
            let wire: pb::Usage = usage.to_field();
            prop_assert_eq!(i64::from(wire.total_tokens), i64::from(usage.input) + i64::from(usage.output));
            prop_assert_eq!(Usage::from_field("usage", wire), Ok(usage));
        }
    }

    #[test]
    fn an_estimated_count_states_its_error_margin() {
        let check = |estimated, actual, error_tokens, error_ratio| {
            let wire: pb::CallEstimate = Estimate { estimated, actual, basis: TokenBasis::Heuristic }.to_field();
            assert_eq!((wire.error_tokens, wire.error_ratio), (error_tokens, error_ratio));
        };
        check(5_120, 5_115, 5, 5.0 / 5_115.0);
        check(50, 100, -50, -0.5);
        check(7, 0, 7, 0.0);
    }
}
