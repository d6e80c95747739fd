//! Starts a granted turn as a task of the server.

use std::{sync::Arc, time::Instant};

use crate::{
    model::SessionKey,
    store::grant::Grant,
    turn::{engine::Engine, lease::leases::Lease, live::wakeups::Wakeup},
};

impl Engine {
    /// Runs a turn that this replica was just granted.
    pub(in crate::turn) fn start(self: &Arc<Self>, key: SessionKey, grant: Grant, sent: Instant) {
        let lease = self.leases.hold(&key, &grant.turn, grant.fence.epoch, sent);
        let channel = self.hub.enter(&key);
        channel.advance(grant.last_seq);
        // The statement that granted it wrote events, and readers on other replicas may wait for
        // them.
        self.wake(Wakeup::News(key.clone()));
        let running = Running {
            engine: Arc::clone(self),
            key,
            lease,
        };
        self.tasks.spawn(async move {
            Box::pin(super::run(
                &running.engine,
                &running.key,
                &grant,
                &running.lease,
                &channel,
            ))
            .await;
        });
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
        self.engine.leases.forget(&self.key, &self.lease);
    }
}
