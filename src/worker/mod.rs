//! Periodic background tasks. Each waits, does one round, and stops on request. A failed round is
//! retried at the next one; only the first of consecutive failures is logged.

use std::{
    future::Future,
    hash::{BuildHasher as _, RandomState},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    auth::{self, Auth},
    quota,
    store::Reach,
    turn::{Engine, Error},
};

/// Heartbeats per lease duration.
const BEATS_PER_LEASE: u32 = 3;

/// Checks for expired leases per lease duration.
const EXPIRY_CHECKS_PER_LEASE: u32 = 30;

/// Interval between searches for the leftovers of uploads and late writers.
const SWEEP: Duration = Duration::from_mins(10);

/// Interval between searches for unreferenced blobs.
const SWEEP_BLOBS: Duration = Duration::from_hours(1);

/// Interval at which a replica continues the deletion of tenants.
const ERASE: Duration = Duration::from_secs(1);

/// Interval between writes of calibrations.
const CALIBRATION_SAVE_INTERVAL: Duration = Duration::from_secs(30);

/// A replica's memory of a session without writes is dropped after this time, at the latest after
/// twice that.
const SESSION_MEMORY: Duration = Duration::from_mins(15);

/// Interval between scans of all live turns. A scan finds turns without an owner that no dead or
/// stopped replica points to.
const TURNS: Duration = Duration::from_mins(5);

/// Interval at which each replica counts the queued messages.
const BACKLOG: Duration = Duration::from_secs(15);

/// Searches for idle connections per idle timeout.
const IDLE_CHECKS_PER_TIMEOUT: u32 = 2;

/// The earliest and the latest time of the next poll, as a share of the poll interval. The rest of
/// the interval is for acting on what was found, so that the interval bounds both. The time in
/// between is random, so that replicas do not poll in step.
const POLL_SHARE: (f64, f64) = (0.7, 0.9);

/// Consecutive panics of a loop after which the process ends.
const MAX_PANICS: u32 = 5;
/// Pause before a task that panicked is restarted.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// When a loop does its next round, measured from the start of the last one.
#[derive(Debug, Clone, Copy)]
enum Pace {
    /// After this time.
    Each(Duration),
    /// After a random time, early enough to also act on the findings within this time.
    Within(Duration),
}

impl Pace {
    fn pause(self) -> Duration {
        match self {
            Self::Each(period) => period,
            Self::Within(period) => {
                let (soonest, latest) = POLL_SHARE;
                period.mul_f64(soonest + (latest - soonest) * random_fraction())
            }
        }
    }
}

/// A random number from 0 to 1.
fn random_fraction() -> f64 {
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}

/// Starts all loops. They end when `stop` fires. The heartbeat continues until `done` fires, for
/// turns that are still being drained. `broken` fires when a loop fails permanently.
pub fn start(
    engine: &Arc<Engine>,
    stop: &CancellationToken,
    done: &CancellationToken,
    broken: &CancellationToken,
) -> TaskTracker {
    let loops = Loops { tasks: TaskTracker::new(), engine, broken };
    let rules = &engine.prompts.rules;
    let poll = Pace::Within(rules.turn.poll_interval);
    let beat = Pace::Each(engine.store().lease_ttl() / BEATS_PER_LEASE);
    let look = Pace::Each(engine.store().lease_ttl() / EXPIRY_CHECKS_PER_LEASE);
    loops.every("heartbeat", beat, done, |engine| async move { engine.send_heartbeat().await });
    loops.every("leases", look, done, |engine| async move {
        engine.expire();
        Ok(())
    });
    let idle = Pace::Each(engine.store().idle_timeout() / IDLE_CHECKS_PER_TIMEOUT);
    loops.every("idle connections", idle, done, |engine| async move {
        engine.store().close_idle_connections();
        Ok(())
    });
    let memory = Pace::Each(SESSION_MEMORY);
    loops.every("session memory", memory, done, |engine| async move {
        engine.store().forget_unused();
        Ok(())
    });
    loops.every("cancels", poll, done, |engine| async move { engine.poll_cancels().await });
    loops.every("news", poll, done, |engine| async move { engine.live.poll_events().await });
    loops.every("lost events", poll, done, |engine| async move { engine.live.check_lost_events().await });
    loops.every("readers", poll, stop, |engine| async move { engine.check_readers().await });
    loops.every("queue expiry", poll, stop, |engine| async move { engine.sessions.expire_queued_messages().await });
    loops.every("queued turns", poll, stop, |engine| async move { engine.start_waiting_turns().await });
    loops.every("compactions", poll, stop, |engine| async move { engine.sessions.expire_compactions().await });
    loops.take_over(poll, stop);
    loops.follow_tenants(stop, done);
    loops.sweep(stop);
    loops.every("backlog", Pace::Each(BACKLOG), done, |engine| async move { engine.sessions.measure_backlog().await });
    loops.every("lessons", Pace::Each(CALIBRATION_SAVE_INTERVAL), done, |engine| async move {
        engine.prompts.save_calibrations().await
    });
    let retention = Pace::Within(rules.retention.interval);
    loops.every("retention", retention, stop, |engine| async move { engine.sessions.retain().await });
    if rules.models.discover {
        let interval = Pace::Each(rules.models.refresh_interval);
        loops.every("models", interval, stop, |engine| async move { engine.prompts.refresh_models().await });
    }
    let stay = Pace::Each(engine.sessions.stay());
    loops.every("purge", stay, stop, |engine| async move { engine.sessions.purge().await });
    if rules.has_other_replicas {
        loops.share(rules.turn.share_interval, stop, done);
    }
    loops.tasks.close();
    loops.tasks
}

