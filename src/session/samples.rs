//! Sessions for tests.

use jiff::Timestamp;

use super::{Session, SessionState};
use crate::model::{Fence, Seq, TurnId};

/// When the turn's time is up, in seconds.
pub(super) const TURN_ENDS: i64 = 1_000;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// One whose turn waits for so many calls.
pub(super) fn waiting(open_calls: u32) -> Session {
    Session {
        state: SessionState::AwaitingTools,
        fence: Fence { epoch: 5, op: 9 },
        written_by: Some("there".to_owned()),
        owner: None,
        lease_is_over: true,
        takeovers: 1,
        cancel: None,
        turn: Some(TurnId::new("turn")),
        step: 2,
        attempt: 3,
        open_calls,
        wake_at: Some(at(100)),
        turn_deadline: Some(at(TURN_ENDS)),
        next_seq: Seq(40),
        revision: 7,
        context_tokens: 1_000,
    }
}

/// One whose turn is run by `there`.
pub(super) fn running() -> Session {
    Session {
        state: SessionState::Running,
        owner: Some("there".to_owned()),
        lease_is_over: false,
        wake_at: None,
        ..waiting(0)
    }
}
