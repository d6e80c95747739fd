//! Takes queued messages into the transcript, by a turn's owner or in an idle session.

use super::{Error, Store, commit::CommitMetadata, queue::QueueSnapshot, written::ConditionalWriteOutcome};
use crate::{
    model::{Seq, SessionKey, TurnFence},
    session::{
        Session,
        rows::Rows,
        take::{self, Advance, TakeSelection, TakenMessage},
    },
};

impl Store {
    /// Takes messages into the transcript of the turn according to `rows`, if nothing has changed since `seen`.
    /// Depending on `step` they begin the next step. If `seen` is `None`, concurrent writes to the session do not cause
    /// a refusal; only changes to the messages themselves do.
    pub async fn take(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        seen: Option<Seq>,
        rows: &Rows,
        taken: &[TakenMessage<'_>],
        step: Advance,
    ) -> Result<ConditionalWriteOutcome, Error> {
        let owner = self.owner();
        let taking = TakeSelection { seen, rows, taken };
        let take = |session: &Session| take::take(session, &taking, step, owner);
        self.write_as_owner(key, right, &rows.estimator, take).await
    }

    /// Takes messages into the transcript of an idle session, according to `rows` and for this revision of its
    /// configuration. Returns the newest seq, or `None` if something has changed since `look`, a turn began or calls
    /// are open.
    pub async fn take_idle(
        &self,
        key: &SessionKey,
        look: &QueueSnapshot,
        revision: i64,
        rows: &Rows,
        taken: &[TakenMessage<'_>],
    ) -> Result<Option<Seq>, Error> {
        let seen = Some(look.last_seq);
        let taking = TakeSelection { seen, rows, taken };
        let commit = CommitMetadata { estimator: &rows.estimator, ..CommitMetadata::default() };
        let take = |session: &Session| take::take_idle(session, look.fence, revision, &taking);
        let taken = self.change(key, |seen| take(&seen.session), &commit).await?;
        Ok(taken.map(|session| session.last_seq()))
    }
}
