//! The responses to clients and the final stored state, which the checker compares.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tokio_postgres::Client;

use crate::harness::invariants::{Stored, read::read_all};

/// A response that a client or replica received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// It owns this turn.
    Granted { session: String, epoch: i64, how: &'static str },
    /// Its write as the owner was committed.
    Wrote { mark: String },
    /// Its request started this turn.
    Admitted { session: String, request: String, turn: String },
    /// Its message is in the queue.
    Queued(Queueing),
    /// These messages were withdrawn.
    Withdrew { session: String, messages: Vec<String> },
    /// The results for these calls were accepted.
    Accepted { session: String, calls: Vec<String> },
    /// This live turn will be cancelled.
    Cancelled { session: String, turn: String },
    /// This configuration is in force.
    Updated { session: String, request: String, revision: i64 },
    /// These messages were appended.
    Imported { session: String, messages: Vec<String> },
    /// This session is a copy of the other one up to this seq.
    Forked { session: String, from: String, at: i64 },
    /// The session was deleted.
    Deleted { session: String, seq: i64 },
    /// This compaction was applied or reverted.
    Compacted { session: String, compaction: String, reverted: bool },
    /// The database refused the request for a reason that is not a guard.
    Refused { what: String },
}

/// The response to an enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Queueing {
    pub session: String,
    pub request: String,
    pub message: String,
    /// The message was pending when the response was created.
    pub pending: bool,
    /// The message is for the turn that was live then, not for a later one.
    pub asap: bool,
    pub met: Option<String>,
    /// If the message was to start a turn in an idle session: the revision, and whether it did.
    pub start: Option<(i64, bool)>,
}

/// All responses, in the order in which they were received.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<Vec<Told>>);

impl History {
    pub(super) fn tell(&self, told: Told) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }

    pub(super) fn all(&self) -> Vec<Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads all sessions, with the text by which a queued message is found in the transcript: its id, because the messages
/// that apply it consist of ids.
pub(super) async fn stored(client: &Client) -> BTreeMap<String, Stored> {
    let mut all = read_all(client).await;
    for session in all.values_mut() {
        for queued in &mut session.queue {
            queued.words = Some(queued.id.clone());
        }
    }
    all
}
