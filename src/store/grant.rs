//! Grants: the right to write for a session, as a commit or a row has it.

use tokio_postgres::Row;

use super::{Error, row::get};
use crate::{
    model::{Fence, Seq, TurnFence, TurnId},
    session::Session,
};

/// The right to write for a session, as it was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The fence of the first statement.
    pub fence: Fence,
    /// The turn.
    pub turn: TurnId,
    /// The newest seq.
    pub last_seq: Seq,
}

impl Grant {
    /// That of the owner of a session's live turn, as the session became.
    pub(super) fn of(session: &Session) -> Option<Self> {
        Some(Self {
            fence: session.fence,
            turn: session.live_turn()?.clone(),
            last_seq: session.last_seq(),
        })
    }

    /// What the first statement under this grant carries.
    pub fn right(&self) -> TurnFence<'_> {
        TurnFence {
            turn: &self.turn,
            fence: self.fence,
        }
    }
}

/// That of the owner of a live turn, by its row.
pub(super) fn grant(row: &Row) -> Result<Grant, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    Ok(Grant {
        fence: Fence {
            epoch: get(row, "epoch")?,
            op: get(row, "op")?,
        },
        turn: TurnId::new(get::<String>(row, "turn_id")?),
        last_seq: Seq(next_seq - 1),
    })
}
