//! Decides whether and when a failed model call is retried: a pure function.

use std::time::Duration;

use crate::{config::TurnConfig, provider::Error};

/// The state after a failed call.
#[derive(Debug, Clone, Copy)]
pub struct RetryInput<'a> {
    pub error: &'a Error,
    /// Calls made for this step so far.
    pub calls: u32,
    /// Remaining time of the turn.
    pub time_left: Duration,
    /// A random number: 0 is no wait, 1 the longest.
    pub jitter: f64,
}

/// The wait before the call is retried. Returns `None` if it is not retried.
///
/// The wait is random between zero and a bound that doubles (full jitter), so that the callers of a
/// recovering service do not return all at once. A wait that the service requests is always waited
/// in full, plus jitter. If it exceeds `retry_after_max` or the remaining time of the turn, the
/// failure is reported immediately.
pub fn wait(config: &TurnConfig, failed: RetryInput<'_>) -> Option<Duration> {
    let RetryInput { error, calls, time_left, jitter } = failed;
    let asked = error.retry_after.unwrap_or_default();
    if !error.is_retryable() || calls >= config.max_call_attempts || asked > config.retry_after_max {
        return None;
    }
    let doubled =
        config.retry_base_delay.saturating_mul(1_u32.checked_shl(calls.saturating_sub(1)).unwrap_or(u32::MAX));
    let bound = doubled.min(config.retry_max_delay);
    let wait = asked.saturating_add(bound.mul_f64(jitter.clamp(0.0, 1.0)));
    (wait < time_left).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::error::Kind;

    const SECOND: Duration = Duration::from_secs(1);

    fn config() -> TurnConfig {
        TurnConfig {
            max_call_attempts: 5,
            retry_base_delay: SECOND,
            retry_max_delay: SECOND * 6,
            retry_after_max: SECOND * 60,
            ..TurnConfig::default()
        }
    }

    fn error(kind: Kind, retry_after: Option<u64>) -> Error {
        Error { retry_after: retry_after.map(Duration::from_secs), ..Error::new(kind, "main", "It went wrong.") }
    }

    #[test]
    fn retry_delay_doubles_up_to_its_maximum_with_jitter() {
        let table = [
            (1, 1.0, Some(1_000)),
            (2, 1.0, Some(2_000)),
            (3, 1.0, Some(4_000)),
            (4, 1.0, Some(6_000)),
            (5, 1.0, None),
        ];
        let halves =
            [(1, 0.5, Some(500)), (3, 0.25, Some(1_000)), (4, 0.0, Some(0)), (1, 7.0, Some(1_000)), (1, -1.0, Some(0))];
        for (calls, jitter, expected) in table.into_iter().chain(halves) {
            let error = error(Kind::Overloaded, None);
            let wait = wait(&config(), RetryInput { error: &error, calls, time_left: SECOND * 3600, jitter });
            assert_eq!(wait, expected.map(Duration::from_millis), "{calls} calls, {jitter}");
        }
    }

    #[test]
    fn a_requested_retry_delay_is_waited_in_full_or_not_at_all() {
        let table = [
            (Some(0), 3600, Some(500)),
            (Some(30), 3600, Some(30_500)),
            (Some(60), 3600, Some(60_500)),
            (Some(61), 3600, None),
            (Some(30), 31, Some(30_500)),
            (Some(30), 30, None),
            (None, 0, None),
        ];
        for (asked, time_left, expected) in table {
            let error = error(Kind::RateLimited, asked);
            let time_left = Duration::from_secs(time_left);
            let wait = wait(&config(), RetryInput { error: &error, calls: 1, time_left, jitter: 0.5 });
            assert_eq!(wait, expected.map(Duration::from_millis), "asked for {asked:?}, {time_left:?} left");
        }
    }

    #[test]
    fn only_transient_errors_are_retried() {
        let table = [
            (Kind::RateLimited, None, true),
            (Kind::Timeout, None, true),
            (Kind::Overloaded, None, true),
            (Kind::Broken, None, true),
            (Kind::Auth, None, false),
            (Kind::BadRequest, None, false),
            (Kind::TooLong, None, false),
            (Kind::RateLimited, Some(false), false),
            (Kind::BadRequest, Some(true), true),
            (Kind::TooLong, Some(true), false),
        ];
        for (kind, should_retry, again) in table {
            let error = Error { should_retry, ..error(kind, None) };
            let wait = wait(&config(), RetryInput { error: &error, calls: 1, time_left: SECOND * 60, jitter: 1.0 });
            assert_eq!(wait.is_some(), again, "{kind:?} {should_retry:?}");
        }
    }

    #[test]
    fn huge_retry_delays_are_bounded() {
        let config = TurnConfig {
            max_call_attempts: u32::MAX,
            retry_base_delay: Duration::MAX,
            retry_max_delay: SECOND,
            retry_after_max: SECOND,
            ..TurnConfig::default()
        };
        let error = error(Kind::Broken, None);
        let failed = RetryInput { error: &error, calls: 1_000_000, time_left: Duration::MAX, jitter: 1.0 };
        let wait = wait(&config, failed);
        assert_eq!(wait, Some(SECOND));
    }
}
