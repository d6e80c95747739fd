//! How much of its open messages this replica has shared, and which are wanted.

use std::{collections::BTreeMap, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use crate::{
    codec,
    model::{SessionKey, TurnId, delta::Stretch},
    store::{chunk::NewChunk, lease::Held},
    turn::live::{
        followed::Followed,
        hub::{Channel, Shown},
    },
};

/// How much of its open messages this replica has written down, and which of them are wanted.
#[derive(Debug, Default)]
pub(in crate::turn) struct Sharing {
    pub(super) shared: Mutex<BTreeMap<SessionKey, Shared>>,
    pub(super) followed: std::sync::Mutex<Followed>,
}

impl Sharing {
    /// Notes that another replica follows the session for so long. Whether that is news.
    pub(in crate::turn) fn follow(&self, key: SessionKey, lasts: Duration) -> bool {
        self.followed().follow(key, lasts, Instant::now())
    }

    /// Wake-ups are heard from now on. `missed`: one that was sent before may matter still, and is
    /// repeated within so long.
    pub(in crate::turn) fn hears_from_now(&self, missed: bool, repeated: Duration) {
        self.followed()
            .hears_from_now(missed.then(|| Instant::now() + repeated));
    }

    /// Wake-ups are no longer heard.
    pub(in crate::turn) fn hears_nothing(&self) {
        self.followed().hears_nothing();
    }

    pub(super) fn followed(&self) -> std::sync::MutexGuard<'_, Followed> {
        self.followed
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// How much of one session's open message is written down.
#[derive(Debug)]
pub(super) struct Shared {
    turn: TurnId,
    epoch: i64,
    pub(in crate::turn) shown: Shown,
    pub(in crate::turn) n: i32,
    /// The chunk that is being written. One that gave no answer is written again unchanged, since
    /// it may be there.
    pub(in crate::turn) unsent: Option<NewChunk>,
}

impl Shared {
    pub(in crate::turn) fn new(held: &Held) -> Self {
        Self {
            turn: held.turn.clone(),
            epoch: held.epoch,
            shown: Shown::default(),
            n: 0,
            unsent: None,
        }
    }

    /// Whether it is of this lease.
    pub(in crate::turn) fn is_of(&self, held: &Held) -> bool {
        self.turn == held.turn && self.epoch == held.epoch
    }

    /// The chunk to write now.
    pub(in crate::turn) fn next(
        &mut self,
        key: &SessionKey,
        channel: &Channel,
    ) -> Option<&NewChunk> {
        let before = self.shown.message().cloned();
        if self.unsent.is_none()
            && let Some(stretch) = channel.stretch(&mut self.shown)
        {
            self.n = if self.shown.message() == before.as_ref() {
                self.n + 1
            } else {
                1
            };
            self.unsent = self.chunk(key, &stretch);
        }
        self.unsent.as_ref()
    }

    fn chunk(&self, key: &SessionKey, stretch: &Stretch) -> Option<NewChunk> {
        Some(NewChunk {
            key: key.clone(),
            turn: self.turn.clone(),
            epoch: self.epoch,
            message: stretch.message()?.clone(),
            n: self.n,
            body: codec::delta::encode_stretch(stretch),
        })
    }
}
