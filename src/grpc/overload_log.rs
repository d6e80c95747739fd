//! What the log says of calls that were refused because the server has too much to do: one line a
//! second with their number. A line for each would be work that the overload makes.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::status::Overloaded;

/// The target of lines about calls.
pub(super) const CALLS: &str = "contextd::calls";

/// The least time between two lines.
const EVERY: Duration = Duration::from_secs(1);

/// Calls that were refused so and are not in the log yet.
#[derive(Debug)]
pub(super) struct OverloadLog {
    refused: AtomicU64,
    origin: Instant,
    /// When the next line may be written, in milliseconds since the origin.
    next: AtomicU64,
}

impl Default for OverloadLog {
    fn default() -> Self {
        Self {
            refused: AtomicU64::new(0),
            origin: Instant::now(),
            next: AtomicU64::new(0),
        }
    }
}

impl OverloadLog {
    /// One more.
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Writes the line if there is something to say and the last one is old enough. Called at the end
    /// of every call, probes too, so that the last refusals are logged soon after they stop.
    pub(super) fn log_if_due(&self) {
        if self.refused.load(Relaxed) == 0 {
            return;
        }
        let now = millis(self.origin.elapsed());
        let next = self.next.load(Relaxed);
        let after = now + millis(EVERY);
        if now >= next
            && self
                .next
                .compare_exchange(next, after, Relaxed, Relaxed)
                .is_ok()
        {
            self.log();
        }
    }

    fn log(&self) {
        let calls = self.refused.swap(0, Relaxed);
        if calls > 0 {
            tracing::info!(target: CALLS, audit = true, reason = Overloaded::REASON, calls, "calls refused");
        }
    }
}

impl Drop for OverloadLog {
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
        let log = OverloadLog::default();
        log.refused();
        log.log_if_due();
        assert_eq!(log.refused.load(Relaxed), 0);
        for _ in 0..3 {
            log.refused();
            log.log_if_due();
        }
        assert_eq!(log.refused.load(Relaxed), 3);
        log.next.store(0, Relaxed);
        log.log_if_due();
        assert_eq!(log.refused.load(Relaxed), 0);
    }
}
