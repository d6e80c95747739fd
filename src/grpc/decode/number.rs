//! Decodes and checks numbers: counts, cursors, shares and enum values.

use std::{fmt::Display, ops::RangeInclusive};

use super::{Findings, Path};
use crate::{model::Seq, pb::FieldReason};

/// Decodes a count. 0 means unset.
pub(super) fn count(at: Path<'_>, number: i32, found: &mut Findings) -> Option<u32> {
    not_negative(at, i64::from(number), found);
    u32::try_from(number).ok().filter(|&number| number > 0)
}

/// Decodes a 64-bit count. 0 means unset.
pub(super) fn large_count(at: Path<'_>, number: i64, found: &mut Findings) -> Option<i64> {
    not_negative(at, number, found);
    (number > 0).then_some(number)
}

/// Decodes the seq of an event.
pub(super) fn seq(at: Path<'_>, number: i64, found: &mut Findings) -> Seq {
    not_negative(at, number, found);
    Seq(number)
}

/// Decodes the seq of an event. 0 means unset.
pub(super) fn optional_seq(at: Path<'_>, number: i64, found: &mut Findings) -> Option<Seq> {
    large_count(at, number, found).map(Seq)
}

/// Reports a number outside the range.
pub(super) fn within<N: PartialOrd + Display>(
    at: Path<'_>,
    number: &N,
    range: &RangeInclusive<N>,
    found: &mut Findings,
) {
    if !range.contains(number) {
        let description = format!("must be {} to {}", range.start(), range.end());
        found.invalid(at, FieldReason::OutOfRange, description);
    }
}

/// Reports a negative number.
pub(super) fn not_negative(at: Path<'_>, number: i64, found: &mut Findings) {
    if number < 0 {
        found.invalid(at, FieldReason::OutOfRange, "must not be negative");
    }
}

/// Decodes an enum value. Reports an unknown one and returns `None`.
pub(super) fn enum_value<E: TryFrom<i32>>(
    at: Path<'_>,
    number: i32,
    found: &mut Findings,
) -> Option<E> {
    let value = E::try_from(number).ok();
    if value.is_none() {
        found.invalid(
            at,
            FieldReason::Unknown,
            format!("the value {number} is unknown to this server"),
        );
    }
    value
}
