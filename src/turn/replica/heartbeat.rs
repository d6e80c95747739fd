//! The heartbeat of this replica, which renews the leases of its turns, and the notice to a turn
//! that it is cancelled or has lost its lease.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::{
    model::SessionKey,
    store::lease::{HeldTurn, Interruption},
    turn::{Error, engine::Engine},
};

impl Engine {
    /// Sends a heartbeat, which renews the leases of the turns that run here.
    pub async fn send_heartbeat(&self) -> Result<(), Error> {
        let sent = Instant::now();
        self.store.send_heartbeat().await?;
        self.capacity.leases.confirm_heartbeat(sent, self.max_heartbeat_age(), Instant::now());
        Ok(())
    }

    /// Announces that this replica stops, so that others immediately look for the turns that it
    /// left.
    pub async fn announce_shutdown(&self) {
        if let Err(error) = self.store.leave().await {
            tracing::warn!(%error, "failed to announce the shutdown to other replicas");
        }
    }

    /// How long a turn may run here without a heartbeat. Shorter than the lease, so that two owners
    /// never run the turn at the same time.
    pub fn max_heartbeat_age(&self) -> Duration {
        self.store.lease_ttl() * 4 / 5
    }

    /// Stops the turns whose lease was not renewed in time by this replica's clock, even if the
    /// database is unreachable.
    pub fn expire(&self) {
        self.capacity.leases.expire(self.max_heartbeat_age(), Instant::now());
    }

    /// Looks for cancel requests and lost leases of the turns that run here.
    pub async fn poll_cancels(&self) -> Result<(), Error> {
        self.poll_cancels_of(|_| true).await
    }

    /// Like [`Engine::poll_cancels`], for the turns of these sessions only.
    pub(in crate::turn) async fn poll_cancels_of(&self, is_wanted: impl Fn(&SessionKey) -> bool) -> Result<(), Error> {
        let mut held = self.capacity.leases.held();
        held.retain(|held| is_wanted(&held.key));
        if held.is_empty() {
            return Ok(());
        }
        let mut lost = BTreeSet::new();
        for (HeldTurn { key, turn, epoch }, why) in self.store.interrupted_turns(&held).await? {
            match why {
                Interruption::Cancelled => self.capacity.leases.cancel(&key, &turn, epoch),
                Interruption::LeaseLost => {
                    self.capacity.leases.lose(&key, epoch);
                    lost.insert(key);
                }
            }
        }
        // A takeover wrote events, or the session was deleted.
        self.live.poll_events_of_sessions(&lost).await
    }
}
