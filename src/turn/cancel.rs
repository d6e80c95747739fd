//! CancelTurn: the owner is told, or the canceller becomes the owner; the answer comes when the turn has ended.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Engine, Error, wakeups::Wakeup};
use crate::{
    model::{CancelCause, Fence, Seq, SessionKey, TenantId, TurnId, command::CancelTurn},
    store::{admission::Grant, turn_read::Turn},
};

/// How often a turn that is being cancelled is looked at, when nobody tells of its end.
const LOOK: Duration = Duration::from_millis(250);

impl Engine {
    /// Cancels a turn and waits for its end. None: the session was idle and no turn was named.
    pub async fn cancel(self: &Arc<Self>, tenant: TenantId, command: CancelTurn) -> Result<Option<Turn>, Error> {
        let key = SessionKey::new(tenant, command.session.clone());
        let engine = Arc::clone(self);
        let asked = key.clone();
        let turn = self.supervised(async move { engine.ask_to_cancel(&asked, command).await }).await?;
        match turn {
            Some(turn) => self.ended(&key, &turn).await.map(Some),
            None => Ok(None),
        }
    }

    /// Records the wish. Gives the turn to wait for.
    async fn ask_to_cancel(self: &Arc<Self>, key: &SessionKey, command: CancelTurn) -> Result<Option<TurnId>, Error> {
        let CancelTurn { session: _, turn, idempotency, rollback, reason } = command;
        if self.store.standing(key, None).await?.is_none() {
            return Err(Error::SessionNotFound(key.session.clone()));
        }
        if let Some(turn) = &turn
            && self.store.turn(key, turn).await?.is_none()
        {
            return Err(Error::TurnNotFound(turn.clone()));
        }
        let sent = Instant::now();
        let named = turn.as_ref();
        let cancelled = if rollback {
            self.store.roll_back(key, named, &reason, &idempotency).await
        } else {
            self.store.cancel(key, named, CancelCause::Requested, &reason, &idempotency).await
        };
        let cancelled = self.heed(key, cancelled)?;
        if let (Some(first), Some(request)) = (&cancelled.hash, &idempotency.request)
            && *first != idempotency.hash
        {
            return Err(Error::IdempotencyMismatch(request.clone()));
        }
        if let Some(turn) = &cancelled.turn {
            self.end_cancelled(key, cancelled.fence.map(|fence| (turn, fence)), sent);
        }
        Ok(cancelled.turn.or(turn))
    }

    /// Ends a turn that is to be cancelled: here, if that made this replica its owner or it was so before; else its owner is told.
    pub(super) fn end_cancelled(self: &Arc<Self>, key: &SessionKey, owned: Option<(&TurnId, Fence)>, sent: Instant) {
        let Some((turn, fence)) = owned else { return self.wake(Wakeup::Cancel(key.clone())) };
        if !self.leases.holds(key, fence.epoch) {
            self.start(key.clone(), Grant { fence, turn: turn.clone(), last_seq: Seq(0) }, sent);
        }
        self.leases.cancel(key, fence.epoch);
    }

    /// The turn once it has ended, or as it is when that takes longer than any owner may be silent.
    async fn ended(&self, key: &SessionKey, turn: &TurnId) -> Result<Turn, Error> {
        let patience = Instant::now() + self.store.lease() * 2 + self.rules.poll_interval * 2;
        let mut news = self.hub.enter(key).subscribe();
        loop {
            let Some(found) = self.store.turn(key, turn).await? else {
                // The session may have been deleted meanwhile.
                self.session(key).await?;
                return Err(Error::TurnNotFound(turn.clone()));
            };
            if found.state.is_final() || Instant::now() >= patience {
                return Ok(found);
            }
            // Either there is news, or it is time to look again.
            let _ = tokio::time::timeout(LOOK, news.head.changed()).await;
        }
    }
}
