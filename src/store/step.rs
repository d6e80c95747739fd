//! The owner's way from one step to the next: a step is made for one revision of the configuration,
//! and says which.

use std::sync::LazyLock;

use super::{
    Error, Store,
    named_parameters::{self, Named},
    pipeline::Param,
    rows::Key,
    turn::FenceValues,
    written::{Ack, Fenced},
};
use crate::model::{SessionKey, TurnFence};

/// A step that is about to begin.
#[derive(Debug, Clone, Copy)]
pub struct NewStep<'a> {
    /// The revision it is made for.
    pub revision: i64,
    /// Begin it also if another revision came in force meanwhile.
    pub in_any_case: bool,
    /// The encoded `step_started`.
    pub started: &'a [u8],
    /// What the size of its prompt has beside that of the transcript.
    pub size_offset: i64,
}

/// The outcome of the beginning of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// It is committed.
    Applied(Ack),
    /// Another revision is in force: look again. Nothing was written.
    Moved,
    /// Another owner has the session.
    Fenced,
}

/// The first one compares the fence and answers.
pub(super) static BEGIN_STEP: LazyLock<Vec<Named>> = named![
    "sql/begin_step/run.sql",
    "sql/begin_step/event.sql",
    "sql/begin_step/turn.sql",
];

impl Store {
    /// Begins the next step, if the configuration it is made for is still in force.
    pub async fn begin_step(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        step: &NewStep<'_>,
    ) -> Result<Begun, Error> {
        let NewStep {
            revision,
            in_any_case,
            started,
            size_offset,
        } = *step;
        let key = Key::from(key);
        let lease = self.lease.as_secs_f64();
        let binding = !in_any_case;
        let fence = FenceValues::new(self, right);
        let mut values = vec![
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
        ];
        values.extend(fence.values());
        values.extend([
            ("revision", &revision as Param<'_>),
            ("binding", &binding),
            ("payload", &started),
            ("offset", &size_offset),
            ("lease", &lease),
        ]);
        let queries = named_parameters::queries(&BEGIN_STEP, &values, |_| true)?;
        match self.fenced_write(&key, right, &queries, 0).await? {
            Fenced::Applied(ack) => Ok(Begun::Applied(ack)),
            Fenced::Refused => Ok(Begun::Moved),
            Fenced::Gone => Ok(Begun::Fenced),
        }
    }
}
