//! Starts a granted turn as a task of the server.

use std::{sync::Arc, time::Instant};

use crate::{
    model::SessionKey,
    store::{AdmittedAt, Reach, grant::Grant},
    telemetry::{Trace, metrics::TurnOrigin},
    turn::{engine::Engine, lease::leases::Lease, live::wakeups::Wakeup, run::cause::Cause},
};

impl Engine {
    /// Runs a turn that this replica was just granted, by a statement sent at `sent`.
    pub(in crate::turn) fn start(
        self: &Arc<Self>,
        key: SessionKey,
        grant: Grant,
        sent: Instant,
        cause: Cause,
    ) {
        match cause {
            Cause::Executed(_) => self.metrics.turn_started(TurnOrigin::Execute),
            Cause::Queued => self.metrics.turn_started(TurnOrigin::Queue),
            Cause::Answered | Cause::GoesOn => {}
        }
        self.metrics.turn_running(1);
        let lease = self.leases.hold(&key, &grant.turn, grant.fence.epoch, sent);
        let channel = self.hub.enter(&key);
        channel.advance(grant.last_seq);
        // The statement that granted it wrote events, and readers on other replicas may wait for
        // them.
        self.wake(Wakeup::News(key.clone()));
        let reach = Reach::Tenant(key.tenant.clone());
        let admitted = AdmittedAt(self.quotas.last_read().at());
        let running = Running {
            engine: Arc::clone(self),
            key,
            lease,
        };
        let doing = async move {
            Box::pin(super::run(
                &running.engine,
                &running.key,
                &grant,
                &running.lease,
                &channel,
                (cause, sent),
            ))
            .await;
        };
        let doing = admitted.scope(Trace::current().scope(doing));
        self.tasks.spawn(reach.scope(doing));
    }
}

/// A turn that runs here. When its task ends, by a panic too, nothing keeps its lease alive any
/// more.
struct Running {
    engine: Arc<Engine>,
    key: SessionKey,
    lease: Arc<Lease>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.engine.metrics.turn_running(-1);
        self.engine.leases.forget(&self.key, &self.lease);
    }
}
