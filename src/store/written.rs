//! The outcome of an owner's write.

use crate::model::Seq;
use crate::session::SessionState;

/// What the hot row says after an owner's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Where the session stands now.
    pub state: SessionState,
    /// A cancel of the turn was requested.
    pub cancelled: bool,
    /// The newest seq.
    pub last_seq: Seq,
}

/// The outcome of an owner's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is committed.
    Applied(Ack),
    /// Another owner has the session: nothing was written, and nothing more may be.
    Fenced,
}

/// The outcome of a write under a fence that may also depend on what others write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fenced {
    /// It is committed.
    Applied(Ack),
    /// The fence is in force, but a condition was not met: nothing was written.
    Refused,
    /// Another owner has the session.
    Gone,
}
