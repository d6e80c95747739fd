//! What a replica knows of deleted tenants and revoked keys, and since when: a call that was admitted
//! by what was known before a tenant was deleted creates nothing for it, however long the process
//! stood still in between.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{Error, row::get};

/// For how long a replica admits calls by what it last read of keys, limits and deletions. With the
/// longest time that a statement may take by default, it makes [`super::erasure::SETTLED`].
pub const KNOWN_FOR: Duration = Duration::from_secs(10);

tokio::task_local! {
    static CURRENT: Option<Timestamp>;
}

/// When keys, limits and deletions were read by which a call was admitted, by the database's clock.
/// `None` where there was no call: what a replica does by itself is held to the deletions that go
/// on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmittedAt(pub Option<Timestamp>);

impl AdmittedAt {
    /// That of what is being done.
    pub(super) fn current() -> Option<Timestamp> {
        CURRENT.try_with(|known| *known).ok().flatten()
    }

    /// Does something that was admitted by what was known then.
    pub async fn scope<F: Future>(self, doing: F) -> F::Output {
        CURRENT.scope(self.0, doing).await
    }
}

/// When something was last read from the database.
#[derive(Debug, Default)]
pub struct LastRead(Mutex<Option<Read>>);

/// One read: a moment at or before that of what it saw.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// By the database's clock.
    pub at: Timestamp,
    /// By the clock here, which goes on while the process stands still.
    pub asked: Instant,
}

impl Read {
    /// The time by the database's clock, or a little more: by as much as the read was on its way.
    pub(super) fn now(self) -> Timestamp {
        self.at + self.asked.elapsed()
    }
}

impl LastRead {
    /// Notes a read.
    pub fn note(&self, read: Read) {
        *self.lock() = Some(read);
    }

    /// When it was, by the database's clock. `None`: there was none.
    pub fn at(&self) -> Option<Timestamp> {
        self.lock().map(|read| read.at)
    }

    /// Whether it is not older than [`KNOWN_FOR`].
    pub fn is_recent(&self) -> bool {
        self.lock()
            .is_some_and(|read| read.asked.elapsed() <= KNOWN_FOR)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Read>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A version, and when it was read.
pub(super) fn version(rows: &[Row], asked: Instant, of: &str) -> Result<(i64, Read), Error> {
    let missing = || Error::Corrupt(format!("the version of {of} is not there"));
    let row = rows.first().ok_or_else(missing)?;
    let at = get(row, "at")?;
    Ok((get(row, "version")?, Read { at, asked }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_recent_for_ten_seconds() {
        let last = LastRead::default();
        assert!(!last.is_recent());
        let read = |ago| Read {
            at: Timestamp::UNIX_EPOCH,
            asked: Instant::now() - ago,
        };
        last.note(read(KNOWN_FOR - Duration::from_secs(1)));
        assert!(last.is_recent());
        last.note(read(KNOWN_FOR + Duration::from_secs(1)));
        assert!(!last.is_recent());
    }
}
