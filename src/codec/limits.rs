//! Turn limits, to and from their proto form.

use crate::model::{Limits, LimitsOverride};

use super::field::messages;

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{
        codec::{
            arbitrary,
            field::{round_trip, unless_default},
        },
        pb,
    };

    proptest! {
        #[test]
        fn limit_overrides_round_trip(limits in arbitrary::limits()) {
            prop_assert_eq!(round_trip::<_, pb::TurnLimits>(&limits), Ok(limits));
            let stored: Option<pb::TurnLimits> = unless_default::to_field(&limits);
            prop_assert_eq!(unless_default::from_field("limits", stored), Ok(limits));
        }
    }
}
