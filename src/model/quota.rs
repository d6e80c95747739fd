//! What a tenant may use, and what is said when it is used up.

use std::{fmt, time::Duration};

/// The limits of a tenant. `None`: there is none of that kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Turns that run at once, on all replicas; those that wait for tools do not count.
    pub running_turns: Option<u64>,
    /// Requests per second, on each replica.
    pub requests_per_second: Option<u64>,
    /// Tokens that models read and write per minute, on all replicas.
    pub tokens_per_minute: Option<u64>,
    /// Bytes of messages and blobs.
    pub stored_bytes: Option<u64>,
}

impl TenantLimits {
    /// Each of these limits, or the other's where there is none here.
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

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quota {
    /// Turns that run at once.
    RunningTurns,
    /// Requests per second.
    RequestsPerSecond,
    /// Tokens per minute.
    TokensPerMinute,
    /// Bytes of messages and blobs.
    StoredBytes,
}

impl Quota {
    /// Its name, in settings and in errors.
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

/// A limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tenant is at its limit of {quota}: {limit}")]
pub struct Exceeded {
    /// Which.
    pub quota: Quota,
    /// The limit.
    pub limit: u64,
    /// When the same request may succeed. `None`: not by waiting.
    pub retry_after: Option<Duration>,
}

/// A rate, kept by the generic cell rate algorithm (ITU-T I.371): one moment says until when what
/// was taken is paid for. Moments are durations since any fixed one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowance {
    paid_until: Duration,
}

impl Allowance {
    /// Takes what is paid for after `cost`, if no more than `burst` would be owed by then; else says
    /// when it can be taken.
    pub fn take(&mut self, now: Duration, cost: Duration, burst: Duration) -> Result<(), Duration> {
        let due = self.paid_until.max(now).saturating_add(cost);
        let wait = due.saturating_sub(now + burst);
        if wait.is_zero() {
            self.paid_until = due;
            return Ok(());
        }
        Err(wait)
    }

    /// Takes it in any case: it was used already.
    pub fn owe(&mut self, now: Duration, cost: Duration) {
        self.paid_until = self.paid_until.max(now).saturating_add(cost);
    }

    /// Sets what is owed, as others know it.
    pub fn set_owed(&mut self, now: Duration, owed: Duration) {
        self.paid_until = now.saturating_add(owed);
    }

    /// How long it takes until what was taken is paid for.
    pub fn owed(&self, now: Duration) -> Duration {
        self.paid_until.saturating_sub(now)
    }

    /// How long it takes until less than `burst` is owed.
    pub fn wait(&self, now: Duration, burst: Duration) -> Duration {
        self.owed(now).saturating_sub(burst)
    }
}

/// How many times as much of a shared room as is free a tenant may hold: alone it gets nine tenths
/// of it, and there is always some for one that comes later.
const FREE_SHARE: usize = 9;

/// Whether one more of `tenant` fits into a room for `most` in which `all` are: there is place, and
/// the tenant has less than a multiple of what is free (dynamic thresholds, Choudhury and Hahne
/// 1998), so that tenants that all want more get the same.
pub fn has_fair_room(most: usize, all: usize, tenant: usize) -> bool {
    let free = most.saturating_sub(all);
    free > 0 && tenant < free.saturating_mul(FREE_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_a_tenant_replace_the_servers_one_by_one() {
        let server = TenantLimits {
            running_turns: Some(10),
            stored_bytes: Some(100),
            ..TenantLimits::default()
        };
        let tenant = TenantLimits {
            running_turns: Some(0),
            tokens_per_minute: Some(5),
            ..TenantLimits::default()
        };
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
        let mut rate = Allowance::default();
        let start = Duration::from_secs(100);
        for _ in 0..4 {
            assert_eq!(rate.take(start, cost, second), Ok(()));
        }
        assert_eq!(rate.take(start, cost, second), Err(cost));
        assert_eq!(rate.take(start + cost, cost, second), Ok(()));
        assert_eq!(rate.take(start + cost, cost, second), Err(cost));
        // What was not used is not saved up.
        let later = start + second * 100;
        let taken = (0..100).filter(|_| rate.take(later, cost, second).is_ok());
        assert_eq!(taken.count(), 4);
    }

    #[test]
    fn what_was_used_beyond_the_burst_is_waited_for() {
        let minute = Duration::from_mins(1);
        let now = Duration::from_secs(1_000);
        let mut tokens = Allowance::default();
        assert_eq!(tokens.wait(now, minute), Duration::ZERO);
        tokens.owe(now, minute * 3);
        assert_eq!(tokens.wait(now, minute), minute * 2);
        assert_eq!(tokens.wait(now + minute, minute), minute);
        assert_eq!(tokens.owed(now + minute * 5), Duration::ZERO);
        tokens.set_owed(now, minute * 2);
        assert_eq!(tokens.wait(now, minute), minute);
    }

    /// One that wants everything leaves a tenth, two share, and a late one gets in.
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
