//! Timestamps and durations, to and from their proto forms.

use std::time::Duration;

use jiff::Timestamp;

use super::{DecodeError, field::Field};

const NANOS_PER_SECOND: i32 = 1_000_000_000;

/// Converts a timestamp.
pub fn timestamp_to_pb(time: Timestamp) -> prost_types::Timestamp {
    // Before 1970, jiff's nanoseconds are negative; the proto's are never negative.
    let seconds = time.as_second();
    let nanos = time.subsec_nanosecond();
    if nanos < 0 {
        prost_types::Timestamp { seconds: seconds - 1, nanos: nanos + NANOS_PER_SECOND }
    } else {
        prost_types::Timestamp { seconds, nanos }
    }
}

/// Reads a timestamp that was stored or sent.
pub fn timestamp_from_pb(time: prost_types::Timestamp) -> Result<Timestamp, DecodeError> {
    let prost_types::Timestamp { seconds, nanos } = time;
    Timestamp::new(seconds, nanos).map_err(|error| DecodeError::new("timestamp", error))
}

/// Converts a duration; saturates at the maximum.
pub fn duration_to_pb(duration: Duration) -> prost_types::Duration {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    // Below 10^9, so it always fits.
    let nanos = i32::try_from(duration.subsec_nanos()).unwrap_or(0);
    prost_types::Duration { seconds, nanos }
}

/// Reads a duration that was stored or sent; a negative one is an error.
pub fn duration_from_pb(duration: prost_types::Duration) -> Result<Duration, DecodeError> {
    let prost_types::Duration { seconds, nanos } = duration;
    match (u64::try_from(seconds), u32::try_from(nanos)) {
        (Ok(seconds), Ok(fraction)) if nanos < NANOS_PER_SECOND => Ok(Duration::new(seconds, fraction)),
        _ => Err(DecodeError::new("duration", format_args!("{seconds} s and {nanos} ns is not a valid duration"))),
    }
}

impl Field<prost_types::Duration> for Duration {
    fn to_field(&self) -> prost_types::Duration {
        duration_to_pb(*self)
    }

    fn from_field(_: &'static str, field: prost_types::Duration) -> Result<Self, DecodeError> {
        duration_from_pb(field)
    }
}

/// Absent is zero.
impl Field<Option<prost_types::Duration>> for Duration {
    fn to_field(&self) -> Option<prost_types::Duration> {
        Some(duration_to_pb(*self))
    }

    fn from_field(_: &'static str, field: Option<prost_types::Duration>) -> Result<Self, DecodeError> {
        duration_from_pb(field.unwrap_or_default())
    }
}

impl Field<prost_types::Timestamp> for Timestamp {
    fn to_field(&self) -> prost_types::Timestamp {
        timestamp_to_pb(*self)
    }

    fn from_field(_: &'static str, field: prost_types::Timestamp) -> Result<Self, DecodeError> {
        timestamp_from_pb(field)
    }
}

/// Absent is an error.
impl Field<Option<prost_types::Timestamp>> for Timestamp {
    fn to_field(&self) -> Option<prost_types::Timestamp> {
        Some(timestamp_to_pb(*self))
    }

    fn from_field(name: &'static str, field: Option<prost_types::Timestamp>) -> Result<Self, DecodeError> {
        timestamp_from_pb(field.ok_or_else(|| DecodeError::new(name, "it is not set"))?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn durations_round_trip(seconds in 0..=i64::MAX as u64, nanos in 0..1_000_000_000_u32) {
            let duration = Duration::new(seconds, nanos);
            prop_assert_eq!(duration_from_pb(duration_to_pb(duration)), Ok(duration));
        }

        #[test]
        fn timestamps_round_trip(seconds in -99_999_999_999_i64..99_999_999_999, nanos in 0..1_000_000_000_i32) {
            let time = Timestamp::new(seconds, nanos).unwrap();
            let wire = timestamp_to_pb(time);
            prop_assert!((0..NANOS_PER_SECOND).contains(&wire.nanos));
            prop_assert_eq!(timestamp_from_pb(wire), Ok(time));
        }
    }

    #[test]
    fn an_invalid_duration_is_an_error() {
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, NANOS_PER_SECOND)] {
            assert!(duration_from_pb(prost_types::Duration { seconds, nanos }).is_err());
        }
    }
}
