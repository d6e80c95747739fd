//! Receives wake-ups from other replicas, and acts on them.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{
    model::SessionKey,
    store::listen::Listener,
    telemetry::metrics::Direction,
    turn::{
        Error,
        engine::Engine,
        live::wakeups::{ReceivedWakeup, Wakeup},
    },
};

/// How long received wake-ups are collected, measured from the first one, before they are acted on.
/// The bound is needed because others may send without a pause.
const LISTEN: Duration = Duration::from_millis(2);

/// Pause before listening again after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// What to look up after wake-ups were received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Lookups {
    /// Sessions that are followed here and have new events.
    news: BTreeSet<SessionKey>,
    /// Sessions whose turns run here and may have to stop.
    cancels: BTreeSet<SessionKey>,
    queues: bool,
    orphans: bool,
    /// A session whose turn runs here is newly followed on another replica.
    followed: bool,
}

impl Engine {
    /// Receives wake-ups until `stop` fires.
    pub async fn receive_wakeups(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let heard = stop.run_until_cancelled(self.listen()).await;
            self.live.wakeups.listening.store(false, Ordering::Relaxed);
            self.live.sharing.followed().stop_receiving();
            match heard {
                None | Some(Ok(())) => return,
                Some(Err(error)) => {
                    tracing::debug!(%error, "cannot receive notifications; polling instead");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(PAUSE) => {}
            }
        }
    }

    /// Listens for as long as the connection lasts. Returns `Ok` only if this deployment cannot
    /// receive notifications.
    async fn listen(self: &Arc<Self>) -> Result<(), Error> {
        let Some(mut listener) = self.store.listen().await? else {
            return Ok(());
        };
        // Earlier wake-ups were missed. Replicas that follow the turns that run here repeat theirs
        // with their next poll.
        let repeated_by = (self.capacity.leases.count() > 0).then(|| Instant::now() + self.live.follow_lasts());
        self.live.sharing.followed().start_receiving(repeated_by);
        self.live.wakeups.listening.store(true, Ordering::Relaxed);
        self.live.poll_events().await?;
        self.poll_cancels().await?;
        self.run_lookups(Lookups { queues: true, orphans: true, ..Lookups::default() }).await?;
        loop {
            let look = self.collect_wakeups(&mut listener).await?;
            self.run_lookups(look).await?;
        }
    }

    /// Waits for the next wake-up and collects those right after it.
    async fn collect_wakeups(&self, listener: &mut Listener) -> Result<Lookups, Error> {
        let mut look = Lookups::default();
        self.add_wakeup(&listener.next().await?, &mut look);
        let looked_at = Instant::now() + LISTEN;
        while let Ok(told) = timeout_at(looked_at, listener.next()).await {
            self.add_wakeup(&told?, &mut look);
        }
        Ok(look)
    }

    /// Ignores wake-ups that do not concern this replica.
    fn add_wakeup(&self, told: &str, look: &mut Lookups) {
        let Some(ReceivedWakeup { wakeup, from }) = ReceivedWakeup::read(told) else {
            return;
        };
        self.metrics.wakeups(Direction::Received, 1);
        match wakeup {
            // Readers here are notified directly of this replica's own writes.
            Wakeup::NewEvents(key) => {
                let own = from.map_or_else(|| self.capacity.leases.runs(&key), |from| from == self.store.replica());
                if !own && self.live.hub.get(&key).is_some() {
                    look.news.insert(key);
                }
            }
            Wakeup::Cancel(key) => {
                if self.capacity.leases.runs(&key) {
                    look.cancels.insert(key);
                }
            }
            Wakeup::Start(_) => look.queues = true,
            Wakeup::HandOver(_) => look.orphans = true,
            Wakeup::Follow(key) => {
                if from.as_deref() != Some(self.store.replica()) {
                    let runs = self.capacity.leases.runs(&key);
                    let lasts = self.live.follow_lasts();
                    look.followed |= self.live.sharing.followed().follow(key, lasts, Instant::now()) && runs;
                }
            }
        }
    }

    async fn run_lookups(self: &Arc<Self>, look: Lookups) -> Result<(), Error> {
        let Lookups { news, cancels, queues, orphans, followed } = look;
        if !news.is_empty() {
            self.live.poll_events_of_sessions(&news).await?;
        }
        if !cancels.is_empty() {
            self.poll_cancels_of(|key| cancels.contains(key)).await?;
        }
        if queues {
            self.start_waiting_turns().await?;
        }
        if orphans {
            self.take_over_all().await?;
        }
        if followed {
            self.live.store_shared_text().await?;
        }
        Ok(())
    }
}
