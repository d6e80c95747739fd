//! Rate-limited logging of calls that are rejected because of overload or because the caller has no valid
//! credential: at most a few lines per second, and one summary line with the number of other calls. A line per
//! call would let callers cause unlimited work and disk writes.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// The target of log lines about calls.
pub(super) const CALLS: &str = "contextd::calls";

/// The minimum time between two summary lines.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(1);

/// Counts the calls that were rejected for one reason and are not logged yet.
#[derive(Debug)]
pub(super) struct RejectionLog {
    reason: &'static str,
    /// Maximum number of calls per period that are logged individually.
    max_lines_per_period: u64,
    written: AtomicU64,
    refused: AtomicU64,
    origin: Instant,
    /// When the next summary line may be written, in milliseconds since `origin`.
    next: AtomicU64,
}

impl RejectionLog {
    /// Creates the log of rejections with this reason. The first `in_full` rejections per second are logged
    /// individually.
    pub(super) fn new(reason: &'static str, in_full: u64) -> Self {
        Self {
            reason,
            max_lines_per_period: in_full,
            written: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            origin: Instant::now(),
            next: AtomicU64::new(0),
        }
    }

    /// Counts a rejected call. Returns true if the call gets a log line.
    pub(super) fn gets_line(&self) -> bool {
        if self.max_lines_per_period > 0 && self.written.fetch_add(1, Relaxed) < self.max_lines_per_period {
            return true;
        }
        self.refused.fetch_add(1, Relaxed);
        false
    }

    /// Writes the summary line if there are unlogged calls and the minimum time has passed. Called at the end
    /// of every call, including probes, so that the last rejections are logged soon after they stop.
    pub(super) fn log_if_due(&self) {
        if self.refused.load(Relaxed) == 0 && self.written.load(Relaxed) == 0 {
            return;
        }
        let now = millis(self.origin.elapsed());
        let next = self.next.load(Relaxed);
        let after = now + millis(SUMMARY_INTERVAL);
        if now >= next && self.next.compare_exchange(next, after, Relaxed, Relaxed).is_ok() {
            self.written.store(0, Relaxed);
            self.log();
        }
    }

    fn log(&self) {
        let calls = self.refused.swap(0, Relaxed);
        if calls > 0 {
            tracing::info!(target: CALLS, audit = true, reason = self.reason, calls, "calls refused");
        }
    }
}

impl Drop for RejectionLog {
    fn drop(&mut self) {
        self.log();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_within_a_second_share_a_line() {
        let log = RejectionLog::new("overloaded", 0);
        assert!(!log.gets_line());
        log.log_if_due();
        assert_eq!(log.refused.load(Relaxed), 0);
        for _ in 0..3 {
            assert!(!log.gets_line());
            log.log_if_due();
        }
        assert_eq!(log.refused.load(Relaxed), 3);
        log.next.store(0, Relaxed);
        log.log_if_due();
        assert_eq!(log.refused.load(Relaxed), 0);
    }

    #[test]
    fn the_first_refusals_of_a_second_get_a_line_each() {
        let log = RejectionLog::new("unauthenticated", 2);
        log.log_if_due();
        log.next.store(u64::MAX, Relaxed);
        let lines = (0..100).filter(|_| log.gets_line()).count();
        assert_eq!((lines, log.refused.load(Relaxed)), (2, 98));
        log.next.store(0, Relaxed);
        log.log_if_due();
        assert!(log.gets_line());
    }
}
