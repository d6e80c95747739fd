//! Long-running loops, all alike. Each waits, does one round, and stops when it is asked to. The
//! first of several failed rounds is logged; each is tried again at the next.

use std::{
    future::Future,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep_until};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    auth::{self, Auth},
    quota,
    store::Reach,
    turn::{Engine, Error},
};

/// Heartbeats within one lease.
const BEATS_PER_LEASE: u32 = 3;

/// Looks at the age of leases within one lease.
const LOOKS_PER_LEASE: u32 = 30;

/// How often to look for what uploads and late writers left.
const SWEEP: Duration = Duration::from_mins(10);

/// How often to look for content that nothing refers to.
const SWEEP_BLOBS: Duration = Duration::from_hours(1);

/// How often a replica goes on with the deletion of tenants.
const ERASE: Duration = Duration::from_secs(1);

/// How often what calls taught is written.
const LESSONS: Duration = Duration::from_secs(30);

/// How often the messages that wait are counted, by each replica.
const BACKLOG: Duration = Duration::from_secs(15);

/// The share of the poll interval after which a poll comes at the soonest, and at the latest. The
/// rest is for doing what was found, so that the interval bounds both; what is between is drawn, so
/// that replicas do not all look at the same moment.
const POLL_SHARE: (f64, f64) = (0.7, 0.9);

/// When a loop does its next round, from the last one on.
#[derive(Debug, Clone, Copy)]
enum Pace {
    /// After this long.
    Each(Duration),
    /// After a time that is drawn, so that what is looked for is found and done within this long.
    Within(Duration),
}

impl Pace {
    fn pause(self) -> Duration {
        match self {
            Self::Each(period) => period,
            Self::Within(period) => {
                let (soonest, latest) = POLL_SHARE;
                period.mul_f64(soonest + (latest - soonest) * drawn())
            }
        }
    }
}

/// A number from 0 to 1, drawn at random.
fn drawn() -> f64 {
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}

/// Starts all loops. They end when `stop` fires; the heartbeat goes on until `done` does, for turns
/// that are still being drained.
pub fn start(
    engine: &Arc<Engine>,
    stop: &CancellationToken,
    done: &CancellationToken,
) -> TaskTracker {
    let loops = Loops {
        tasks: TaskTracker::new(),
        engine,
    };
    let rules = engine.rules();
    let poll = Pace::Within(rules.poll_interval);
    let beat = Pace::Each(engine.store().lease() / BEATS_PER_LEASE);
    let look = Pace::Each(engine.store().lease() / LOOKS_PER_LEASE);
    loops.every("heartbeat", beat, done, |engine| async move {
        engine.beat().await
    });
    loops.every("leases", look, done, |engine| async move {
        engine.expire();
        Ok(())
    });
    loops.every("cancels", poll, done, |engine| async move {
        engine.look_for_cancels().await
    });
    loops.every("news", poll, done, |engine| async move {
        engine.look_for_news().await
    });
    loops.every("lost events", poll, done, |engine| async move {
        engine.look_for_lost_events().await
    });
    loops.every("readers", poll, stop, |engine| async move {
        engine.look_for_readers().await
    });
    loops.every("queue expiry", poll, stop, |engine| async move {
        engine.expire_queued_messages().await
    });
    loops.every("queued turns", poll, stop, |engine| async move {
        engine.start_waiting_turns().await
    });
    loops.every("compactions", poll, stop, |engine| async move {
        engine.tend_compactions().await
    });
    loops.every("takeover", poll, stop, |engine| async move {
        engine.take_over().await
    });
    loops.follow_tenants(stop, done);
    loops.sweep(stop);
    loops.every("backlog", Pace::Each(BACKLOG), done, |engine| async move {
        engine.measure_backlog().await
    });
    loops.every("lessons", Pace::Each(LESSONS), done, |engine| async move {
        engine.save_calibrations().await
    });
    let retention = Pace::Within(rules.retention.interval);
    loops.every("retention", retention, stop, |engine| async move {
        engine.retain().await
    });
    if let Some(interval) = rules.models_refresh {
        loops.every("models", Pace::Each(interval), stop, |engine| async move {
            engine.refresh_models().await
        });
    }
    loops.every(
        "purge",
        Pace::Each(engine.stay()),
        stop,
        |engine| async move { engine.purge().await },
    );
    if let Some(share) = rules.share_interval {
        loops.share(share, stop, done);
    }
    loops.tasks.close();
    loops.tasks
}

