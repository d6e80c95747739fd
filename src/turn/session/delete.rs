//! DeleteSession: ends the session with its turn and its queue, immediately for all clients. The
//! rows are removed later.

use std::{
    ops::ControlFlow::{self, Break, Continue},
    sync::Arc,
    time::Duration,
};

use crate::{
    context::estimator::Estimator,
    model::{
        CancelCause, CancelOutcome, Ending, Seq, SessionKey, TenantId,
        command::{DeleteSession, Idempotency},
        event::CallCancelReason,
    },
    session::{SessionState, ending::TurnEnd},
    store::{
        admission::SessionHead,
        delete::{DELETED, Deletion},
    },
    turn::{
        Error,
        context::result_texts::synthetic,
        engine::{Live, Prompts, SessionCommands, supervised},
        idempotency::check_same,
        live::wakeups::Wakeup,
        optimistic::retry_with,
        session::update::check_etag,
    },
};

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

impl SessionCommands {
    /// Deletes a session.
    pub async fn delete_session(self: &Arc<Self>, tenant: TenantId, command: DeleteSession) -> Result<(), Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let key = SessionKey::new(tenant, command.session.clone());
            // A turn that is seized while this runs is ended by this replica, and must not be
            // started.
            let mut request = sessions.capacity.leases.request(&key);
            retry_with(false, |decided| sessions.delete_or_seize(&key, &command, decided)).await?;
            request.answered(Ok(())).map_err(Error::from)
        })
        .await
    }

    /// One attempt, and the state for the next one: whether the etag was already checked
    /// successfully. If the turn's owner writes faster than this attempt, the turn is seized first.
    /// After that the deletion cannot be refused any more.
    async fn delete_or_seize(
        &self,
        key: &SessionKey,
        command: &DeleteSession,
        decided: bool,
    ) -> Result<ControlFlow<(), bool>, Error> {
        if self.try_delete(key, command, decided).await? {
            return Ok(Break(()));
        }
        let revision = command.etag.as_deref().and_then(|etag| etag.parse().ok()).filter(|_| !decided);
        let seized = self.store.seize(key, revision).await?;
        tokio::time::sleep(PAUSE).await;
        Ok(Continue(decided || seized))
    }

    /// Returns `false` if the session changed between the read and the write.
    async fn try_delete(&self, key: &SessionKey, command: &DeleteSession, decided: bool) -> Result<bool, Error> {
        let DeleteSession { session: _, etag, idempotency } = command;
        let Some(seen) = self.store.head(key, idempotency.request.as_ref()).await? else {
            return self.prompts.deleted_before(key, idempotency).await.map(|()| true);
        };
        if let Some(first) = &seen.stored_request {
            // The same request deleted an earlier session with this id. It must not delete this
            // one.
            return check_same(&first.hash, idempotency).map(|()| true);
        }
        let etag = etag.as_deref().filter(|_| !decided);
        check_etag(key, etag, seen.revision)?;
        // Read after the fence: if the fence is still valid at the write, the turn has not changed.
        let result = match seen.live_turn() {
            Some(turn) => self.store.turn(key, turn).await?.map(|turn| turn.so_far),
            None => None,
        };
        let ending = ending(&seen);
        let result = result.unwrap_or_default();
        let estimator = Estimator::Characters;
        let end = TurnEnd {
            ending: &ending,
            result: &result,
            synthetic: synthetic(CallCancelReason::TurnCancelled, estimator),
        };
        let deletion = Deletion {
            seen: &seen,
            revision: etag.map(|_| seen.revision),
            end: seen.live_turn().map(|_| &end),
            estimator: &estimator.name(),
            retention: self.stay(),
            idempotency,
            unused_for: None,
        };
        match self.store.delete(key, &deletion).await? {
            Some(last) => {
                if seen.live_turn().is_some() {
                    self.metrics.turn_ended(&ending);
                }
                self.live.stop_deleted_session(key, seen.fence.epoch, last);
            }
            None => return Ok(false),
        }
        Ok(true)
    }
}

impl Live {
    /// Stops the turn and the readers of a deleted session on this replica, and notifies other
    /// replicas.
    pub(in crate::turn) fn stop_deleted_session(&self, key: &SessionKey, epoch: i64, last: Seq) {
        tracing::info!(session.id = %key.session, "session deleted");
        self.leases.lose(key, epoch);
        if let Some(channel) = self.hub.get(key) {
            channel.advance(last);
            channel.end();
        }
        // On other replicas: an owner that must stop, and readers.
        self.wake(Wakeup::Cancel(key.clone()));
        self.wake(Wakeup::NewEvents(key.clone()));
    }
}

impl Prompts {
    /// Called if the session does not exist: succeeds for a repetition of the request that deleted
    /// it, and otherwise returns [`Error::SessionNotFound`].
    async fn deleted_before(&self, key: &SessionKey, idempotency: &Idempotency) -> Result<(), Error> {
        let stored = match &idempotency.request {
            Some(request) => self.store.stored_request(key, request).await?,
            None => None,
        };
        let deletion = stored.filter(|first| first.result == DELETED);
        let first = deletion.ok_or_else(|| Error::SessionNotFound(key.session.clone()))?;
        check_same(&first.hash, idempotency)
    }
}

/// The ending of a turn whose session is deleted. Text that its model is still producing is lost,
/// and its progress does not matter.
fn ending(seen: &SessionHead) -> Ending {
    let outcome = match seen.state {
        SessionState::AwaitingTools => CancelOutcome::ToolsInProgress,
        SessionState::Running if seen.open_calls > 0 => CancelOutcome::ToolsInProgress,
        SessionState::Running => CancelOutcome::Unknown,
        SessionState::Idle | SessionState::Deleted => CancelOutcome::None,
    };
    Ending::Cancelled { cause: CancelCause::SessionDeleted, outcome, reason: String::new(), undone: None }
}
