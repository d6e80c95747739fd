//! DeleteSession: the session ends for everybody at once, with its turn and its queue; its rows are removed later.

use std::{sync::Arc, time::Duration};

use super::{Engine, Error, update::check_etag, written::synthetic};
use crate::{
    context::estimate,
    model::{
        CancelCause, CancelOutcome, Ending, SessionKey, TenantId, TurnResult,
        command::{DeleteSession, Idempotency},
        event::CallCancelReason,
    },
    store::{
        self,
        delete::{DELETED, Deletion, Doomed},
        session::SessionState,
        turn::End,
    },
};

/// How often a deletion is tried again when the session moves under it.
const TRIES: u32 = 10;
/// How long the next try waits.
const PAUSE: Duration = Duration::from_millis(20);
/// Sessions that are purged in one round.
const ROUND: u32 = 32;

impl Engine {
    /// Deletes a session.
    pub async fn delete_session(self: &Arc<Self>, tenant: TenantId, command: DeleteSession) -> Result<(), Error> {
        let engine = Arc::clone(self);
        self.supervised(async move {
            let key = SessionKey::new(tenant, command.session.clone());
            for _ in 0..TRIES {
                if engine.try_delete(&key, &command).await? {
                    return Ok(());
                }
                if command.etag.is_none() {
                    engine.hold_up(&key).await?;
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(Error::Store(store::Error::Conflict("the session kept moving".to_owned())))
        })
        .await
    }

    /// One try; false: the session moved between the look and the statement.
    async fn try_delete(&self, key: &SessionKey, command: &DeleteSession) -> Result<bool, Error> {
        let DeleteSession { session: _, etag, idempotency } = command;
        let Some(seen) = self.store.doomed(key, idempotency.request.as_ref()).await? else {
            return self.deleted_before(key, idempotency).await.map(|()| true);
        };
        if let (Some(first), Some(request)) = (&seen.remembered, &idempotency.request) {
            // The same request ended the session that had this id before: this one is none of its business.
            let same = first.hash == idempotency.hash;
            return if same { Ok(true) } else { Err(Error::IdempotencyMismatch(request.clone())) };
        }
        check_etag(key, etag.as_deref(), seen.revision)?;
        // Read after the fence was: if the fence holds, nothing of the turn has changed.
        let result = match &seen.turn {
            Some(turn) => self.store.turn(key, turn).await?.map(|turn| turn.so_far),
            None => None,
        };
        let (ending, result) = (ending(&seen), result.unwrap_or_default());
        self.write_end(key, &seen, command, &ending, &result).await
    }

    async fn write_end(
        &self,
        key: &SessionKey,
        seen: &Doomed,
        command: &DeleteSession,
        ending: &Ending,
        result: &TurnResult,
    ) -> Result<bool, Error> {
        let end = End { ending, result, synthetic: synthetic(CallCancelReason::TurnCancelled) };
        let deletion = Deletion {
            seen,
            revision: command.etag.as_ref().map(|_| seen.revision),
            end: seen.turn.as_ref().map(|_| &end),
            estimator: estimate::ESTIMATOR,
            stay: self.store.lease(),
            idempotency: &command.idempotency,
        };
        let Some(last) = self.store.delete(key, &deletion).await? else { return Ok(false) };
        tracing::info!(session.id = %key.session, "a session was deleted");
        self.leases.lose(key, seen.fence.epoch);
        if let Some(channel) = self.hub.get(key) {
            channel.advance(last);
            channel.end();
        }
        Ok(true)
    }

    /// There is no such session; fine for whoever repeats the request that ended it.
    async fn deleted_before(&self, key: &SessionKey, idempotency: &Idempotency) -> Result<(), Error> {
        let not_found = || Error::SessionNotFound(key.session.clone());
        let Some(request) = &idempotency.request else { return Err(not_found()) };
        match self.store.remembered(key, request).await? {
            Some(first) if first.result != DELETED => Err(not_found()),
            Some(first) if first.hash != idempotency.hash => Err(Error::IdempotencyMismatch(request.clone())),
            Some(_) => Ok(()),
            None => Err(not_found()),
        }
    }

    /// Tells the turn to stop, so that it moves no further. Not where the deletion may yet be refused.
    async fn hold_up(&self, key: &SessionKey) -> Result<(), Error> {
        let nobody = Idempotency { request: None, hash: String::new() };
        self.store.cancel(key, None, CancelCause::SessionDeleted, "", &nobody).await?;
        Ok(())
    }

    /// Removes what deleted sessions left behind, once nobody can be following them any more.
    pub async fn purge(&self) -> Result<(), Error> {
        for key in self.store.purgeable(ROUND).await? {
            if self.draining.is_cancelled() {
                break;
            }
            if let Err(error) = self.store.purge(&key).await {
                tracing::warn!(session.id = %key.session, %error, "a deleted session could not be purged");
            }
        }
        Ok(())
    }
}

/// How a turn ends whose session is deleted. What its model was saying is lost, and nobody asks how far it got.
fn ending(seen: &Doomed) -> Ending {
    let outcome = match seen.state {
        SessionState::AwaitingTools => CancelOutcome::ToolsInProgress,
        SessionState::Running if seen.open_calls > 0 => CancelOutcome::ToolsInProgress,
        SessionState::Running => CancelOutcome::Unknown,
        SessionState::Idle | SessionState::Deleted => CancelOutcome::None,
    };
    Ending::Cancelled { cause: CancelCause::SessionDeleted, outcome, reason: String::new() }
}
