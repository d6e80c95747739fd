//! Notifies readers here and other replicas of what this replica has written.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    model::{Seq, SessionKey},
    telemetry::metrics::Direction,
    turn::{engine::Live, live::wakeups::Wakeup},
};

/// How long wake-ups are collected after a send, so that a replica sends at most a hundred times
/// per second.
const GATHER: Duration = Duration::from_millis(10);

impl Live {
    /// Notifies readers of events that this replica wrote.
    pub(in crate::turn) fn notify_readers(&self, key: &SessionKey, seq: Seq) {
        if let Some(channel) = self.hub.get(key) {
            channel.advance(seq);
        }
        self.wake(Wakeup::NewEvents(key.clone()));
    }

    /// Queues a wake-up for other replicas. Does nothing if there are none.
    pub(in crate::turn) fn wake(&self, wakeup: Wakeup) {
        if self.has_other_replicas {
            self.wakeups.add(wakeup);
        }
    }

    /// Whether this replica receives wake-ups of others.
    pub fn receives_wakeups(&self) -> bool {
        self.wakeups.listening.load(Ordering::Relaxed)
    }

    /// Sends wake-ups until `stop` fires, including those queued by then.
    pub async fn send_wakeups(self: Arc<Self>, stop: CancellationToken) {
        let mut last = false;
        while !last {
            last = tokio::select! {
                () = stop.cancelled() => true,
                () = self.wakeups.bell.notified() => false,
            };
            let due = self.wakeups.take(self.store.replica());
            // Lost wake-ups are covered by polling.
            if !due.is_empty() {
                match self.store.notify(&due).await {
                    Ok(()) => self.metrics.wakeups(Direction::Sent, due.len()),
                    Err(error) => tracing::debug!(%error, "failed to notify other replicas"),
                }
            }
            if !last {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = sleep(GATHER) => {}
                }
            }
        }
    }
}