/// Keeps the callers' keys in sync with the database and the keys file, and the issuer's keys in
/// sync with the token issuer.
pub fn keep_credentials(tasks: &TaskTracker, auth: &Arc<Auth>, stop: &CancellationToken, broken: &CancellationToken) {
    let tokens = || (stop.clone(), broken.clone());
    let pace = Pace::Each(auth::KEYS_REFRESH);
    let keys = |auth: Arc<Auth>| async move { auth.refresh_keys().await };
    let whose = Arc::clone(auth);
    tasks.spawn(every("credentials", pace, tokens(), whose, keys));
    let issuer = |auth: Arc<Auth>| async move {
        auth.refresh_issuer(auth::ISSUER_REFRESH).await;
        Ok::<_, auth::Error>(())
    };
    let whose = Arc::clone(auth);
    tasks.spawn(every("token issuer", pace, tokens(), whose, issuer));
}

/// The loops that were started, and what they share.
struct Loops<'a> {
    tasks: TaskTracker,
    engine: &'a Arc<Engine>,
    broken: &'a CancellationToken,
}

impl Loops<'_> {
    /// Starts the loops that look for turns without an owner.
    fn take_over(&self, poll: Pace, stop: &CancellationToken) {
        self.every("takeover", poll, stop, |engine| async move { engine.take_over().await });
        self.every("turns", Pace::Each(TURNS), stop, |engine| async move {
            engine.mark_unknown_grants();
            engine.take_over_all().await
        });
    }

    /// Starts the loops that remove the leftovers of uploads and unreferenced blobs.
    fn sweep(&self, stop: &CancellationToken) {
        self.every("uploads", Pace::Each(SWEEP), stop, |engine| async move { engine.sessions.sweep_uploads().await });
        let seldom = Pace::Each(SWEEP_BLOBS);
        self.every("blobs", seldom, stop, |engine| async move { engine.sessions.sweep_blobs().await });
    }

    /// Starts the loops of a replica in a deployment with several replicas.
    fn share(&self, share_interval: Duration, stop: &CancellationToken, done: &CancellationToken) {
        let (live, until) = (Arc::clone(&self.engine.live), done.clone());
        let telling = move || Arc::clone(&live).send_wakeups(until.clone());
        self.tasks.spawn(supervised("wake-ups sent", self.broken.clone(), telling));
        let (engine, until) = (Arc::clone(self.engine), done.clone());
        let hearing = move || Arc::clone(&engine).receive_wakeups(until.clone());
        self.tasks.spawn(supervised("wake-ups heard", self.broken.clone(), hearing));
        self.every("share", Pace::Each(share_interval), done, |engine| async move { engine.live.share().await });
        self.every("chunks", Pace::Each(SWEEP), stop, |engine| async move { engine.live.sweep_chunks().await });
    }

    /// Starts the loops for limits, usage and the deletion of tenants.
    fn follow_tenants(&self, stop: &CancellationToken, done: &CancellationToken) {
        let quotas = Pace::Each(quota::REFRESH_INTERVAL);
        self.every("quotas", quotas, done, |engine| async move { engine.keep_quotas().await });
        let measure = Pace::Each(quota::MEASURE_INTERVAL);
        self.every("storage", measure, stop, |engine| async move { Ok(engine.capacity.quotas.measure().await?) });
        let erase = Pace::Each(ERASE);
        self.every("deleted tenants", erase, stop, |engine| async move { engine.sessions.erase_tenants().await });
    }

    fn every<F>(
        &self,
        name: &'static str,
        pace: Pace,
        stop: &CancellationToken,
        round: impl Fn(Arc<Engine>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let engine = Arc::clone(self.engine);
        let tokens = (stop.clone(), self.broken.clone());
        self.tasks.spawn(every(name, pace, tokens, engine, round));
    }
}

