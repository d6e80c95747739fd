//! Turn limits, to and from their proto form.

use crate::{
    model::{Limits, LimitsOverride},
    pb,
};

use super::{
    DecodeError,
    field::{Field as _, messages},
};

messages! {
    Limits = TurnLimits {
        max_steps,
        max_output_tokens,
        max_total_tokens,
        turn_timeout,
        tool_timeout,
        grace = grace_period via unless_default,
    }
    LimitsOverride = TurnLimits {
        max_steps,
        max_output_tokens,
        max_total_tokens,
        turn_timeout via non_zero,
        tool_timeout via non_zero,
        grace = grace_period via non_zero,
    }
}

/// Reads overrides of limits that were stored or sent; 0 or absent means not set.
pub fn override_from_pb(limits: pb::TurnLimits) -> Result<LimitsOverride, DecodeError> {
    LimitsOverride::from_field("turn limit", limits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{arbitrary, field::unless_default};

    proptest! {
        #[test]
        fn limit_overrides_round_trip(limits in arbitrary::limits()) {
            prop_assert_eq!(override_from_pb(limits.to_field()), Ok(limits));
            let stored: Option<pb::TurnLimits> = unless_default::to_field(&limits);
            prop_assert_eq!(unless_default::from_field("limits", stored), Ok(limits));
        }
    }
}
