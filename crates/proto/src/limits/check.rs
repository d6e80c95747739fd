//! The checks of single values, for the generated code.

use std::time::Duration;

use super::{Path, Report, TextLimit};
use crate::FieldReason;

/// The longest valid protobuf Duration in seconds, about 10,000 years.
const MAX_DURATION_SECONDS: u64 = 315_576_000_000;
/// The range of a Timestamp in seconds: the years 1 to 9999.
const TIMESTAMP_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// Maximum of a `nanos` field.
const MAX_NANOS: i32 = 999_999_999;

pub(super) fn text(at: Path<'_>, text: &str, limit: &TextLimit, found: &mut dyn Report) {
    if text.is_empty() {
        if limit.required {
            found.required(at);
        }
    } else if !limit.fits(text) {
        let description = format!("must be at most {}", limit.size);
        found.invalid(at, FieldReason::TooLarge, description);
    } else if !limit.form.allows(text) {
        found.invalid(at, FieldReason::Invalid, limit.form.expected().to_owned());
    }
}

pub(super) fn bytes(at: Path<'_>, bytes: &[u8], required: bool, max: usize, found: &mut dyn Report) {
    if bytes.is_empty() && required {
        found.required(at);
    }
    if bytes.len() > max {
        let description = format!("must be at most {max} bytes");
        found.invalid(at, FieldReason::TooLarge, description);
    }
}

/// The number of elements of a list or map.
pub(super) fn items(at: Path<'_>, items: usize, required: bool, max: Option<usize>, found: &mut dyn Report) {
    if items == 0 && required {
        found.required(at);
    }
    if let Some(max) = max.filter(|&max| items > max) {
        let description = format!("must have at most {max} elements");
        found.invalid(at, FieldReason::TooLarge, description);
    }
}

pub(super) fn integer(at: Path<'_>, number: i64, required: bool, min: i64, max: Option<i64>, found: &mut dyn Report) {
    if number == 0 && required {
        return found.required(at);
    }
    let expected = match max {
        Some(max) if !(min..=max).contains(&number) => format!("must be {min} to {max}"),
        None if number < 0 && min == 0 => "must not be negative".to_owned(),
        None if number < min => format!("must be at least {min}"),
        Some(_) | None => return,
    };
    found.invalid(at, FieldReason::OutOfRange, expected);
}

/// A number in a closed range.
pub(super) fn between(at: Path<'_>, number: f64, min: f64, max: f64, found: &mut dyn Report) {
    if !(min..=max).contains(&number) {
        let description = format!("must be {min} to {max}");
        found.invalid(at, FieldReason::OutOfRange, description);
    }
}

/// A number in a range without its lower end.
pub(super) fn above(at: Path<'_>, number: f64, above: f64, max: f64, found: &mut dyn Report) {
    if !(number > above && number <= max) {
        let description = format!("must be greater than {above} and at most {max}");
        found.invalid(at, FieldReason::OutOfRange, description);
    }
}

/// A value of the enum `E`.
pub(super) fn choice<E: TryFrom<i32>>(at: Path<'_>, number: i32, required: bool, found: &mut dyn Report) {
    if number == 0 && required {
        found.required(at);
    } else if E::try_from(number).is_err() {
        let description = format!("the value {number} is unknown to this server");
        found.invalid(at, FieldReason::Unknown, description);
    }
}

/// A duration in a range of seconds.
pub(super) fn duration(
    at: Path<'_>,
    duration: prost_types::Duration,
    shortest: u64,
    longest: Option<u64>,
    found: &mut dyn Report,
) {
    let longest = longest.unwrap_or(MAX_DURATION_SECONDS);
    let range = Duration::from_secs(shortest)..=Duration::from_secs(longest);
    if !is_well_formed(duration) {
        let expected = "must be a well-formed google.protobuf.Duration";
        found.invalid(at, FieldReason::Invalid, expected.to_owned());
    } else if !Duration::try_from(duration).is_ok_and(|duration| range.contains(&duration)) {
        let description = format!("must be {shortest} to {longest} seconds");
        found.invalid(at, FieldReason::OutOfRange, description);
    }
}

fn is_well_formed(duration: prost_types::Duration) -> bool {
    let prost_types::Duration { seconds, nanos } = duration;
    let same_sign = seconds == 0 || nanos == 0 || (seconds < 0) == (nanos < 0);
    same_sign && seconds.unsigned_abs() <= MAX_DURATION_SECONDS && nanos.unsigned_abs() <= MAX_NANOS.unsigned_abs()
}

pub(super) fn timestamp(at: Path<'_>, time: prost_types::Timestamp, found: &mut dyn Report) {
    if !TIMESTAMP_SECONDS.contains(&time.seconds) || !(0..=MAX_NANOS).contains(&time.nanos) {
        let expected = "must be a well-formed google.protobuf.Timestamp";
        found.invalid(at, FieldReason::Invalid, expected.to_owned());
    }
}
