//! Decodes the limits of a turn.

use super::{Findings, Path, duration, number};
use crate::{codec, model::LimitsOverride, pb};

/// Maximum of `max_steps`.
const MAX_STEPS: i32 = 1_000;

/// Decodes the limits of a turn. 0 and absent both mean unset.
pub(super) fn read(
    at: Path<'_>,
    limits: Option<pb::TurnLimits>,
    found: &mut Findings,
) -> LimitsOverride {
    let limits = limits.unwrap_or_default();
    check(at, &limits, found);
    found.converted(at, codec::limits::override_from_pb(limits))
}

/// Checks the limits of a turn.
pub(super) fn check(at: Path<'_>, limits: &pb::TurnLimits, found: &mut Findings) {
    let pb::TurnLimits {
        max_steps,
        max_output_tokens,
        max_total_tokens,
        turn_timeout,
        tool_timeout,
        grace_period,
    } = limits;
    number::within(at.field("max_steps"), max_steps, &(0..=MAX_STEPS), found);
    number::count(at.field("max_output_tokens"), *max_output_tokens, found);
    number::large_count(at.field("max_total_tokens"), *max_total_tokens, found);
    for (field, longest, time) in [
        ("turn_timeout", 7 * duration::DAY, turn_timeout),
        ("tool_timeout", duration::DAY, tool_timeout),
        ("grace_period", duration::HOUR, grace_period),
    ] {
        duration::up_to(longest, at.field(field), *time, found);
    }
}
