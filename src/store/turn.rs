//! The end of a turn, which its owner writes, and the next turn, which begins in the same transaction.

use std::time::Instant;

use super::{
    Error, Store,
    admission::new_turn,
    commit::CommitMetadata,
    following::NextTurn,
    grant::Grant,
    step::{Reads, ack},
    written::WriteOutcome,
};
use crate::{
    model::{Ending, SessionKey, TurnFence},
    session::{
        Session,
        change::Change,
        cost::StepCost,
        ending::{self, OpenWork, TurnEnd},
        rows::Rows,
        start,
        steps::{self, OwnerStatus},
    },
};

impl Store {
    /// Commits the message of the last step unconditionally, and completes the turn if no message is queued for it and
    /// no client requested a cancel.
    pub async fn finish(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        end: &TurnEnd<'_>,
    ) -> Result<WriteOutcome, Error> {
        self.finish_and_start(key, right, rows, cost, end, None).await.map(|(written, _)| written)
    }

    /// Like [`Store::finish`]. If it ends the turn, the next one begins in the same transaction.
    pub async fn finish_and_start(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        end: &TurnEnd<'_>,
        next: Option<&NextTurn<'_>>,
    ) -> Result<(WriteOutcome, Option<Grant>), Error> {
        let owner = self.owner();
        let finish = |session: &Session, _: OpenWork<'_>| {
            let finished = ending::finish(session, rows, cost, end, owner)?;
            Some(self.followed(finished, next))
        };
        let turn = next.map(|next| next.admission.turn);
        let reads = (rows.estimator.as_str(), Reads::Calls);
        self.end_as_owner(key, right, reads, finish, turn).await
    }

    /// Like [`Store::finish`], for a session with an empty queue according to this replica's copy, so that nothing else
    /// must be read. Returns `None` if a message is queued or the session was written elsewhere, or if the response was
    /// lost; [`Store::finish`] then detects whether this was committed.
    pub async fn finish_at_once(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        end: &TurnEnd<'_>,
    ) -> Result<Option<WriteOutcome>, Error> {
        let asked = Instant::now();
        let finish = |session: &Session| {
            let is_own = steps::owner_status(session, right, &self.replica) == OwnerStatus::Owner;
            if is_own && session.queue.is_empty() {
                ending::finish(session, rows, cost, end, self.owner())
            } else {
                None
            }
        };
        let commit = CommitMetadata { estimator: &rows.estimator, ..CommitMetadata::default() };
        match self.commit_from_cache(key, finish, &commit).await {
            Ok(finished) => {
                Ok(finished.map(|(change, landed)| WriteOutcome::Applied(ack(&change.session, landed.last_seq))))
            }
            // While the lease may last, the caller checks whether this was committed.
            Err(error) if error.is_transient() && asked.elapsed() < self.lease_ttl => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends a turn in any other way: closes open calls and ends the turn, even if messages are queued.
    pub async fn stop(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        end: &TurnEnd<'_>,
    ) -> Result<WriteOutcome, Error> {
        self.stop_and_start(key, right, rows, cost, end, None).await.map(|(written, _)| written)
    }

    /// Like [`Store::stop`], and the next turn begins in the same transaction.
    pub async fn stop_and_start(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        rows: &Rows,
        cost: &StepCost<'_>,
        end: &TurnEnd<'_>,
        next: Option<&NextTurn<'_>>,
    ) -> Result<(WriteOutcome, Option<Grant>), Error> {
        let owner = self.owner();
        let stop = |session: &Session, open: OpenWork<'_>| {
            let stopped = ending::stop(session, open, rows, cost, end, owner);
            Some(self.followed(stopped, next))
        };
        let reads = match end.ending {
            Ending::Cancelled { undone: Some(_), .. } => Reads::CallsAndTurn,
            Ending::Cancelled { undone: None, .. } | Ending::Failed(_) | Ending::Completed(_) => Reads::Calls,
        };
        let turn = next.map(|next| next.admission.turn);
        let reads = (rows.estimator.as_str(), reads);
        self.end_as_owner(key, right, reads, stop, turn).await
    }

    /// Adds the next turn, if it can still begin.
    fn followed<'a>(&self, mut ended: Change<'a>, next: Option<&NextTurn<'a>>) -> Change<'a> {
        let begin = |next: &NextTurn<'a>| {
            let new = new_turn(&next.admission);
            start::start_for(&ended.session, next.message, &new, self.next_owner())
        };
        ended.next = next.and_then(begin).map(Box::new);
        ended
    }
}