/// Runs a task that has its own loop, and restarts it after a panic. `broken` fires after too many
/// panics.
pub async fn supervised<F>(name: &'static str, broken: CancellationToken, begin: impl Fn() -> F + Send + Sync)
where
    F: Future<Output = ()> + Send,
{
    begin_again(name, AFTER_PANIC, broken, begin).await;
}

/// Like [`supervised`], with the given pause after each panic.
async fn begin_again<F>(
    name: &'static str,
    pause: Duration,
    broken: CancellationToken,
    begin: impl Fn() -> F + Send + Sync,
) where
    F: Future<Output = ()> + Send,
{
    for panics in 1..=MAX_PANICS {
        let task = async { Reach::All.scope(begin()).await };
        if AssertUnwindSafe(task).catch_unwind().await.is_ok() {
            return;
        }
        tracing::error!(worker = name, panics, "a task panicked; restarting it");
        sleep(pause).await;
    }
    broken.cancel();
}

/// Runs a task that the process depends on. If it panics, or ends before `stop` fires, the process
/// ends.
pub async fn required(
    name: &'static str,
    (stop, broken): (CancellationToken, CancellationToken),
    task: impl Future<Output = ()> + Send,
) {
    let panicked = AssertUnwindSafe(task).catch_unwind().await.is_err();
    if panicked || !stop.is_cancelled() {
        tracing::error!(worker = name, panicked, "a required task ended unexpectedly");
        broken.cancel();
    }
}

/// Runs one loop. A round that panics is logged and followed by the next one. Too many consecutive
/// panics end the loop and the process.
async fn every<T, E: std::fmt::Display, F>(
    name: &'static str,
    pace: Pace,
    (stop, broken): (CancellationToken, CancellationToken),
    whose: Arc<T>,
    round: impl Fn(Arc<T>) -> F + Send + Sync,
) where
    T: Send + Sync,
    F: Future<Output = Result<(), E>> + Send,
{
    let mut next = Instant::now();
    let mut failing = false;
    let mut panics = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep_until(next) => {}
        }
        next = Instant::now() + pace.pause();
        let whose = Arc::clone(&whose);
        let done = async { Reach::All.scope(round(whose)).await };
        let Ok(done) = AssertUnwindSafe(done).catch_unwind().await else {
            panics += 1;
            tracing::error!(worker = name, panics, "a worker round panicked");
            if panics >= MAX_PANICS {
                broken.cancel();
                return;
            }
            continue;
        };
        panics = 0;
        match done {
            Ok(()) => failing = false,
            Err(error) => {
                if !failing {
                    tracing::warn!(worker = name, %error, "a worker round failed; retrying");
                }
                failing = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// The number of rounds that a loop did until it ended, and whether it fired `broken`. `panics`
    /// selects the rounds that panic.
    async fn rounds(panics: fn(u32) -> bool) -> (u32, bool) {
        let (stop, broken) = (CancellationToken::new(), CancellationToken::new());
        let done = Arc::new(AtomicU32::new(0));
        let ending = stop.clone();
        let round = move |done: Arc<AtomicU32>| {
            let round = done.fetch_add(1, Ordering::Relaxed);
            let ending = ending.clone();
            async move {
                assert!(!panics(round), "a round that panics");
                if round == 20 {
                    ending.cancel();
                }
                Ok::<_, std::fmt::Error>(())
            }
        };
        let tokens = (stop, broken.clone());
        let pace = Pace::Each(Duration::ZERO);
        every("test", pace, tokens, Arc::clone(&done), round).await;
        (done.load(Ordering::Relaxed), broken.is_cancelled())
    }

    #[tokio::test]
    async fn a_loop_goes_on_after_a_round_that_panics() {
        assert_eq!(rounds(|round| round % 2 == 0 && round < 20).await, (21, false));
    }

    #[tokio::test]
    async fn a_loop_of_which_every_round_panics_is_broken() {
        assert_eq!(rounds(|_| true).await, (MAX_PANICS, true));
    }

    #[tokio::test]
    async fn a_task_that_panics_is_begun_again_until_it_is_broken() {
        let broken = CancellationToken::new();
        let begun = AtomicU32::new(0);
        let once = || async { assert!(begun.fetch_add(1, Ordering::Relaxed) > 0, "once") };
        begin_again("test", Duration::ZERO, broken.clone(), once).await;
        assert_eq!((begun.load(Ordering::Relaxed), broken.is_cancelled()), (2, false));
        begin_again("test", Duration::ZERO, broken.clone(), || async { panic!("always") }).await;
        assert!(broken.is_cancelled());
    }

    #[tokio::test]
    async fn a_required_task_that_ends_before_the_stop_is_broken() {
        let ended = async |stopped: bool, task: fn()| {
            let (stop, broken) = (CancellationToken::new(), CancellationToken::new());
            if stopped {
                stop.cancel();
            }
            required("test", (stop, broken.clone()), async move { task() }).await;
            broken.is_cancelled()
        };
        assert!(ended(false, || {}).await);
        assert!(ended(false, || panic!("a defect")).await);
        assert!(ended(true, || panic!("a defect")).await);
        assert!(!ended(true, || {}).await);
    }

    #[test]
    fn poll_intervals_leave_time_to_act_and_have_jitter() {
        let interval = Duration::from_secs(1);
        let pauses: Vec<Duration> = (0..1000).map(|_| Pace::Within(interval).pause()).collect();
        let least = pauses.iter().min().unwrap();
        let most = pauses.iter().max().unwrap();
        assert!(*least >= interval.mul_f64(0.7) && *most <= interval.mul_f64(0.9), "{least:?} to {most:?}");
        assert!(*most - *least > interval.mul_f64(0.15), "{least:?} to {most:?}");
        assert_eq!(Pace::Each(interval).pause(), interval);
    }
}
