//! What waits becomes part of the transcript: in the hand of a turn's owner, or where no turn runs.

use super::{
    Error, Store,
    commit::Committed,
    queue::Look,
    written::{Ack, Fenced},
};
use crate::{
    model::{Seq, SessionKey, TurnFence},
    session::{
        Session,
        rows::Rows,
        take::{self, Advance, Taken, Taking},
    },
};

/// The outcome of a take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// The messages are in the transcript.
    Applied(Ack),
    /// Something moved since the look: look again. Nothing was written.
    Moved,
    /// Another owner has the session.
    Fenced,
}

impl Store {
    /// Takes messages into the transcript of the turn as `rows` say, if nothing moved since `seen`;
    /// they begin the next step if `step` says so. Without a seq that was seen others that write into
    /// the session refuse it no more: only what becomes of the messages themselves does.
    pub async fn take(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        seen: Option<Seq>,
        rows: &Rows,
        taken: &[Taken<'_>],
        step: Advance,
    ) -> Result<Take, Error> {
        let owner = self.owner();
        let taking = Taking { seen, rows, taken };
        let take = |session: &Session| take::take(session, &taking, step, owner);
        let written = self.write_as_owner(key, right, &rows.estimator, take);
        Ok(match written.await? {
            Fenced::Applied(ack) => Take::Applied(ack),
            Fenced::Refused => Take::Moved,
            Fenced::Gone => Take::Fenced,
        })
    }

    /// Takes messages into the transcript of an idle session, as `rows` say and for this revision
    /// of its configuration, if nothing moved since the look. `None` means something did, a
    /// turn began or calls are open. Else the newest seq.
    pub async fn take_idle(
        &self,
        key: &SessionKey,
        look: &Look,
        revision: i64,
        rows: &Rows,
        taken: &[Taken<'_>],
    ) -> Result<Option<Seq>, Error> {
        let seen = Some(look.last_seq);
        let taking = Taking { seen, rows, taken };
        let commit = Committed {
            estimator: &rows.estimator,
            ..Committed::default()
        };
        let take = |session: &Session| take::take_idle(session, look.fence, revision, &taking);
        let taken = self
            .change(key, |seen| take(&seen.session), &commit)
            .await?;
        Ok(taken.map(|session| session.last_seq()))
    }
}
