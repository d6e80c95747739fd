//! Decodes and checks durations.

use std::{ops::RangeInclusive, time::Duration};

use super::{Findings, Path};
use crate::pb::FieldReason;

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub(super) const HOUR: Duration = Duration::from_secs(60 * 60);
/// The longest valid protobuf Duration, about 10,000 years.
const MAX_PROTO_DURATION: Duration = Duration::from_secs(315_576_000_000);
/// Maximum of the `nanos` field.
const MAX_NANOS: u32 = 999_999_999;

/// Decodes a duration of up to `longest`. Absent and 0 both mean unset.
pub(super) fn up_to(
    longest: Duration,
    at: Path<'_>,
    wire: Option<prost_types::Duration>,
    found: &mut Findings,
) -> Option<Duration> {
    wire.and_then(|wire| within(Duration::ZERO..=longest, at, wire, found))
        .filter(|duration| !duration.is_zero())
}

/// Decodes a duration of any length.
pub(super) fn any(
    at: Path<'_>,
    wire: prost_types::Duration,
    found: &mut Findings,
) -> Option<Duration> {
    within(Duration::ZERO..=MAX_PROTO_DURATION, at, wire, found)
}

/// Decodes a duration that must be within a range. Reports one that is not, and returns `None`.
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
    same_sign
        && seconds.unsigned_abs() <= MAX_PROTO_DURATION.as_secs()
        && nanos.unsigned_abs() <= MAX_NANOS
}
