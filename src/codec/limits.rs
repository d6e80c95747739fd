//! Turn limits, to and from their proto form.

use crate::{
    model::{Limits, LimitsOverride},
    pb,
};

use super::{
    DecodeError,
    number::{non_zero, or_zero},
    time,
};

/// Converts the limits in effect for the wire.
pub fn to_pb(limits: &Limits) -> pb::TurnLimits {
    let Limits {
        max_steps,
        max_output_tokens,
        max_total_tokens,
        turn_timeout,
        tool_timeout,
        grace,
    } = *limits;
    override_to_pb(&LimitsOverride {
        max_steps: Some(max_steps),
        max_output_tokens,
        max_total_tokens,
        turn_timeout: Some(turn_timeout),
        tool_timeout: Some(tool_timeout),
        grace: (!grace.is_zero()).then_some(grace),
    })
}

/// Converts overrides of limits; 0 or absent means not set.
pub fn override_to_pb(limits: &LimitsOverride) -> pb::TurnLimits {
    let LimitsOverride {
        max_steps,
        max_output_tokens,
        max_total_tokens,
        turn_timeout,
        tool_timeout,
        grace,
    } = *limits;
    pb::TurnLimits {
        max_steps: or_zero(max_steps),
        max_output_tokens: or_zero(max_output_tokens),
        max_total_tokens: max_total_tokens.unwrap_or(0),
        turn_timeout: turn_timeout.map(time::duration_to_pb),
        tool_timeout: tool_timeout.map(time::duration_to_pb),
        grace_period: grace.map(time::duration_to_pb),
    }
}

/// Reads stored overrides of limits.
pub fn override_from_pb(limits: pb::TurnLimits) -> Result<LimitsOverride, DecodeError> {
    let pb::TurnLimits {
        max_steps,
        max_output_tokens,
        max_total_tokens,
        turn_timeout,
        tool_timeout,
        grace_period,
    } = limits;
    Ok(LimitsOverride {
        max_steps: non_zero("turn limit", max_steps)?,
        max_output_tokens: non_zero("turn limit", max_output_tokens)?,
        max_total_tokens: Some(max_total_tokens).filter(|tokens| *tokens != 0),
        turn_timeout: time::non_zero_from_pb(turn_timeout)?,
        tool_timeout: time::non_zero_from_pb(tool_timeout)?,
        grace: time::non_zero_from_pb(grace_period)?,
    })
}

/// Converts overrides for storage. Returns `None` if none is set.
pub(crate) fn override_to_stored(limits: &LimitsOverride) -> Option<pb::TurnLimits> {
    (*limits != LimitsOverride::default()).then(|| override_to_pb(limits))
}

/// Reads stored overrides; `None` means that none is set.
pub(crate) fn override_from_stored(
    limits: Option<pb::TurnLimits>,
) -> Result<LimitsOverride, DecodeError> {
    limits
        .map(override_from_pb)
        .transpose()
        .map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::arbitrary;

    proptest! {
        #[test]
        fn limit_overrides_round_trip(limits in arbitrary::limits()) {
            prop_assert_eq!(override_from_pb(override_to_pb(&limits)), Ok(limits));
            prop_assert_eq!(override_from_stored(override_to_stored(&limits)), Ok(limits));
        }
    }
}
