//! Forks: sessions that begin with what another one had said up to a seq.
//!
//! A fork is copied in pieces. Until it is complete it is stored as a deleted session with a lease: no reader sees it,
//! nobody else gets its id, and the purge removes it once its lease has run out. Its turn names the call that copies it.

use std::time::Duration;

use super::{
    Session, SessionState,
    change::Change,
    counters::Shift,
    creation::{self, NewSession},
    fork_rows::Forked,
};
use crate::model::{Seq, SessionId, TurnId};

#[cfg(test)]
mod tests;

/// The beginning of a claim. No turn has such an id.
pub const CLAIM: &str = "fork:";

/// A fork that is being copied.
#[derive(Debug, Clone, Copy)]
pub struct Forking<'a> {
    /// The session that is copied.
    pub source: &'a SessionId,
    /// Up to where.
    pub at: Seq,
    /// Who copies it: [`CLAIM`] and something unique.
    pub claim: &'a TurnId,
    /// How long the claim lasts from each commit on.
    pub lease: Duration,
}

/// The next messages of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The messages after the first seq, up to the second one. `None`: there are none.
    pub seqs: Option<(Seq, Seq)>,
    /// What those of them that the model sees add up to.
    pub shift: Shift,
}

/// Claims the id of a fork, and copies its first messages. `context_version` is that of the source.
pub fn claim<'a>(
    new: &NewSession<'a>,
    forking: &Forking<'a>,
    context_version: i64,
    first: &Piece,
) -> Change<'a> {
    let mut change = creation::create(new);
    add(&mut change, forking, first);
    let becoming = &mut change.session;
    becoming.state = SessionState::Deleted;
    becoming.turn = Some(forking.claim.clone());
    becoming.next_seq = Seq(forking.at.0 + 1);
    becoming.context_version = context_version;
    change
}

/// Copies the next messages. `None`: the claim has run out.
pub fn copy<'a>(session: &Session, forking: &Forking<'a>, piece: &Piece) -> Option<Change<'a>> {
    let mut change = claimed(session, forking.claim).filter(|_| !session.lease_is_over)?;
    add(&mut change, forking, piece);
    Some(change)
}

/// Makes a fork whose messages are all copied a session. `None`: the claim has run out.
pub fn open<'a>(session: &Session, forking: &Forking<'a>) -> Option<Change<'a>> {
    let mut change = claimed(session, forking.claim).filter(|_| !session.lease_is_over)?;
    change.fork = Some(Forked {
        source: forking.source,
        at: forking.at,
        copies: None,
        opens: true,
    });
    change.lease = Some(Duration::ZERO);
    change.is_use = true;
    change.session.lease_is_over = true;
    change.session.state = SessionState::Idle;
    change.session.turn = None;
    Some(change)
}

/// Gives up a fork, so that it may be purged at once. `None`: it is complete, or another call has claimed it.
pub fn give_up(session: &Session, claim: &TurnId) -> Option<Change<'static>> {
    let mut change = claimed(session, claim)?;
    change.lease = Some(Duration::ZERO);
    change.session.lease_is_over = true;
    change.session.fence.op += 1;
    Some(change)
}

/// Gives up a fork whose lease is over. A call that still copies it can then write nothing more, because the session has
/// changed. `None`: the session is no such fork.
pub fn abandon(session: &Session) -> Option<Change<'static>> {
    let claim = session.turn.as_ref()?;
    let is_abandoned = claim.as_str().starts_with(CLAIM) && session.lease_is_over;
    is_abandoned.then(|| give_up(session, claim)).flatten()
}

fn claimed(session: &Session, claim: &TurnId) -> Option<Change<'static>> {
    let is_claimed = session.state == SessionState::Deleted && session.turn.as_ref() == Some(claim);
    is_claimed.then(|| Change::of(session))
}

fn add<'a>(change: &mut Change<'a>, forking: &Forking<'a>, piece: &Piece) {
    change.fork = Some(Forked {
        source: forking.source,
        at: forking.at,
        copies: piece.seqs,
        opens: false,
    });
    change.lease = Some(forking.lease);
    change.session.lease_is_over = false;
    change.shift_by(&piece.shift);
}
