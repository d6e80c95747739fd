//! What clients were told, and what is stored in the end: the two things that the checker compares.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tokio_postgres::Client;

use crate::harness::invariants::{Stored, read::read_all};

/// An answer that somebody got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// You own this turn.
    Granted {
        session: String,
        epoch: i64,
        how: &'static str,
    },
    /// What you wrote as the owner is committed.
    Wrote { mark: String },
    /// Your request began this turn.
    Admitted {
        session: String,
        request: String,
        turn: String,
    },
    /// Your message is in the queue.
    Queued(Queueing),
    /// These messages are withdrawn.
    Withdrew {
        session: String,
        messages: Vec<String>,
    },
    /// The answers to these calls are accepted.
    Accepted { session: String, calls: Vec<String> },
    /// This live turn is going to be cancelled.
    Cancelled { session: String, turn: String },
    /// This configuration is in force.
    Updated {
        session: String,
        request: String,
        revision: i64,
    },
    /// These messages are appended.
    Imported {
        session: String,
        messages: Vec<String>,
    },
    /// This session is a copy of the other one up to that seq.
    Forked {
        session: String,
        from: String,
        at: i64,
    },
    /// The session is gone.
    Deleted { session: String, seq: i64 },
    /// This compaction is in force, or is no more.
    Compacted {
        session: String,
        compaction: String,
        reverted: bool,
    },
    /// The database refused it for a reason that no guard explains.
    Refused { what: String },
}

/// What an enqueue was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Queueing {
    pub session: String,
    pub request: String,
    pub message: String,
    /// It waited when the answer was made.
    pub pending: bool,
    /// It was for the turn that was live then, not for one behind it.
    pub asap: bool,
    /// That turn.
    pub met: Option<String>,
    /// It was to start a turn under this revision if the session was idle, and did.
    pub start: Option<(i64, bool)>,
}

/// Everything that anybody was told, in the order in which it was heard.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<Vec<Told>>);

impl History {
    pub(super) fn tell(&self, told: Told) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(told);
    }

    pub(super) fn all(&self) -> Vec<Told> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// All sessions, with the words by which a queued message is found in the transcript: its id, which
/// the messages that take it consist of.
pub(super) async fn stored(client: &Client) -> BTreeMap<String, Stored> {
    let mut all = read_all(client).await;
    for session in all.values_mut() {
        for queued in &mut session.queue {
            queued.words = Some(queued.id.clone());
        }
    }
    all
}
