//! The state of text sharing: how much of its open messages this replica has stored, and which
//! sessions are followed.

use std::collections::BTreeMap;

use tokio::sync::Mutex;

use crate::{
    codec,
    model::{SessionKey, TurnId, delta::DeltaBatch},
    store::{chunk::NewChunk, lease::HeldTurn},
    turn::live::{
        followed::FollowedSessions,
        hub::{Channel, SentPosition},
    },
};

/// How much of its open messages this replica has stored, and which sessions are followed.
#[derive(Debug, Default)]
pub(in crate::turn) struct Sharing {
    pub(in crate::turn) shared: Mutex<BTreeMap<SessionKey, SharedMessage>>,
    pub(in crate::turn) followed: std::sync::Mutex<FollowedSessions>,
}

impl Sharing {
    pub(in crate::turn) fn followed(&self) -> std::sync::MutexGuard<'_, FollowedSessions> {
        self.followed.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// How much of one session's open message is stored.
#[derive(Debug)]
pub(in crate::turn) struct SharedMessage {
    turn: TurnId,
    epoch: i64,
    pub(in crate::turn) shown: SentPosition,
    pub(in crate::turn) n: i32,
    /// The chunk that is being written. If the response is lost, it is written again unchanged,
    /// since it may be stored.
    pub(in crate::turn) unsent: Option<NewChunk>,
}

impl SharedMessage {
    pub(in crate::turn) fn new(held: &HeldTurn) -> Self {
        Self { turn: held.turn.clone(), epoch: held.epoch, shown: SentPosition::default(), n: 0, unsent: None }
    }

    /// Whether this state belongs to the lease.
    pub(in crate::turn) fn is_of(&self, held: &HeldTurn) -> bool {
        self.turn == held.turn && self.epoch == held.epoch
    }

    /// The chunk to write now. Returns `None` if there is no new text.
    pub(in crate::turn) fn next(&mut self, key: &SessionKey, channel: &Channel) -> Option<&NewChunk> {
        let before = self.shown.message().cloned();
        if self.unsent.is_none()
            && let Some(stretch) = channel.take_unshared_text(&mut self.shown)
        {
            self.n = if self.shown.message() == before.as_ref() { self.n + 1 } else { 1 };
            self.unsent = self.chunk(key, &stretch);
        }
        self.unsent.as_ref()
    }

    fn chunk(&self, key: &SessionKey, stretch: &DeltaBatch) -> Option<NewChunk> {
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
