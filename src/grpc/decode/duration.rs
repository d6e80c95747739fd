//! Durations.

use std::{ops::RangeInclusive, time::Duration};

use super::{Findings, Path};
use crate::pb::FieldReason;

/// One day.
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// One hour.
pub(super) const HOUR: Duration = Duration::from_secs(60 * 60);
/// Longest duration that protobuf knows, about 10,000 years.
const LONGEST: Duration = Duration::from_secs(315_576_000_000);
/// Most nanoseconds beside the seconds.
const MOST_NANOS: u32 = 999_999_999;

/// Reads a duration that may be absent or 0, which both mean that it is not set.
pub(super) fn up_to(
    longest: Duration,
    at: Path<'_>,
    wire: Option<prost_types::Duration>,
    found: &mut Findings,
) -> Option<Duration> {
    wire.and_then(|wire| within(Duration::ZERO..=longest, at, wire, found))
        .filter(|duration| !duration.is_zero())
}

/// Reads a duration of any length.
pub(super) fn any(
    at: Path<'_>,
    wire: prost_types::Duration,
    found: &mut Findings,
) -> Option<Duration> {
    within(Duration::ZERO..=LONGEST, at, wire, found)
}

/// Reads a duration that must lie in a range. `None` (and noted) if it does not.
pub(super) fn within(
    range: RangeInclusive<Duration>,
    at: Path<'_>,
    wire: prost_types::Duration,
    found: &mut Findings,
) -> Option<Duration> {
    if !is_well_formed(wire) {
        found.invalid(
            at,
            FieldReason::Invalid,
            "must be a well-formed google.protobuf.Duration",
        );
        return None;
    }
    let duration = Duration::try_from(wire)
        .ok()
        .filter(|duration| range.contains(duration));
    if duration.is_none() {
        let description = format!(
            "must be {} to {} seconds",
            range.start().as_secs(),
            range.end().as_secs()
        );
        found.invalid(at, FieldReason::OutOfRange, description);
    }
    duration
}

fn is_well_formed(wire: prost_types::Duration) -> bool {
    let prost_types::Duration { seconds, nanos } = wire;
    let same_sign = seconds == 0 || nanos == 0 || (seconds < 0) == (nanos < 0);
    same_sign && seconds.unsigned_abs() <= LONGEST.as_secs() && nanos.unsigned_abs() <= MOST_NANOS
}
