//! What a turn starts from.

use crate::{
    context::size::Counters,
    model::SessionConfig,
    session::creation::FIRST_REVISION,
    store::{
        owned::{Owned, Revision},
        session::Session,
        session_memory::Basis,
    },
};

/// The configuration that a turn begins with, and what is known of the size of the transcript.
#[derive(Debug, Clone, Copy)]
pub(in crate::turn) struct StartingPoint<'a> {
    pub(in crate::turn) config: &'a SessionConfig,
    pub(in crate::turn) revision: i64,
    pub(in crate::turn) counters: Counters<'a>,
}

impl<'a> StartingPoint<'a> {
    /// A session that is to be created.
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

    /// What follows a turn that runs here.
    pub(in crate::turn) fn after(owned: &'a Owned) -> Self {
        let Revision { number, config } = owned.in_force();
        Self {
            config,
            revision: *number,
            counters: owned.into(),
        }
    }

    /// A session as it was read.
    pub(in crate::turn) fn of(session: &'a Session) -> Self {
        Self {
            config: &session.config,
            revision: session.revision,
            counters: session.into(),
        }
    }

    /// A session as it was read, or as this replica has left it.
    pub(in crate::turn) fn of_basis(basis: &'a Basis) -> Self {
        let Revision { number, config } = &*basis.revision;
        Self {
            config,
            revision: *number,
            counters: basis.into(),
        }
    }
}
