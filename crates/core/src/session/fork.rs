//! Forks: sessions that start with the transcript of another session up to a seq.
//!
//! A fork is copied in pieces. Until it is complete it is stored as a deleted session with a lease: readers do not see
//! it, no other session gets its id, and the purge removes it after its lease has expired. Its turn id identifies the
//! call that copies it.

use std::time::Duration;

use super::{
    Session, SessionState,
    change::Change,
    counters::TokenCounters,
    creation::{self, NewSession},
    fork_rows::Forked,
};
use crate::model::{Seq, SessionId, TurnId};

#[cfg(test)]
mod tests;

/// Prefix of a claim. No turn id begins with it.
pub const CLAIM: &str = "fork:";

/// A fork that is being copied.
#[derive(Debug, Clone, Copy)]
pub struct ForkCopy<'a> {
    /// The session to copy.
    pub source: &'a SessionId,
    /// Copy up to this seq.
    pub at: Seq,
    /// Identifies the call that copies: [`CLAIM`] and a unique suffix.
    pub claim: &'a TurnId,
    /// Duration of the claim from each commit on.
    pub lease: Duration,
}

/// A range of messages to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// The messages after the first seq, up to the second. `None` means no messages.
    pub seqs: Option<(Seq, Seq)>,
    /// The counters of those messages that are part of the prompt.
    pub shift: TokenCounters,
}

/// Claims the id of a fork, and copies its first messages. `context_version` is that of the source.
pub fn claim<'a>(new: &NewSession<'a>, forking: &ForkCopy<'a>, context_version: i64, first: &CopyRange) -> Change<'a> {
    let mut change = creation::create(new);
    add(&mut change, forking, first);
    let becoming = &mut change.session;
    becoming.state = SessionState::Deleted;
    becoming.turn = Some(forking.claim.clone());
    becoming.next_seq = Seq(forking.at.0 + 1);
    becoming.context_version = context_version;
    change
}

/// Copies the next messages. Returns `None` if the claim has expired.
pub fn copy<'a>(session: &Session, forking: &ForkCopy<'a>, piece: &CopyRange) -> Option<Change<'a>> {
    let mut change = claimed(session, forking.claim).filter(|_| !session.lease_is_over)?;
    add(&mut change, forking, piece);
    Some(change)
}

/// Turns a fork into a session after all messages were copied. Returns `None` if the claim has expired.
pub fn open<'a>(session: &Session, forking: &ForkCopy<'a>) -> Option<Change<'a>> {
    let mut change = claimed(session, forking.claim).filter(|_| !session.lease_is_over)?;
    change.fork = Some(Forked { source: forking.source, at: forking.at, copies: None, opens: true });
    change.lease = Some(Duration::ZERO);
    change.is_use = true;
    change.session.lease_is_over = true;
    change.session.state = SessionState::Idle;
    change.session.turn = None;
    Some(change)
}

/// Gives up a fork, so that it can be purged immediately. Returns `None` if it is complete, or another call has claimed
/// it.
pub fn give_up(session: &Session, claim: &TurnId) -> Option<Change<'static>> {
    let mut change = claimed(session, claim)?;
    change.lease = Some(Duration::ZERO);
    change.session.lease_is_over = true;
    change.session.fence.op += 1;
    Some(change)
}

/// Gives up a fork whose lease has expired. A call that is still copying it can then write nothing more, because the
/// session has changed. Returns `None` if the session is not such a fork.
pub fn abandon(session: &Session) -> Option<Change<'static>> {
    let claim = session.turn.as_ref()?;
    let is_abandoned = claim.as_str().starts_with(CLAIM) && session.lease_is_over;
    is_abandoned.then(|| give_up(session, claim)).flatten()
}

fn claimed(session: &Session, claim: &TurnId) -> Option<Change<'static>> {
    let is_claimed = session.state == SessionState::Deleted && session.turn.as_ref() == Some(claim);
    is_claimed.then(|| Change::of(session))
}

fn add<'a>(change: &mut Change<'a>, forking: &ForkCopy<'a>, piece: &CopyRange) {
    change.fork = Some(Forked { source: forking.source, at: forking.at, copies: piece.seqs, opens: false });
    change.lease = Some(forking.lease);
    change.session.lease_is_over = false;
    change.change_counters(&piece.shift);
}
