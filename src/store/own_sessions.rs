//! The sessions that this replica wrote lately, as the admission or its own last commit left them: what it
//! writes next is decided from memory. A commit compares the version, so a session that is out of date here
//! costs one lost race. What a session here refuses is asked again of the database.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    model::SessionKey,
    session::{Session, Version},
};

/// How many sessions each of two generations has at most.
const MOST: usize = 5_000;

/// Sessions by their keys.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnSessions(Arc<Mutex<Generations>>);

/// The newer one takes what is written; when it is full it becomes the older one, which is forgotten.
#[derive(Debug, Default)]
struct Generations {
    newer: HashMap<SessionKey, (Version, Session)>,
    older: HashMap<SessionKey, (Version, Session)>,
}

impl OwnSessions {
    /// A session as it was left.
    pub(super) fn get(&self, key: &SessionKey) -> Option<(Version, Session)> {
        let kept = self.lock();
        kept.newer.get(key).or_else(|| kept.older.get(key)).cloned()
    }

    /// Keeps a session as it was left.
    pub(super) fn keep(&self, key: &SessionKey, version: Version, session: Session) {
        let mut kept = self.lock();
        if kept.newer.len() >= MOST && !kept.newer.contains_key(key) {
            kept.older = std::mem::take(&mut kept.newer);
        }
        kept.newer.insert(key.clone(), (version, session));
    }

    /// Forgets a session.
    pub(super) fn forget(&self, key: &SessionKey) {
        let mut kept = self.lock();
        kept.newer.remove(key);
        kept.older.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{SessionId, TenantId},
        session::samples::running,
    };

    fn key(n: usize) -> SessionKey {
        SessionKey::new(TenantId::new("t"), SessionId::new(format!("s{n}")))
    }

    #[test]
    fn those_that_were_written_last_are_kept_and_no_more_than_two_generations() {
        let own = OwnSessions::default();
        for n in 0..3 * MOST {
            own.keep(&key(n), Version(n.to_string()), running());
        }
        let newest = key(3 * MOST - 1);
        let version = own.get(&newest).map(|(version, _)| version.0);
        assert_eq!(version, Some((3 * MOST - 1).to_string()));
        assert!(own.get(&key(MOST)).is_some(), "the older generation");
        assert!(own.get(&key(0)).is_none(), "more than is kept");
        let kept = own.lock();
        assert!(kept.newer.len() <= MOST && kept.older.len() <= MOST);
        drop(kept);
        own.forget(&newest);
        assert!(own.get(&newest).is_none());
    }
}
