//! Bounds of a turn.

use super::{Findings, Path, duration, number};
use crate::{model::LimitsOverride, pb};

/// Most steps of a turn.
const MOST_STEPS: i32 = 1_000;

/// Reads the bounds of a turn; 0 and absent mean that a bound is not set here.
pub(super) fn read(
    at: Path<'_>,
    limits: Option<pb::TurnLimits>,
    found: &mut Findings,
) -> LimitsOverride {
    let pb::TurnLimits {
        max_steps,
        max_output_tokens,
        max_total_tokens,
        turn_timeout,
        tool_timeout,
        grace_period,
    } = limits.unwrap_or_default();
    number::within(at.field("max_steps"), &max_steps, &(0..=MOST_STEPS), found);
    LimitsOverride {
        max_steps: u32::try_from(max_steps).ok().filter(|&steps| steps > 0),
        max_output_tokens: number::count(at.field("max_output_tokens"), max_output_tokens, found),
        max_total_tokens: number::large_count(
            at.field("max_total_tokens"),
            max_total_tokens,
            found,
        ),
        turn_timeout: duration::up_to(
            7 * duration::DAY,
            at.field("turn_timeout"),
            turn_timeout,
            found,
        ),
        tool_timeout: duration::up_to(duration::DAY, at.field("tool_timeout"), tool_timeout, found),
        grace: duration::up_to(
            duration::HOUR,
            at.field("grace_period"),
            grace_period,
            found,
        ),
    }
}
