//! Grants: the right of an owner to write to a session, decoded from a commit or a row.

use tokio_postgres::Row;

use super::{
    Error,
    row::{get, last_seq},
};
use crate::{
    model::{Fence, Seq, TurnFence, TurnId},
    session::Session,
};

/// The right of an owner to write to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The fence for the first statement.
    pub fence: Fence,
    pub turn: TurnId,
    pub last_seq: Seq,
}

impl Grant {
    /// The grant of the owner of the session's running turn. Returns `None` if no turn is running.
    pub(super) fn of(session: &Session) -> Option<Self> {
        Some(Self { fence: session.fence, turn: session.live_turn()?.clone(), last_seq: session.last_seq() })
    }

    /// Returns the fence that the first statement under this grant must carry.
    pub fn turn_fence(&self) -> TurnFence<'_> {
        TurnFence { turn: &self.turn, fence: self.fence }
    }
}

/// Decodes the grant of the owner of a running turn.
pub(super) fn grant(row: &Row) -> Result<Grant, Error> {
    Ok(Grant {
        fence: Fence { epoch: get(row, "epoch")?, op: get(row, "op")? },
        turn: TurnId::new(get::<String>(row, "turn_id")?),
        last_seq: last_seq(row)?,
    })
}
