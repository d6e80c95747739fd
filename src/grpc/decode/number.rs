//! Converts checked numbers, enum values and times. What a check has reported becomes `None` or 0.

use std::time::Duration;

use crate::{
    codec::field::{Choice, Field},
    model::Seq,
};

/// A count. 0 means unset.
pub(super) fn count(number: i32) -> Option<u32> {
    u32::try_from(number).ok().filter(|&number| number > 0)
}

/// A count for which 0 differs from unset.
pub(super) fn optional_count(number: Option<i32>) -> Option<u32> {
    number.and_then(|number| u32::try_from(number).ok())
}

/// A 64-bit count. 0 means unset.
pub(super) fn large_count(number: i64) -> Option<i64> {
    (number > 0).then_some(number)
}

/// A number of bytes.
pub(super) fn bytes(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// The seq of an event. 0 means unset.
pub(super) fn optional_seq(number: i64) -> Option<Seq> {
    large_count(number).map(Seq)
}

/// An enum value.
pub(super) fn choice<E: TryFrom<i32>>(number: i32) -> Option<E> {
    E::try_from(number).ok()
}

/// An enum of the model. UNSPECIFIED, and a number that a check has reported, are the default.
pub(super) fn choice_or<C: Choice>(number: i32, default: C) -> C {
    Option::<C>::from_field("choice", number).ok().flatten().unwrap_or(default)
}

/// A duration. Absent and 0 both mean unset.
pub(super) fn duration(wire: Option<prost_types::Duration>) -> Option<Duration> {
    wire.and_then(|wire| Duration::try_from(wire).ok()).filter(|duration| !duration.is_zero())
}

/// A point in time.
pub(super) fn timestamp(wire: Option<prost_types::Timestamp>) -> Option<jiff::Timestamp> {
    wire.and_then(|wire| Field::from_field("timestamp", wire).ok())
}
