//! The state that a turn starts from.

use crate::{
    context::size::Counters,
    model::SessionConfig,
    session::creation::FIRST_REVISION,
    store::{
        owned::{OwnedTurn, Revision},
        session::Session,
        session_memory::PrepareInput,
    },
};

/// The configuration that a turn begins with, and the counters of the transcript.
#[derive(Debug, Clone, Copy)]
pub(in crate::turn) struct StartingPoint<'a> {
    pub(in crate::turn) config: &'a SessionConfig,
    pub(in crate::turn) revision: i64,
    pub(in crate::turn) counters: Counters<'a>,
}

impl<'a> StartingPoint<'a> {
    /// A new session.
    pub(in crate::turn) fn new(config: &'a SessionConfig) -> Self {
        let counters = Counters {
            transcript_tokens: 0,
            context_version: 0,
            anchor: None,
        };
        Self {
            config,
            revision: FIRST_REVISION,
            counters,
        }
    }

    /// The state after a turn that runs here.
    pub(in crate::turn) fn after(owned: &'a OwnedTurn) -> Self {
        let Revision { number, config } = owned.in_force();
        Self {
            config,
            revision: *number,
            counters: owned.into(),
        }
    }

    /// A session as read.
    pub(in crate::turn) fn of(session: &'a Session) -> Self {
        Self {
            config: &session.config,
            revision: session.revision,
            counters: session.into(),
        }
    }

    /// A session as read, or from this replica's memory.
    pub(in crate::turn) fn of_basis(basis: &'a PrepareInput) -> Self {
        let Revision { number, config } = &*basis.revision;
        Self {
            config,
            revision: *number,
            counters: basis.into(),
        }
    }
}
