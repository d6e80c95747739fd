//! The outcome of an owner's write.

use crate::model::Seq;
use crate::session::SessionState;

/// State of the session row after an owner's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    pub state: SessionState,
    /// Whether a cancel of the turn was requested.
    pub cancelled: bool,
    pub last_seq: Seq,
}

/// The outcome of an owner's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    Applied(Ack),
    /// Another owner has the session. Nothing was written, and the caller must stop writing.
    Fenced,
}

/// The outcome of a write under a fence that may also depend on concurrent writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionalWriteOutcome {
    Applied(Ack),
    /// The fence is valid, but what the write was decided from has changed: read again. Nothing was written.
    Stale,
    /// Another owner has the session.
    Fenced,
}
