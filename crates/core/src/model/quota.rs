//! Quotas of a tenant, and the error when a quota is exceeded.

use std::{fmt, time::Duration};

use crate::settings::settings;

/// The largest limit that the database and the API can represent.
const MAX: u64 = 1 << 62;

settings! {
    /// `[limits]`: the limits of tenants without limits set by `contextd admin limits set`. A limit that is not set
    /// does not apply.
    #[derive(Copy, PartialEq, Eq)]
    pub struct TenantLimits {
        /// Turns and calls of Compact that run at once, on all replicas together.
        running_turns: Option<u64> = None, in 0..=MAX, "turns";
        /// Requests per second, on each replica.
        requests_per_second: Option<u64> = None, in 0..=MAX, "requests";
        /// Tokens per minute that models read and write, on all replicas together.
        tokens_per_minute: Option<u64> = None, in 0..=MAX, "tokens";
        /// Stored bytes: messages, events, configurations, requests and blobs, including uploads in progress.
        stored_bytes: Option<u64> = None, in 0..=MAX, "bytes";
    }
}

impl TenantLimits {
    /// These limits; a limit that is not set is taken from `other`.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        Self {
            running_turns: self.running_turns.or(other.running_turns),
            requests_per_second: self.requests_per_second.or(other.requests_per_second),
            tokens_per_minute: self.tokens_per_minute.or(other.tokens_per_minute),
            stored_bytes: self.stored_bytes.or(other.stored_bytes),
        }
    }
}

/// A quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quota {
    /// Turns running at the same time.
    RunningTurns,
    RequestsPerSecond,
    TokensPerMinute,
    /// Bytes of messages and blobs.
    StoredBytes,
}

impl Quota {
    /// The quota's name in settings and in errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::RunningTurns => "running_turns",
            Self::RequestsPerSecond => "requests_per_second",
            Self::TokensPerMinute => "tokens_per_minute",
            Self::StoredBytes => "stored_bytes",
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error when a quota is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tenant is at its limit of {quota}: {limit}")]
pub struct Exceeded {
    pub quota: Quota,
    pub limit: u64,
    /// When the same request may succeed. `None` means that waiting does not help.
    pub retry_after: Option<Duration>,
}

/// A rate limiter: the generic cell rate algorithm (ITU-T I.371). Its state is the time until which the consumed amount
/// is paid for. Times are durations since any fixed point in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimiter {
    paid_until: Duration,
}

impl RateLimiter {
    /// Consumes `cost` if at most `burst` is owed afterwards.
    ///
    /// # Errors
    ///
    /// The time to wait until `cost` can be consumed.
    pub fn take(&mut self, now: Duration, cost: Duration, burst: Duration) -> Result<(), Duration> {
        let due = self.paid_until.max(now).saturating_add(cost);
        let wait = due.saturating_sub(now + burst);
        if wait.is_zero() {
            self.paid_until = due;
            return Ok(());
        }
        Err(wait)
    }

    /// Adds a cost that was already incurred, without a limit.
    pub fn owe(&mut self, now: Duration, cost: Duration) {
        self.paid_until = self.paid_until.max(now).saturating_add(cost);
    }

    /// Sets the amount owed to a value known from elsewhere.
    pub fn set_owed(&mut self, now: Duration, owed: Duration) {
        self.paid_until = now.saturating_add(owed);
    }

    /// The time until everything consumed is paid for.
    pub fn owed(&self, now: Duration) -> Duration {
        self.paid_until.saturating_sub(now)
    }

    /// The time until at most `burst` is owed.
    pub fn wait(&self, now: Duration, burst: Duration) -> Duration {
        self.owed(now).saturating_sub(burst)
    }
}

/// A tenant may use at most this many times the free part of a shared resource: a single tenant gets nine tenths of it,
/// and some of it is always free for a tenant that starts later.
const FREE_SHARE: usize = 9;

/// Whether a tenant that holds `tenant` units may take one more of a shared resource of `most` units, of which `all`
/// are taken. It may if some are free and it holds less than [`FREE_SHARE`] times the free part (dynamic thresholds,
/// Choudhury and Hahne 1998), so that tenants that all want more get equal shares.
pub fn has_fair_room(most: usize, all: usize, tenant: usize) -> bool {
    let free = most.saturating_sub(all);
    free > 0 && tenant < free.saturating_mul(FREE_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_a_tenant_replace_the_servers_one_by_one() {
        let server = TenantLimits { running_turns: Some(10), stored_bytes: Some(100), ..TenantLimits::default() };
        let tenant = TenantLimits { running_turns: Some(0), tokens_per_minute: Some(5), ..TenantLimits::default() };
        let expected = TenantLimits {
            running_turns: Some(0),
            requests_per_second: None,
            tokens_per_minute: Some(5),
            stored_bytes: Some(100),
        };
        assert_eq!(tenant.over(server), expected);
    }

    #[test]
    fn an_allowance_lets_a_burst_through_and_then_the_rate() {
        let second = Duration::from_secs(1);
        let cost = second / 4;
        let mut rate = RateLimiter::default();
        let start = Duration::from_secs(100);
        for _ in 0..4 {
            assert_eq!(rate.take(start, cost, second), Ok(()));
        }
        assert_eq!(rate.take(start, cost, second), Err(cost));
        assert_eq!(rate.take(start + cost, cost, second), Ok(()));
        assert_eq!(rate.take(start + cost, cost, second), Err(cost));
        // Unused allowance does not accumulate.
        let later = start + second * 100;
        let taken = (0..100).filter(|_| rate.take(later, cost, second).is_ok());
        assert_eq!(taken.count(), 4);
    }

    #[test]
    fn what_was_used_beyond_the_burst_is_waited_for() {
        let minute = Duration::from_mins(1);
        let now = Duration::from_secs(1_000);
        let mut tokens = RateLimiter::default();
        assert_eq!(tokens.wait(now, minute), Duration::ZERO);
        tokens.owe(now, minute * 3);
        assert_eq!(tokens.wait(now, minute), minute * 2);
        assert_eq!(tokens.wait(now + minute, minute), minute);
        assert_eq!(tokens.owed(now + minute * 5), Duration::ZERO);
        tokens.set_owed(now, minute * 2);
        assert_eq!(tokens.wait(now, minute), minute);
    }

    /// A single tenant gets nine tenths, two get equal shares, and a late one still gets some.
    #[test]
    fn a_shared_room_is_divided_fairly() {
        let fill = |most: usize, held: &mut [usize]| {
            loop {
                let before = held.to_vec();
                for tenant in 0..held.len() {
                    let all = held.iter().sum();
                    if has_fair_room(most, all, held[tenant]) {
                        held[tenant] += 1;
                    }
                }
                if held == before.as_slice() {
                    return;
                }
            }
        };
        let check = |most: usize, tenants: usize, expected: &[usize]| {
            let mut held = vec![0; tenants];
            fill(most, &mut held);
            assert_eq!(held, expected, "{most} among {tenants}");
        };
        check(1, 1, &[1]);
        check(4, 1, &[4]);
        check(1_000, 1, &[900]);
        check(1_000, 2, &[474, 474]);
        let mut late = [900, 0];
        fill(1_000, &mut late);
        assert!(late[1] >= 90 && late[0] == 900, "{late:?}");
    }
}
