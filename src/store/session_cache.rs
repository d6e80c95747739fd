//! A cache of the sessions that this replica wrote recently, as its last commit left them. The next change is decided
//! from this copy, and the data that the session's turns read is cached too. A commit compares the session's version,
//! so an outdated copy costs one lost race, also after a failover: no version is used twice. If a cached session
//! refuses a change, the session is read from the database and the change is decided again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{generations::Generations, session_memory::SessionMemory};
use crate::{
    model::SessionKey,
    session::{Session, Version},
};

/// Maximum number of sessions, plus messages in their queues, in each of two generations. This is about 5 MB.
const MAX_SESSIONS: usize = 5_000;
/// One session may use at most this fraction of the memory limit for turn data: 1/8.
const MEMORY_SHARE_DIVISOR: usize = 8;

/// Cached sessions by key.
#[derive(Debug, Clone)]
pub(super) struct SessionCache {
    kept: Arc<Mutex<Kept>>,
    /// Limit for turn data, in bytes.
    memory: usize,
}

/// A cached session and the data that its turns read.
#[derive(Debug)]
pub(super) struct CachedSession {
    /// The version written by the last commit.
    pub(super) version: Version,
    pub(super) session: Session,
    /// The data that its turns read.
    pub(super) memory: SessionMemory,
}

#[derive(Debug)]
struct Kept {
    sessions: Generations<(Version, Session)>,
    memories: Generations<(Version, SessionMemory)>,
}

impl SessionCache {
    /// Creates an empty cache. `memory` is the limit for turn data in bytes.
    pub(super) fn new(memory: usize) -> Self {
        let kept = Kept { sessions: Generations::new(MAX_SESSIONS), memories: Generations::new(memory / 2) };
        Self { kept: Arc::new(Mutex::new(kept)), memory }
    }

    /// Returns a session, if it is cached.
    pub(super) fn get(&self, key: &SessionKey) -> Option<(Version, Session)> {
        self.lock().sessions.get(key).cloned()
    }

    /// Returns a session with its turn data, if both are cached.
    pub(super) fn remembered(&self, key: &SessionKey) -> Option<CachedSession> {
        let kept = self.lock();
        let (version, session) = kept.sessions.get(key)?;
        let (of, memory) = kept.memories.get(key)?;
        (of == version).then(|| CachedSession { version: *version, session: session.clone(), memory: memory.clone() })
    }

    /// Removes and returns the turn data of a session, if it belongs to this version.
    pub(super) fn take_memory(&self, key: &SessionKey, version: Version) -> Option<SessionMemory> {
        let (of, memory) = self.lock().memories.take(key)?;
        (of == version).then_some(memory)
    }

    /// Stores a session after a commit. Each message in its queue has the same weight as a session.
    pub(super) fn keep(&self, key: &SessionKey, (version, session): (Version, Session), memory: Option<SessionMemory>) {
        let weight = 1 + session.queue.len();
        let mut kept = self.lock();
        kept.sessions.keep(key, (version, session), weight);
        match memory {
            Some(memory) => self.remember(&mut kept, key, (version, memory)),
            None => drop(kept.memories.take(key)),
        }
    }

    /// Adds turn data that was read from the database, if the session is cached in the same version.
    pub(super) fn attach(&self, key: &SessionKey, version: Version, memory: SessionMemory) {
        let mut kept = self.lock();
        let here = kept.sessions.get(key).map(|(version, _)| *version);
        if here == Some(version) {
            self.remember(&mut kept, key, (version, memory));
        }
    }

    /// Returns whether the turn data of one session may have this size in bytes.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        bytes <= self.memory / MEMORY_SHARE_DIVISOR
    }

    fn remember(&self, kept: &mut Kept, key: &SessionKey, (version, memory): (Version, SessionMemory)) {
        let weight = memory.weight();
        if self.has_room_for(weight) {
            kept.memories.keep(key, (version, memory), weight);
        } else {
            kept.memories.take(key);
        }
    }

    /// Drops the turn data of sessions that were not written since the previous call.
    pub(super) fn forget_unused(&self) {
        self.lock().memories.age();
    }

    /// Removes a session from the cache.
    pub(super) fn forget(&self, key: &SessionKey) {
        let mut kept = self.lock();
        kept.sessions.take(key);
        kept.memories.take(key);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
