//! Timestamps and durations, to and from their proto forms.

use std::time::Duration;

use jiff::Timestamp;

use super::{DecodeError, field::Field};

const NANOS_PER_SECOND: i32 = 1_000_000_000;

/// Saturates at the maximum. A negative duration is an error.
impl Field<prost_types::Duration> for Duration {
    fn to_field(&self) -> prost_types::Duration {
        let seconds = i64::try_from(self.as_secs()).unwrap_or(i64::MAX);
        // Below 10^9, so it always fits.
        let nanos = i32::try_from(self.subsec_nanos()).unwrap_or(0);
        prost_types::Duration { seconds, nanos }
    }

    fn from_field(name: &'static str, field: prost_types::Duration) -> Result<Self, DecodeError> {
        let prost_types::Duration { seconds, nanos } = field;
        match (u64::try_from(seconds), u32::try_from(nanos)) {
            (Ok(seconds), Ok(fraction)) if nanos < NANOS_PER_SECOND => Ok(Self::new(seconds, fraction)),
            _ => Err(DecodeError::new(name, format_args!("{seconds} s and {nanos} ns is not a valid duration"))),
        }
    }
}

/// Absent is zero.
impl Field<Option<prost_types::Duration>> for Duration {
    fn to_field(&self) -> Option<prost_types::Duration> {
        Some(self.to_field())
    }

    fn from_field(name: &'static str, field: Option<prost_types::Duration>) -> Result<Self, DecodeError> {
        Self::from_field(name, field.unwrap_or_default())
    }
}

impl Field<prost_types::Timestamp> for Timestamp {
    fn to_field(&self) -> prost_types::Timestamp {
        // Before 1970, jiff's nanoseconds are negative; the proto's are never negative.
        let (seconds, nanos) = (self.as_second(), self.subsec_nanosecond());
        if nanos < 0 {
            prost_types::Timestamp { seconds: seconds - 1, nanos: nanos + NANOS_PER_SECOND }
        } else {
            prost_types::Timestamp { seconds, nanos }
        }
    }

    fn from_field(name: &'static str, field: prost_types::Timestamp) -> Result<Self, DecodeError> {
        let prost_types::Timestamp { seconds, nanos } = field;
        Self::new(seconds, nanos).map_err(|error| DecodeError::new(name, error))
    }
}

/// Absent is an error.
impl Field<Option<prost_types::Timestamp>> for Timestamp {
    fn to_field(&self) -> Option<prost_types::Timestamp> {
        Some(self.to_field())
    }

    fn from_field(name: &'static str, field: Option<prost_types::Timestamp>) -> Result<Self, DecodeError> {
        Self::from_field(name, field.ok_or_else(|| DecodeError::new(name, "it is not set"))?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::field::round_trip;

    proptest! {
        #[test]
        fn durations_round_trip(seconds in 0..=i64::MAX as u64, nanos in 0..1_000_000_000_u32) {
            let duration = Duration::new(seconds, nanos);
            prop_assert_eq!(round_trip::<_, prost_types::Duration>(&duration), Ok(duration));
        }

        #[test]
        fn timestamps_round_trip(seconds in -99_999_999_999_i64..99_999_999_999, nanos in 0..1_000_000_000_i32) {
            let time = Timestamp::new(seconds, nanos).unwrap();
            let wire: prost_types::Timestamp = time.to_field();
            prop_assert!((0..NANOS_PER_SECOND).contains(&wire.nanos));
            prop_assert_eq!(Timestamp::from_field("time", wire), Ok(time));
        }
    }

    #[test]
    fn an_invalid_duration_is_an_error() {
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, NANOS_PER_SECOND)] {
            assert!(Duration::from_field("duration", prost_types::Duration { seconds, nanos }).is_err());
        }
    }
}
