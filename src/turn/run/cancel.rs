//! CancelTurn: notifies the owner of the turn, or makes this replica the owner. Responds when the
//! turn has ended.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    model::{CancelCause, Fence, Seq, SessionKey, TenantId, TurnId, command::CancelTurn},
    session::CancelRequest,
    store::{grant::Grant, turn_read::Turn},
    turn::{
        Error,
        engine::{Engine, supervised},
        idempotency::check_same,
        lease::leases::GrantRequest,
        live::wakeups::Wakeup,
        run::cause::Cause,
    },
};

/// Poll interval for the end of a turn that is being cancelled, in case the end is not announced.
const END_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The outcome of a cancel request: the turn that it named, or that was live.
#[derive(Debug)]
pub struct Cancelled {
    /// The current state of the turn.
    pub turn: Turn,
    /// The turn was live at the time of the request, or of the first request with its key.
    /// Otherwise it had already ended, and the request had no effect.
    pub was_live: bool,
}

impl Engine {
    /// Cancels a turn and waits for its end. Returns `None` if no turn was live and none was named.
    pub async fn cancel(self: &Arc<Self>, tenant: TenantId, command: CancelTurn) -> Result<Option<Cancelled>, Error> {
        let key = SessionKey::new(tenant, command.session.clone());
        let asked = key.clone();
        let found =
            supervised(&self.capacity, self, async move |engine| engine.ask_to_cancel(&asked, command).await).await?;
        let Some((turn, was_live)) = found else {
            return Ok(None);
        };
        let turn = self.ended(&key, &turn).await?;
        Ok(Some(Cancelled { turn, was_live }))
    }

    /// Records the cancel request. Returns the turn to wait for, and whether it was live at the
    /// time of the first request.
    async fn ask_to_cancel(
        self: &Arc<Self>,
        key: &SessionKey,
        command: CancelTurn,
    ) -> Result<Option<(TurnId, bool)>, Error> {
        let CancelTurn { session: _, turn, idempotency, rollback, reason } = command;
        self.prompts.must_exist(key).await?;
        if let Some(turn) = &turn
            && self.store.turn(key, turn).await?.is_none()
        {
            return Err(Error::TurnNotFound(turn.clone()));
        }
        let mut request = self.capacity.leases.request(key);
        let cancel = CancelRequest { cause: CancelCause::Requested, reason, rollback };
        let cancelled = self.store.cancel(key, turn.as_ref(), &cancel, &idempotency).await;
        let cancelled = request.answered(cancelled)?;
        if let Some(first) = &cancelled.hash {
            check_same(first, &idempotency)?;
        }
        if let Some(turn) = &cancelled.turn {
            self.end_cancelled(key, cancelled.fence.map(|fence| (turn, fence)), &request);
        }
        let was_live = cancelled.turn.is_some();
        Ok(cancelled.turn.or(turn).map(|turn| (turn, was_live)))
    }

    /// Ends a turn that is being cancelled on this replica, if this replica owns it; otherwise
    /// notifies its owner.
    pub(in crate::turn) fn end_cancelled(
        self: &Arc<Self>,
        key: &SessionKey,
        owned: Option<(&TurnId, Fence)>,
        request: &GrantRequest,
    ) {
        let Some((turn, fence)) = owned else {
            return self.live.wake(Wakeup::Cancel(key.clone()));
        };
        if !self.capacity.leases.holds(key, turn, fence.epoch) {
            self.start(
                key.clone(),
                Grant { fence, turn: turn.clone(), last_seq: Seq(0) },
                request.sent(),
                Cause::Continued,
            );
        }
        self.capacity.leases.cancel(key, turn, fence.epoch);
    }

    /// Waits until the turn has ended, and returns it. Returns a live turn if that takes longer
    /// than any owner can go without a heartbeat.
    async fn ended(&self, key: &SessionKey, turn: &TurnId) -> Result<Turn, Error> {
        let patience = Instant::now() + self.store.lease_ttl() * 2 + self.prompts.rules.turn.poll_interval * 2;
        let mut news = self.live.hub.enter(key).subscribe();
        loop {
            let Some(found) = self.store.turn(key, turn).await? else {
                // The session may have been deleted concurrently.
                self.prompts.session(key).await?;
                return Err(Error::TurnNotFound(turn.clone()));
            };
            if found.state.is_final() || Instant::now() >= patience {
                return Ok(found);
            }
            // Continue on a new event, or after the interval.
            let _ = tokio::time::timeout(END_POLL_INTERVAL, news.head.changed()).await;
        }
    }
}
