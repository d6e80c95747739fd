//! Who waits for a connection, and for how long already.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The waiters of one pool.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    came: u64,
    /// When each came, and as the how manyth.
    since: BTreeSet<(Instant, u64)>,
}

/// One that waits, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiter<'w> {
    waiters: &'w Waiters,
    since: (Instant, u64),
}

impl Waiters {
    /// Begins to wait.
    pub(super) fn begin(&self) -> Waiter<'_> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.came += 1;
        let since = (Instant::now(), waiting.came);
        waiting.since.insert(since);
        Waiter {
            waiters: self,
            since,
        }
    }

    /// How long the one has waited that has waited longest; zero if none waits.
    pub(super) fn longest(&self) -> Duration {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let first = waiting.since.first();
        first.map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }
}

impl Waiter<'_> {
    /// For how long it has waited.
    pub(super) fn waited(&self) -> Duration {
        self.since.0.elapsed()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let waiting = &self.waiters.waiting;
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.since.remove(&self.since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_is_that_of_who_came_first_and_still_waits() {
        let waiters = Waiters::default();
        assert_eq!(waiters.longest(), Duration::ZERO);
        let first = waiters.begin();
        let second = waiters.begin();
        let of_first = first.waited();
        assert!(waiters.longest() >= of_first);
        drop(first);
        let longest = waiters.longest();
        assert!(longest <= second.waited());
        drop(second);
        assert_eq!(waiters.longest(), Duration::ZERO);
    }
}
