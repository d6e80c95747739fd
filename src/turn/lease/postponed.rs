//! Sessions whose turn could not be taken over or started, with their backoff.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{model::SessionKey, turn::error::Error};

/// The first backoff of a session. It doubles with each failure.
const MIN_BACKOFF: Duration = Duration::from_secs(1);

/// The longest backoff.
const MAX_BACKOFF: Duration = Duration::from_mins(5);

/// Most sessions with a backoff. Beyond that, a session is tried again in each round.
const MAX_POSTPONED: usize = 10_000;

/// Sessions whose turn could not be taken over, for example because a stored row cannot be read, or
/// whose queued message could not start one, for example because its model is no longer configured.
/// They are retried with an increasing backoff, so that they do not crowd out the others.
#[derive(Debug, Default)]
pub(in crate::turn) struct Postponed(Mutex<BTreeMap<SessionKey, Pause>>);

#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Postponed {
    /// Starts or doubles the backoff of a session, up to `most`. Returns whether it is the first
    /// failure.
    pub(in crate::turn) fn postpone(&self, key: &SessionKey, now: Instant, most: Duration) -> bool {
        let mut paused = self.lock();
        let before = paused.get(key).map(|pause| pause.length);
        if before.is_some() || paused.len() < MAX_POSTPONED {
            let length = before.map_or(MIN_BACKOFF, |length| (length * 2).min(most));
            paused.insert(key.clone(), Pause { until: now + length, length });
        }
        before.is_none()
    }

    pub(in crate::turn) fn forget(&self, key: &SessionKey) {
        self.lock().remove(key);
    }

    /// The sessions to skip now. A session that was due for `MAX_BACKOFF` without another failure
    /// is removed: its turn continued elsewhere.
    pub(in crate::turn) fn at(&self, now: Instant) -> Vec<SessionKey> {
        let mut paused = self.lock();
        paused.retain(|_, pause| now < pause.until + MAX_BACKOFF);
        paused.iter().filter(|(_, pause)| now < pause.until).map(|(key, _)| key.clone()).collect()
    }

    /// The sessions whose backoff has passed.
    pub(in crate::turn) fn due(&self, now: Instant) -> Vec<SessionKey> {
        let paused = self.lock();
        let is_due = |(_, pause): &(&SessionKey, &Pause)| pause.until <= now;
        paused.iter().filter(is_due).map(|(key, _)| key.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionKey, Pause>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longest backoff after this error. An error of a busy or unavailable database is unrelated to
/// the session.
pub(in crate::turn) fn max_backoff(error: &Error) -> Duration {
    let of_the_database = matches!(error, Error::Store(error) if error.is_transient());
    if of_the_database { MIN_BACKOFF } else { MAX_BACKOFF }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{SessionId, TenantId},
        store,
    };

    #[test]
    fn a_turn_that_cannot_be_taken_over_is_left_alone_for_longer_each_time() {
        let key = |n: usize| SessionKey::new(TenantId::new("t"), SessionId::new(n.to_string()));
        let postponed = Postponed::default();
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert!(postponed.postpone(&key(0), begun, MAX_BACKOFF));
        assert_eq!((postponed.at(begun), postponed.at(after(1))), (vec![key(0)], vec![]));
        assert_eq!((postponed.due(begun), postponed.due(after(1))), (vec![], vec![key(0)]));
        assert!(!postponed.postpone(&key(0), after(1), MAX_BACKOFF), "it is known");
        assert_eq!((postponed.at(after(2)), postponed.at(after(3))), (vec![key(0)], vec![]));
        for _ in 0..20 {
            postponed.postpone(&key(0), begun, MAX_BACKOFF);
        }
        assert_eq!((postponed.at(after(299)), postponed.at(after(300))), (vec![key(0)], vec![]));
        assert_eq!(postponed.at(after(600)), []);
        assert!(postponed.postpone(&key(0), after(600), MAX_BACKOFF), "it was forgotten");
        postponed.forget(&key(0));
        for _ in 0..20 {
            postponed.postpone(&key(0), begun, max_backoff(&Error::Store(store::Error::Busy)));
        }
        assert_eq!(postponed.at(after(1)), [], "a busy database lengthens no pause");
        postponed.forget(&key(0));
        for n in 0..=MAX_POSTPONED {
            postponed.postpone(&key(n), begun, MAX_BACKOFF);
        }
        assert_eq!(postponed.at(begun).len(), MAX_POSTPONED);
    }
}
