//! The sessions that this replica wrote lately, as the admission or its own last commit left them: what it
//! writes next is decided from memory. A commit compares the version, so a session that is out of date here
//! costs one lost race, also after a failover: no version comes again. What a session here
//! refuses is asked again of the database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::generations::Generations;
use crate::{
    model::SessionKey,
    session::{Session, Version},
};

/// How many sessions, and messages that wait in them, each of two generations has at most: some 5 MB.
const MOST: usize = 5_000;

/// Sessions by their keys.
#[derive(Debug, Clone)]
pub(super) struct OwnSessions(Arc<Mutex<Generations<(Version, Session)>>>);

impl Default for OwnSessions {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Generations::new(MOST))))
    }
}

impl OwnSessions {
    /// A session as it was left.
    pub(super) fn get(&self, key: &SessionKey) -> Option<(Version, Session)> {
        self.lock().get(key).cloned()
    }

    /// Keeps a session as it was left. Messages that wait in it count as much as sessions.
    pub(super) fn keep(&self, key: &SessionKey, version: Version, session: Session) {
        let weight = 1 + session.queue.len();
        self.lock().keep(key, (version, session), weight);
    }

    /// Forgets a session.
    pub(super) fn forget(&self, key: &SessionKey) {
        self.lock().take(key);
    }

    fn lock(&self) -> MutexGuard<'_, Generations<(Version, Session)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
