//! Writes of a turn's owner: begin a step, append its response, retry it, and end the turn. `session` makes the
//! decision, from this replica's copy of the session if there is one. A write whose response was lost is repeated.

use super::{
    Error, Store,
    commit::{CommitConflicts, CommitMetadata, CommitOutcome},
    grant::Grant,
    seen::SessionSnapshot,
    written::{Ack, ConditionalWriteOutcome, WriteOutcome},
};
use crate::{
    model::{Seq, SessionKey, TurnFence, TurnId, command::TurnRequest},
    session::{
        Session,
        answers::OpenCall,
        append,
        change::Change,
        cost::StepCost,
        ending::OpenWork,
        new_calls::Batch,
        rollback::RollbackTarget,
        rows::Rows,
        steps::{self, NewStep, Owner, OwnerStatus},
    },
};

impl Store {
    /// Begins the next step, if the configuration for which it was prepared is still in force.
    pub async fn begin_step(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        step: &NewStep<'_>,
    ) -> Result<ConditionalWriteOutcome, Error> {
        let owner = self.owner();
        let begin = |session: &Session| steps::begin(session, step, owner);
        self.write_as_owner(key, right, "", begin).await
    }

    /// Appends the result of a step: rows, calls and cost. If calls are left open, the turn waits, and the lease ends
    /// in the same commit.
    pub async fn append(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        batch: Option<&Batch>,
    ) -> Result<WriteOutcome, Error> {
        let owner = self.owner();
        let append = |session: &Session| Some(append::apply(session, rows, cost, batch, owner));
        let written = self.write_as_owner(key, right, &rows.estimator, append);
        unconditional(written.await?, right)
    }

    /// Starts the next attempt of a step. The rows are events of the failed attempt. With `fallback` the turn continues
    /// with this request, also under its next owner.
    pub async fn retry(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        fallback: Option<&TurnRequest>,
    ) -> Result<WriteOutcome, Error> {
        let owner = self.owner();
        let retry = |session: &Session| Some(steps::retry(session, rows, cost, fallback, owner));
        let written = self.write_as_owner(key, right, &rows.estimator, retry);
        unconditional(written.await?, right)
    }

