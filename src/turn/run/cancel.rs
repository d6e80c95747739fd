//! CancelTurn: the owner is notified, or the canceller becomes the owner; the answer comes when the
//! turn has ended.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    model::{CancelCause, Fence, Seq, SessionKey, TenantId, TurnId, command::CancelTurn},
    store::{grant::Grant, turn_read::Turn},
    turn::{
        Error, engine::Engine, lease::leases::GrantRequest, live::wakeups::Wakeup,
        run::cause::Cause,
    },
};

/// How often a turn that is being cancelled is looked at, when its end is not announced.
const LOOK: Duration = Duration::from_millis(250);

/// The turn that a cancel request named or met.
#[derive(Debug)]
pub struct Cancelled {
    /// As it is now.
    pub turn: Turn,
    /// It was live when the request, or the first one with its key, came. Else it had ended
    /// before, and the request did nothing.
    pub was_live: bool,
}

impl Engine {
    /// Cancels a turn and waits for its end. Returns `None` if no turn was live and none was named.
    pub async fn cancel(
        self: &Arc<Self>,
        tenant: TenantId,
        command: CancelTurn,
    ) -> Result<Option<Cancelled>, Error> {
        let key = SessionKey::new(tenant, command.session.clone());
        let asked = key.clone();
        let found = self
            .supervised(async move |engine| engine.ask_to_cancel(&asked, command).await)
            .await?;
        let Some((turn, was_live)) = found else {
            return Ok(None);
        };
        let turn = self.ended(&key, &turn).await?;
        Ok(Some(Cancelled { turn, was_live }))
    }

    /// Records the wish. Returns the turn to wait for, and whether it was live when this request
    /// came first.
    async fn ask_to_cancel(
        self: &Arc<Self>,
        key: &SessionKey,
        command: CancelTurn,
    ) -> Result<Option<(TurnId, bool)>, Error> {
        let CancelTurn {
            session: _,
            turn,
            idempotency,
            rollback,
            reason,
        } = command;
        if self.store.head(key, None).await?.is_none() {
            return Err(Error::SessionNotFound(key.session.clone()));
        }
        if let Some(turn) = &turn
            && self.store.turn(key, turn).await?.is_none()
        {
            return Err(Error::TurnNotFound(turn.clone()));
        }
        let mut request = self.leases.request(key);
        let named = turn.as_ref();
        let cancelled = if rollback {
            self.store
                .roll_back(key, named, &reason, &idempotency)
                .await
        } else {
            self.store
                .cancel(key, named, CancelCause::Requested, &reason, &idempotency)
                .await
        };
        let cancelled = request.answered(cancelled)?;
        if let (Some(first), Some(key)) = (&cancelled.hash, &idempotency.request)
            && *first != idempotency.hash
        {
            return Err(Error::IdempotencyMismatch(key.clone()));
        }
        if let Some(turn) = &cancelled.turn {
            self.end_cancelled(key, cancelled.fence.map(|fence| (turn, fence)), &request);
        }
        let was_live = cancelled.turn.is_some();
        Ok(cancelled.turn.or(turn).map(|turn| (turn, was_live)))
    }

    /// Ends a turn that is to be cancelled: here, if that made this replica its owner or it was so
    /// before; else its owner is notified.
    pub(in crate::turn) fn end_cancelled(
        self: &Arc<Self>,
        key: &SessionKey,
        owned: Option<(&TurnId, Fence)>,
        request: &GrantRequest,
    ) {
        let Some((turn, fence)) = owned else {
            return self.wake(Wakeup::Cancel(key.clone()));
        };
        if !self.leases.holds(key, turn, fence.epoch) {
            self.start(
                key.clone(),
                Grant {
                    fence,
                    turn: turn.clone(),
                    last_seq: Seq(0),
                },
                request.sent(),
                Cause::GoesOn,
            );
        }
        self.leases.cancel(key, turn, fence.epoch);
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
