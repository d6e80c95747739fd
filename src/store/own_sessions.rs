//! The sessions that this replica wrote lately, as the admission or its own last commit left them: what it
//! writes next is decided from memory. A commit compares the version, so a session that is out of date here
//! costs one lost race, also after a failover: a version names the server that gave it. What a session here
//! refuses is asked again of the database.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    model::SessionKey,
    session::{Session, Version},
};

/// How many sessions, and messages that wait in them, each of two generations has at most: some 5 MB.
const MOST: usize = 5_000;

/// Sessions by their keys.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnSessions(Arc<Mutex<Generations>>);

/// The newer one takes what is written; when it is full it becomes the older one, which is forgotten.
#[derive(Debug, Default)]
struct Generations {
    newer: HashMap<SessionKey, (Version, Session)>,
    /// What the newer one has.
    weight: usize,
    older: HashMap<SessionKey, (Version, Session)>,
}

impl Generations {
    fn forget(&mut self, key: &SessionKey) {
        if let Some((_, session)) = self.newer.remove(key) {
            self.weight -= weight(&session);
        }
        self.older.remove(key);
    }
}

fn weight(session: &Session) -> usize {
    1 + session.queue.len()
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
        kept.forget(key);
        kept.weight += weight(&session);
        if kept.weight > MOST {
            kept.older = std::mem::take(&mut kept.newer);
            kept.weight = weight(&session);
        }
        kept.newer.insert(key.clone(), (version, session));
    }

    /// Forgets a session.
    pub(super) fn forget(&self, key: &SessionKey) {
        self.lock().forget(key);
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
        session::samples::{asap, running},
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

    #[test]
    fn messages_that_wait_count_as_much_as_sessions_and_a_session_once() {
        let own = OwnSessions::default();
        let full = Session {
            queue: vec![asap("m"); 1_000],
            ..running()
        };
        for n in 0..100 {
            own.keep(&key(n % 3), Version(n.to_string()), full.clone());
        }
        assert!((0..3).all(|n| own.get(&key(n)).is_some()), "written again");
        for n in 3..20 {
            own.keep(&key(n), Version(n.to_string()), full.clone());
        }
        let kept = own.lock();
        assert_eq!((kept.newer.len(), kept.older.len()), (4, 4));
        assert_eq!(kept.weight, 4 * 1_001);
    }
}