/// Keeps the keys of callers as they are in the database and the keys file, and, beside that, those of
/// the issuer of tokens.
pub fn keep_credentials(tasks: &TaskTracker, auth: &Arc<Auth>, stop: &CancellationToken) {
    let pace = Pace::Each(auth::KEYS_REFRESH);
    let keys = |auth: Arc<Auth>| async move { auth.refresh_keys().await };
    let whose = Arc::clone(auth);
    tasks.spawn(every("credentials", pace, stop.clone(), whose, keys));
    let issuer = |auth: Arc<Auth>| async move {
        auth.refresh_issuer(auth::ISSUER_REFRESH).await;
        Ok::<_, auth::Error>(())
    };
    let whose = Arc::clone(auth);
    tasks.spawn(every("token issuer", pace, stop.clone(), whose, issuer));
}

/// The loops that were started.
struct Loops<'a> {
    tasks: TaskTracker,
    engine: &'a Arc<Engine>,
}

impl Loops<'_> {
    /// Starts those that look for what was left.
    fn sweep(&self, stop: &CancellationToken) {
        self.every("uploads", Pace::Each(SWEEP), stop, |engine| async move {
            engine.sweep_uploads().await
        });
        let seldom = Pace::Each(SWEEP_BLOBS);
        self.every("blobs", seldom, stop, |engine| async move {
            engine.sweep_blobs().await
        });
    }

    /// Starts those of a replica that has others beside it.
    fn share(&self, share: Duration, stop: &CancellationToken, done: &CancellationToken) {
        let engine = || Arc::clone(self.engine);
        let telling = engine().tell_wakeups(done.clone());
        self.tasks.spawn(Reach::All.scope(telling));
        let hearing = engine().hear_wakeups(done.clone());
        self.tasks.spawn(Reach::All.scope(hearing));
        self.every("share", Pace::Each(share), done, |engine| async move {
            engine.share().await
        });
        self.every("chunks", Pace::Each(SWEEP), stop, |engine| async move {
            engine.sweep_chunks().await
        });
    }

    /// Starts those that keep what tenants may use, and what they use.
    fn follow_tenants(&self, stop: &CancellationToken, done: &CancellationToken) {
        let quotas = Pace::Each(quota::REFRESH);
        self.every("quotas", quotas, done, |engine| async move {
            engine.keep_quotas().await
        });
        let measure = Pace::Each(quota::MEASURE);
        self.every("storage", measure, stop, |engine| async move {
            engine.measure_storage().await
        });
        let erase = Pace::Each(ERASE);
        self.every("deleted tenants", erase, stop, |engine| async move {
            engine.erase_tenants().await
        });
    }

    /// Starts one loop.
    fn every<F>(
        &self,
        name: &'static str,
        pace: Pace,
        stop: &CancellationToken,
        round: impl Fn(Arc<Engine>) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let engine = Arc::clone(self.engine);
        self.tasks
            .spawn(every(name, pace, stop.clone(), engine, round));
    }
}

/// One loop.
async fn every<T, E: std::fmt::Display, F>(
    name: &'static str,
    pace: Pace,
    stop: CancellationToken,
    whose: Arc<T>,
    round: impl Fn(Arc<T>) -> F + Send,
) where
    F: Future<Output = Result<(), E>> + Send,
{
    let mut next = Instant::now();
    let mut failing = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep_until(next) => {}
        }
        next = Instant::now() + pace.pause();
        match Reach::All.scope(round(Arc::clone(&whose))).await {
            Ok(()) => failing = false,
            Err(error) => {
                if !failing {
                    tracing::warn!(worker = name, %error, "a round failed; retrying");
                }
                failing = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_intervals_leave_time_to_act_and_have_jitter() {
        let interval = Duration::from_secs(1);
        let pauses: Vec<Duration> = (0..1000).map(|_| Pace::Within(interval).pause()).collect();
        let least = pauses.iter().min().unwrap();
        let most = pauses.iter().max().unwrap();
        assert!(
            *least >= interval.mul_f64(0.7) && *most <= interval.mul_f64(0.9),
            "{least:?} to {most:?}"
        );
        assert!(
            *most - *least > interval.mul_f64(0.15),
            "{least:?} to {most:?}"
        );
        assert_eq!(Pace::Each(interval).pause(), interval);
    }
}
