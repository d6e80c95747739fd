//! The sessions that this replica wrote lately, as the admission or its own last commit left them: what it
//! writes next is decided from memory, and what their turns read is kept beside them. A commit compares the version, so
//! a session that is out of date here costs one lost race, also after a failover: no version comes again. What a session
//! here refuses is asked again of the database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{generations::Generations, session_memory::SessionMemory};
use crate::{
    model::SessionKey,
    session::{Session, Version},
};

/// How many sessions, and messages that wait in them, each of two generations has at most: some 5 MB.
const MOST: usize = 5_000;
/// One session has at most this part of the memory for what turns read.
const MOST_OF_MEMORY: usize = 8;

/// Sessions by their keys.
#[derive(Debug, Clone)]
pub(super) struct OwnSessions {
    kept: Arc<Mutex<Kept>>,
    /// Bytes of what turns read.
    memory: usize,
}

/// A session as it was left, and what its turns read.
#[derive(Debug)]
pub(super) struct Remembered {
    /// The write that left it so.
    pub(super) version: Version,
    /// The session.
    pub(super) session: Session,
    /// What its turns read.
    pub(super) memory: SessionMemory,
}

#[derive(Debug)]
struct Kept {
    sessions: Generations<(Version, Session)>,
    memories: Generations<(Version, SessionMemory)>,
}

impl OwnSessions {
    /// None yet. `memory`: bytes of what turns read.
    pub(super) fn new(memory: usize) -> Self {
        let kept = Kept {
            sessions: Generations::new(MOST),
            memories: Generations::new(memory / 2),
        };
        Self {
            kept: Arc::new(Mutex::new(kept)),
            memory,
        }
    }

    /// A session as it was left.
    pub(super) fn get(&self, key: &SessionKey) -> Option<(Version, Session)> {
        self.lock().sessions.get(key).cloned()
    }

    /// The same, with what its turns read, if that is known.
    pub(super) fn remembered(&self, key: &SessionKey) -> Option<Remembered> {
        let kept = self.lock();
        let (version, session) = kept.sessions.get(key)?;
        let (of, memory) = kept.memories.get(key)?;
        (of == version).then(|| Remembered {
            version: *version,
            session: session.clone(),
            memory: memory.clone(),
        })
    }

    /// Takes out what the turns read of a session that has this version.
    pub(super) fn take_memory(&self, key: &SessionKey, version: Version) -> Option<SessionMemory> {
        let (of, memory) = self.lock().memories.take(key)?;
        (of == version).then_some(memory)
    }

    /// Keeps a session as it was left. Messages that wait in it count as much as sessions.
    pub(super) fn keep(
        &self,
        key: &SessionKey,
        (version, session): (Version, Session),
        memory: Option<SessionMemory>,
    ) {
        let weight = 1 + session.queue.len();
        let mut kept = self.lock();
        kept.sessions.keep(key, (version, session), weight);
        match memory {
            Some(memory) => self.remember(&mut kept, key, (version, memory)),
            None => drop(kept.memories.take(key)),
        }
    }

    /// Adds what was read from the database, if the session is here in the version that was read.
    pub(super) fn attach(&self, key: &SessionKey, version: Version, memory: SessionMemory) {
        let mut kept = self.lock();
        let here = kept.sessions.get(key).map(|(version, _)| *version);
        if here == Some(version) {
            self.remember(&mut kept, key, (version, memory));
        }
    }

    /// Whether what the turns of one session read may take so many bytes.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        bytes <= self.memory / MOST_OF_MEMORY
    }

    fn remember(
        &self,
        kept: &mut Kept,
        key: &SessionKey,
        (version, memory): (Version, SessionMemory),
    ) {
        let weight = memory.weight();
        if self.has_room_for(weight) {
            kept.memories.keep(key, (version, memory), weight);
        } else {
            kept.memories.take(key);
        }
    }

    /// Forgets what turns read of sessions that were not written since the last time.
    pub(super) fn forget_unused(&self) {
        self.lock().memories.age();
    }

    /// Forgets a session.
    pub(super) fn forget(&self, key: &SessionKey) {
        let mut kept = self.lock();
        kept.sessions.take(key);
        kept.memories.take(key);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
