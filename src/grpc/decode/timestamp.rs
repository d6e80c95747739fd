//! Decodes timestamps.

use jiff::Timestamp;

use super::{Findings, Path};
use crate::{codec, pb::FieldReason};

/// The range of a Timestamp in seconds: the years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Decodes a timestamp. Reports a malformed one and returns `None`.
pub(super) fn timestamp(
    at: Path<'_>,
    time: prost_types::Timestamp,
    found: &mut Findings,
) -> Option<Timestamp> {
    let well_formed = SECONDS.contains(&time.seconds) && (0..=999_999_999).contains(&time.nanos);
    let read = codec::time::timestamp_from_pb(time)
        .ok()
        .filter(|_| well_formed);
    if read.is_none() {
        found.invalid(
            at,
            FieldReason::Invalid,
            "must be a well-formed google.protobuf.Timestamp",
        );
    }
    read
}