    pub(super) fn owner(&self) -> Owner<'_> {
        Owner { replica: &self.replica, lease: self.lease_ttl }
    }

    /// Decides as the owner and commits. If the response of a write is lost, checks whether it was committed and
    /// repeats it otherwise.
    pub(super) async fn write_as_owner<'a>(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        estimator: &str,
        decide: impl Fn(&Session) -> Option<Change<'a>>,
    ) -> Result<ConditionalWriteOutcome, Error> {
        let decide = |session: &Session, _: OpenWork<'_>| decide(session);
        let owned = Owned { key, right, estimator, reads: Reads::Session };
        let outcome = self.retry_write(|| self.try_as_owner(&owned, &decide)).await?;
        Ok(match outcome {
            Outcome::Applied { ack, grant: _ } => ConditionalWriteOutcome::Applied(ack),
            Outcome::Refused => ConditionalWriteOutcome::Stale,
            Outcome::Gone(_) => ConditionalWriteOutcome::Fenced,
        })
    }

    /// Like [`Store::write_as_owner`], for the end of a turn. The decision also depends on the open calls, and the
    /// planned next turn begins in the same commit.
    pub(super) async fn end_as_owner<'a>(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        (estimator, reads): (&str, Reads),
        decide: impl Fn(&Session, OpenWork<'_>) -> Option<Change<'a>>,
        next: Option<&TurnId>,
    ) -> Result<(WriteOutcome, Option<Grant>), Error> {
        let owned = Owned { key, right, estimator, reads };
        match self.retry_write(|| self.try_as_owner(&owned, &decide)).await? {
            Outcome::Applied { ack, grant } => Ok((WriteOutcome::Applied(ack), grant)),
            // The next turn has the session, and its grant may belong to this replica.
            Outcome::Gone(session) => {
                let follows = |session: &Session| {
                    next.is_some() && session.turn.as_ref() == next && session.is_owned_by(&self.replica)
                };
                let session = session.filter(|session| follows(session));
                Ok((WriteOutcome::Fenced, session.as_deref().and_then(Grant::of)))
            }
            Outcome::Refused => Err(refused(right)),
        }
    }

    async fn try_as_owner<'a>(
        &self,
        owned: &Owned<'_>,
        decide: impl Fn(&Session, OpenWork<'_>) -> Option<Change<'a>>,
    ) -> Result<Outcome, Error> {
        let Owned { key, right, .. } = *owned;
        let commit = CommitMetadata { estimator: owned.estimator, ..CommitMetadata::default() };
        let standing = |session: &Session| steps::owner_status(session, right, &self.replica);
        // The copy in memory may be outdated, so it is used only for a commit, which compares the version.
        let from_memory = |session: &Session| {
            let is_enough = owned.reads.is_enough(session);
            let decides = standing(session) == OwnerStatus::Owner && is_enough;
            if decides { decide(session, OpenWork::default()) } else { None }
        };
        if let Some((change, landed)) = self.commit_from_cache(key, from_memory, &commit).await? {
            return Ok(applied(&change, &landed));
        }
        let mut races = CommitConflicts::new("concurrent writes prevented a write of a turn's owner");
        loop {
            let Some((seen, open, back)) = self.read_owned(owned).await? else {
                return Ok(Outcome::Gone(None));
            };
            let SessionSnapshot { version, session, .. } = seen;
            match standing(&session) {
                OwnerStatus::Owner => {}
                OwnerStatus::AlreadyCommitted => {
                    let ack = ack(&session, session.last_seq());
                    return Ok(Outcome::Applied { ack, grant: None });
                }
                OwnerStatus::NotOwner => return Ok(Outcome::Gone(Some(Box::new(session)))),
            }
            let open = OpenWork { calls: &open, rollback: back.as_ref() };
            let Some(change) = decide(&session, open) else {
                return Ok(Outcome::Refused);
            };
            let seen = (version, &session);
            if let Some(landed) = self.commit(key, seen, &change, &commit).await? {
                return Ok(applied(&change, &landed));
            }
            races.record()?;
        }
    }

    async fn read_owned(
        &self,
        owned: &Owned<'_>,
    ) -> Result<Option<(SessionSnapshot, Vec<OpenCall>, Option<RollbackTarget>)>, Error> {
        let Owned { key, right, .. } = *owned;
        match owned.reads {
            Reads::Session => {
                let seen = self.read_session(key).await?;
                Ok(seen.map(|seen| (seen, Vec::new(), None)))
            }
            Reads::Calls => {
                let seen = self.read_session_and_calls(key).await?;
                Ok(seen.map(|(seen, calls)| (seen, calls, None)))
            }
            Reads::CallsAndTurn => {
                let Some((seen, calls)) = self.read_session_and_calls(key).await? else {
                    return Ok(None);
                };
                // If the commit finds the session unchanged, its turn is unchanged too.
                let back = self.taken_back(key, right.turn).await?;
                Ok(Some((seen, calls, Some(back))))
            }
        }
    }
}

/// The data that an owner's write is decided from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    /// The session.
    Session,
    /// The session and the open calls of its turn.
    Calls,
    /// The session, the open calls, and what a rollback of the turn undoes.
    CallsAndTurn,
}

impl Reads {
    /// Whether the session from memory is sufficient.
    fn is_enough(self, session: &Session) -> bool {
        match self {
            Self::Session => true,
            Self::Calls => session.open_calls == 0,
            Self::CallsAndTurn => false,
        }
    }
}

/// A write of a turn's owner.
#[derive(Debug, Clone, Copy)]
struct Owned<'a> {
    key: &'a SessionKey,
    right: TurnFence<'a>,
    estimator: &'a str,
    reads: Reads,
}

/// The outcome of a write.
enum Outcome {
    /// It is committed, and the next turn is granted if there is one.
    Applied { ack: Ack, grant: Option<Grant> },
    /// A condition was not met. Nothing was written.
    Refused,
    /// Another owner has the session, whose current state is included, or the session is gone.
    Gone(Option<Box<Session>>),
}

fn applied(change: &Change<'_>, landed: &CommitOutcome) -> Outcome {
    let next = change.next.as_ref();
    Outcome::Applied {
        ack: ack(&change.session, landed.last_seq),
        grant: next.and_then(|next| Grant::of(&next.session)),
    }
}

/// The outcome of a write that only its fence can refuse.
fn unconditional(written: ConditionalWriteOutcome, right: TurnFence<'_>) -> Result<WriteOutcome, Error> {
    match written {
        ConditionalWriteOutcome::Applied(ack) => Ok(WriteOutcome::Applied(ack)),
        ConditionalWriteOutcome::Fenced => Ok(WriteOutcome::Fenced),
        ConditionalWriteOutcome::Stale => Err(refused(right)),
    }
}

fn refused(right: TurnFence<'_>) -> Error {
    Error::Corrupt(format!("a write with the current fence {right:?} was rejected"))
}

pub(super) fn ack(session: &Session, last_seq: Seq) -> Ack {
    Ack { state: session.state, cancelled: session.cancel.is_some(), last_seq }
}
