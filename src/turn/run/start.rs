//! Starts a granted turn as a task of the server.

use std::{sync::Arc, time::Instant};

use crate::{
    model::SessionKey,
    store::grant::Grant,
    telemetry::metrics::TurnOrigin,
    turn::{engine::Engine, lease::leases::Lease, live::wakeups::Wakeup, run::cause::Cause},
};

impl Engine {
    /// Runs a turn that was granted to this replica by a statement sent at `sent`.
    pub(in crate::turn) fn start(self: &Arc<Self>, key: SessionKey, grant: Grant, sent: Instant, cause: Cause) {
        match cause {
            Cause::Executed(_) => self.metrics.turn_started(TurnOrigin::Execute),
            Cause::Queued => self.metrics.turn_started(TurnOrigin::Queue),
            Cause::Answered | Cause::Continued => {}
        }
        self.metrics.turn_running(1);
        let lease = self.capacity.leases.hold(&key, &grant.turn, grant.fence.epoch, sent);
        let channel = self.live.hub.enter(&key);
        channel.advance(grant.last_seq);
        // The statement that granted it wrote events that readers on other replicas may be waiting
        // for.
        self.live.wake(Wakeup::NewEvents(key.clone()));
        let tenant = key.tenant.clone();
        let mut running = Running { engine: Arc::clone(self), key, lease, epoch: grant.fence.epoch, failed: true };
        let doing = async move {
            let left =
                Box::pin(super::run(&running.engine, &running.key, &grant, &running.lease, &channel, (cause, sent)));
            running.left(left.await.is_err());
        };
        self.capacity.spawn_for(&tenant, doing);
    }
}

/// A turn that runs here. The heartbeat renews its lease for as long as the database assigns it to
/// this replica. If its task ends without having left the turn, for example by a panic, the turn is
/// tracked as uncertain.
struct Running {
    engine: Arc<Engine>,
    key: SessionKey,
    lease: Arc<Lease>,
    epoch: i64,
    failed: bool,
}

impl Running {
    fn left(&mut self, failed: bool) {
        self.failed = failed;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.engine.metrics.turn_running(-1);
        let leases = &self.engine.capacity.leases;
        leases.forget(&self.key, &self.lease);
        if self.failed {
            leases.failed(&self.key, self.epoch, Instant::now());
        } else if self.lease.lost().is_cancelled() {
            leases.abandon(&self.key, self.epoch, Instant::now());
        }
    }
}
