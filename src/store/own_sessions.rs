//! The sessions that this replica runs turns of, as its own last commits left them: what it writes next
//! is decided from memory. A commit compares the version, so what is kept here can be old, but never
//! does harm.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    model::SessionKey,
    session::{Session, Version, change::Change},
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

    /// Keeps what a commit left, where this replica has the turn from then on and knows the whole row.
    pub(super) fn keep(
        &self,
        key: &SessionKey,
        version: Version,
        change: &Change<'_>,
        replica: &str,
    ) {
        let mut kept = self.lock();
        // When somebody has to look at the calls is the database's to say then.
        let is_known = change.wake_within.is_none();
        let is_owned = change.session.is_owned_by(replica);
        let has_room = kept.len() < MOST || kept.contains_key(key);
        if is_known && is_owned && has_room {
            kept.insert(key.clone(), (version, change.session.clone()));
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
