//! Decides whether and when a failed model call is retried: a pure function. The settings are in
//! `config/turn.rs`.

use std::time::Duration;

use crate::provider::Error;

/// Retry settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Most calls for one step, including the first.
    pub attempts: u32,
    /// Upper bound of the wait before the second call. It doubles with each further call.
    pub base: Duration,
    /// Longest wait from the doubling.
    pub max_delay: Duration,
    /// Longest wait that the provider may request.
    pub max_retry_after: Duration,
}

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

impl Retries {
    /// The wait before the call is retried. Returns `None` if it is not retried.
    ///
    /// The wait is random between zero and a bound that doubles (full jitter), so that the callers
    /// of a recovering service do not return all at once. A wait that the service requests is
    /// always waited in full, plus jitter. If it exceeds `max_retry_after` or the remaining time of the
    /// turn, the failure is reported immediately.
    pub fn wait(&self, failed: RetryInput<'_>) -> Option<Duration> {
        let RetryInput {
            error,
            calls,
            time_left,
            jitter,
        } = failed;
        let asked = error.retry_after.unwrap_or_default();
        if !error.is_retryable() || calls >= self.attempts || asked > self.max_retry_after {
            return None;
        }
        let doubled = self.base.saturating_mul(
            1_u32
                .checked_shl(calls.saturating_sub(1))
                .unwrap_or(u32::MAX),
        );
        let wait =
            asked.saturating_add(doubled.min(self.max_delay).mul_f64(jitter.clamp(0.0, 1.0)));
        (wait < time_left).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::error::Kind;

    const SECOND: Duration = Duration::from_secs(1);

    fn retries() -> Retries {
        Retries {
            attempts: 5,
            base: SECOND,
            max_delay: SECOND * 6,
            max_retry_after: SECOND * 60,
        }
    }

    fn error(kind: Kind, retry_after: Option<u64>) -> Error {
        Error {
            retry_after: retry_after.map(Duration::from_secs),
            ..Error::new(kind, "main", "It went wrong.")
        }
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
        let halves = [
            (1, 0.5, Some(500)),
            (3, 0.25, Some(1_000)),
            (4, 0.0, Some(0)),
            (1, 7.0, Some(1_000)),
            (1, -1.0, Some(0)),
        ];
        for (calls, jitter, expected) in table.into_iter().chain(halves) {
            let error = error(Kind::Overloaded, None);
            let wait = retries().wait(RetryInput {
                error: &error,
                calls,
                time_left: SECOND * 3600,
                jitter,
            });
            assert_eq!(
                wait,
                expected.map(Duration::from_millis),
                "{calls} calls, {jitter}"
            );
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
            let wait = retries().wait(RetryInput {
                error: &error,
                calls: 1,
                time_left,
                jitter: 0.5,
            });
            assert_eq!(
                wait,
                expected.map(Duration::from_millis),
                "asked for {asked:?}, {time_left:?} left"
            );
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
            let error = Error {
                should_retry,
                ..error(kind, None)
            };
            let wait = retries().wait(RetryInput {
                error: &error,
                calls: 1,
                time_left: SECOND * 60,
                jitter: 1.0,
            });
            assert_eq!(wait.is_some(), again, "{kind:?} {should_retry:?}");
        }
    }

    #[test]
    fn huge_retry_delays_are_bounded() {
        let retries = Retries {
            attempts: u32::MAX,
            base: Duration::MAX,
            max_delay: SECOND,
            max_retry_after: SECOND,
        };
        let error = error(Kind::Broken, None);
        let wait = retries.wait(RetryInput {
            error: &error,
            calls: 1_000_000,
            time_left: Duration::MAX,
            jitter: 1.0,
        });
        assert_eq!(wait, Some(SECOND));
    }
}
