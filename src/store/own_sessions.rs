//! The sessions that this replica runs turns of, as the admission or its own last commit left them: what it
//! writes next is decided from memory. A commit compares the version, so a session that is out of date here
//! does no harm.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    model::SessionKey,
    session::{Session, Version},
};

/// How many sessions are kept at most. Those that come later are read before each write.
const MOST: usize = 10_000;

/// Sessions by their keys.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnSessions(Arc<Mutex<HashMap<SessionKey, (Version, Session)>>>);

impl OwnSessions {
    /// A session as it was left.
    pub(super) fn get(&self, key: &SessionKey) -> Option<(Version, Session)> {
        self.lock().get(key).cloned()
    }

    /// Keeps a session as it was left, if the replica has its turn.
    pub(super) fn keep(&self, key: &SessionKey, version: Version, session: Session, replica: &str) {
        let mut kept = self.lock();
        let has_room = kept.len() < MOST || kept.contains_key(key);
        if session.is_owned_by(replica) && has_room {
            kept.insert(key.clone(), (version, session));
        } else {
            kept.remove(key);
        }
    }

    /// Forgets a session.
    pub(super) fn forget(&self, key: &SessionKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, (Version, Session)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
