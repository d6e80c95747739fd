//! The owner's writes before the end of its turn: a step begins, leaves its answer, or is tried again.
//! `session` decides, from the session as this replica left it where that is known; an answer that was
//! lost is asked for again.

use super::{
    Error, Store,
    commit::{Committed, LOST_RACES},
    seen::SeenSession,
    written::{Ack, Fenced, Written},
};
use crate::{
    model::{SessionKey, TurnFence, command::TurnRequest},
    session::{
        Session, Version, append,
        change::Change,
        cost::StepCost,
        new_calls::Batch,
        rows::Rows,
        steps::{self, NewStep, Owner, Standing},
    },
};

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

impl Store {
    /// Begins the next step, if the configuration it is made for is still in force.
    pub async fn begin_step(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        step: &NewStep<'_>,
    ) -> Result<Begun, Error> {
        let owner = self.owner();
        let begin = |session: &Session| steps::begin(session, step, owner);
        Ok(match self.write_as_owner(key, right, "", begin).await? {
            Fenced::Applied(ack) => Begun::Applied(ack),
            Fenced::Refused => Begun::Moved,
            Fenced::Gone => Begun::Fenced,
        })
    }

    /// What a step leaves: rows, calls, and what it cost. With calls left open the turn waits, and the
    /// lease ends with the same commit.
    pub async fn append(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        batch: Option<&Batch>,
    ) -> Result<Written, Error> {
        let owner = self.owner();
        let append = |session: &Session| Some(append::apply(session, rows, cost, batch, owner));
        let written = self.write_as_owner(key, right, &rows.estimator, append);
        unconditional(written.await?, right)
    }

    /// Repeats the step as its next attempt. The rows are events of the attempt that failed. The
    /// turn goes on with what `fallback` asks for, also under its next owner.
    pub async fn retry(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        fallback: Option<&TurnRequest>,
    ) -> Result<Written, Error> {
        let owner = self.owner();
        let retry = |session: &Session| Some(steps::retry(session, rows, cost, fallback, owner));
        let written = self.write_as_owner(key, right, &rows.estimator, retry);
        unconditional(written.await?, right)
    }

    fn owner(&self) -> Owner<'_> {
        Owner {
            replica: &self.replica,
            lease: self.lease,
        }
    }

    /// Decides as the owner and commits. A write whose answer was lost is found to have landed, or repeated.
    async fn write_as_owner<'a>(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        estimator: &str,
        decide: impl Fn(&Session) -> Option<Change<'a>>,
    ) -> Result<Fenced, Error> {
        self.insist(|| self.try_as_owner(key, right, estimator, &decide))
            .await
    }

    async fn try_as_owner<'a>(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        estimator: &str,
        decide: impl Fn(&Session) -> Option<Change<'a>>,
    ) -> Result<Fenced, Error> {
        let commit = Committed {
            estimator,
            ..Committed::default()
        };
        let owned = |session: &Session| steps::standing(session, right, &self.replica);
        // What is only remembered may be old: nothing but a commit follows from it.
        if let Some((version, session)) = self.own.get(key)
            && owned(&session) == Standing::Owner
            && let Some(change) = decide(&session)
            && self
                .commit(key, (&version, &session), &change, &commit)
                .await?
        {
            return Ok(Fenced::Applied(ack(&change.session)));
        }
        for _ in 0..LOST_RACES {
            let Some(SeenSession {
                version, session, ..
            }) = self.read_session(key).await?
            else {
                return Ok(Fenced::Gone);
            };
            match owned(&session) {
                Standing::Owner => {}
                Standing::Landed => return Ok(Fenced::Applied(ack(&session))),
                Standing::Gone => return Ok(Fenced::Gone),
            }
            let Some(change) = decide(&session) else {
                return Ok(Fenced::Refused);
            };
            let seen: (&Version, &Session) = (&version, &session);
            if self.commit(key, seen, &change, &commit).await? {
                return Ok(Fenced::Applied(ack(&change.session)));
            }
        }
        Err(Error::Conflict("an owner's write".to_owned()))
    }
}

/// A write that nothing but its fence can refuse.
fn unconditional(written: Fenced, right: TurnFence<'_>) -> Result<Written, Error> {
    match written {
        Fenced::Applied(ack) => Ok(Written::Applied(ack)),
        Fenced::Gone => Ok(Written::Fenced),
        Fenced::Refused => Err(Error::Corrupt(format!(
            "an owner's write with the fence {right:?} was refused"
        ))),
    }
}

fn ack(session: &Session) -> Ack {
    Ack {
        state: session.state,
        cancelled: session.cancel.is_some(),
        last_seq: session.last_seq(),
    }
}
