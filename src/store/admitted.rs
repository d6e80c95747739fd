//! When a replica last read deleted tenants and revoked keys. A call that was admitted from data read before a tenant
//! was deleted must not create anything for that tenant, even if the process was paused in between.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;

/// How long a replica admits calls based on its last read of keys, limits and deletions. [`super::erasure::SETTLED`] is
/// this time plus the default maximum duration of a statement.
pub const MAX_READ_AGE: Duration = Duration::from_secs(10);

tokio::task_local! {
    static CURRENT: Option<Timestamp>;
}

/// When the keys, limits and deletions that a call was admitted by were read, by the database's clock. `None` for work
/// that the replica starts itself; for this, deletions in progress are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmittedAt(pub Option<Timestamp>);

impl AdmittedAt {
    /// The value for the current task.
    pub(super) fn current() -> Option<Timestamp> {
        CURRENT.try_with(|known| *known).ok().flatten()
    }

    /// Runs `doing` with this value.
    pub fn scope<F: Future>(self, doing: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self.0, doing)
    }
}

/// The last read of something from the database.
#[derive(Debug, Default)]
pub struct LastRead(Mutex<Option<Read>>);

/// One read. Its time is not later than the snapshot that it saw.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// The time by the database's clock.
    pub at: Timestamp,
    /// When the query was sent, by the local monotonic clock, which also counts time during which the process is
    /// paused.
    pub sent_at: Instant,
}

impl Read {
    /// The current time by the database's clock, or slightly later: at most by the duration of the read.
    pub(super) fn now(self) -> Timestamp {
        self.at + self.sent_at.elapsed()
    }
}

impl LastRead {
    /// Records a read.
    pub fn note(&self, read: Read) {
        *self.lock() = Some(read);
    }

    /// Returns the time of the last read by the database's clock, or `None` if there was none.
    pub fn at(&self) -> Option<Timestamp> {
        self.lock().map(|read| read.at)
    }

    /// Returns whether the last read is not older than [`MAX_READ_AGE`].
    pub fn is_recent(&self) -> bool {
        self.lock().is_some_and(|read| read.sent_at.elapsed() <= MAX_READ_AGE)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Read>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_recent_for_ten_seconds() {
        let last = LastRead::default();
        assert!(!last.is_recent());
        let read = |ago| Read { at: Timestamp::UNIX_EPOCH, sent_at: Instant::now() - ago };
        last.note(read(MAX_READ_AGE - Duration::from_secs(1)));
        assert!(last.is_recent());
        last.note(read(MAX_READ_AGE + Duration::from_secs(1)));
        assert!(!last.is_recent());
    }
}
