//! Creates a session, either empty or with its first turn.

use super::{
    Session, SessionState,
    change::Change,
    config_rows::NewConfig,
    counters::TokenCounters,
    ownership::NewOwner,
    start::{self, NewTurn, StartFrom},
};
use crate::model::{Fence, Seq};

#[cfg(test)]
mod tests;

/// The first revision of a session's configuration.
pub const FIRST_REVISION: i64 = 1;

/// A session that is to be created.
#[derive(Debug, Clone, Copy)]
pub struct NewSession<'a> {
    pub config: NewConfig<'a>,
    /// The last epoch of a deleted session with this id; 0 if there was none. The new session starts after it, so that
    /// the fence of an owner of the deleted session is never valid again.
    pub last_epoch: i64,
}

impl NewSession<'_> {
    /// The session before any change.
    pub fn empty(&self) -> Session {
        Session {
            state: SessionState::Idle,
            fence: Fence { epoch: self.last_epoch, op: 0 },
            written_by: None,
            owner: None,
            lease_is_over: true,
            takeovers: 0,
            cancel: None,
            turn: None,
            step: 0,
            attempt: 0,
            open_calls: 0,
            wake_at: None,
            turn_deadline: None,
            next_seq: Seq(1),
            revision: FIRST_REVISION,
            counters: TokenCounters::default(),
            anchor: None,
            growth: None,
            context_version: 0,
            compaction: None,
            queue: Vec::new(),
        }
    }
}

/// Creates a session.
pub fn create<'a>(new: &NewSession<'a>) -> Change<'a> {
    creating(Change::of(&new.empty()), new)
}

/// Creates a session with its first turn. Returns `None` if the turn is based on another revision than the first.
pub fn admit<'a>(new: &NewSession<'a>, turn: &NewTurn<'a>, heir: NewOwner<'_>) -> Option<Change<'a>> {
    let admitted = start::admit(&new.empty(), turn, StartFrom::Input, heir)?;
    Some(creating(admitted, new))
}

fn creating<'a>(mut change: Change<'a>, new: &NewSession<'a>) -> Change<'a> {
    change.creates = true;
    change.is_use = true;
    change.config = Some(new.config);
    change
}
