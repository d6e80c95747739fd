//! The hands of contextd: long-running loops, all alike. Each waits, does one round, and stops when told to; a round that fails is
//! told once and tried again at the next.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::turn::{Engine, Error};

/// Heartbeats within one lease.
const BEATS_PER_LEASE: u32 = 3;

/// Looks at the age of leases within one lease.
const LOOKS_PER_LEASE: u32 = 30;

/// How often to look for what uploads and late writers left behind.
const SWEEP: Duration = Duration::from_mins(10);

/// How often to look for content that nothing refers to.
const SWEEP_BLOBS: Duration = Duration::from_hours(1);

/// How often what calls taught is written.
const LESSONS: Duration = Duration::from_secs(30);

/// Starts all loops. They end when `stop` fires; the heartbeat goes on until `done` does, for turns that are still being drained.
pub fn start(engine: &Arc<Engine>, stop: &CancellationToken, done: &CancellationToken) -> TaskTracker {
    let tasks = TaskTracker::new();
    let poll = engine.rules().poll_interval;
    let beat = engine.store().lease() / BEATS_PER_LEASE;
    let look = engine.store().lease() / LOOKS_PER_LEASE;
    let each = |engine: &Arc<Engine>| Arc::clone(engine);
    tasks.spawn(every("heartbeat", beat, done.clone(), each(engine), |engine| async move { engine.beat().await }));
    tasks.spawn(every("leases", look, done.clone(), each(engine), |engine| async move {
        engine.expire();
        Ok(())
    }));
    tasks.spawn(every(
        "cancels",
        poll,
        done.clone(),
        each(engine),
        |engine| async move { engine.look_for_cancels().await },
    ));
    tasks.spawn(every("news", poll, done.clone(), each(engine), |engine| async move { engine.look_for_news().await }));
    tasks.spawn(every(
        "readers",
        poll,
        stop.clone(),
        each(engine),
        |engine| async move { engine.look_for_readers().await },
    ));
    tasks.spawn(every("queues", poll, stop.clone(), each(engine), |engine| async move { engine.tend_queues().await }));
    tasks.spawn(every("compactions", poll, stop.clone(), each(engine), |engine| async move {
        engine.tend_compactions().await
    }));
    tasks.spawn(every("takeover", poll, stop.clone(), each(engine), |engine| async move { engine.take_over().await }));
    tasks.spawn(every(
        "uploads",
        SWEEP,
        stop.clone(),
        each(engine),
        |engine| async move { engine.sweep_uploads().await },
    ));
    tasks.spawn(every(
        "blobs",
        SWEEP_BLOBS,
        stop.clone(),
        each(engine),
        |engine| async move { engine.sweep_blobs().await },
    ));
    tasks.spawn(every(
        "lessons",
        LESSONS,
        done.clone(),
        each(engine),
        |engine| async move { engine.keep_lessons().await },
    ));
    if let Some(share) = engine.rules().share_interval {
        tasks.spawn(Arc::clone(engine).tell_wakeups(done.clone()));
        tasks.spawn(Arc::clone(engine).hear_wakeups(done.clone()));
        tasks.spawn(every("share", share, done.clone(), each(engine), |engine| async move { engine.share().await }));
        tasks.spawn(every(
            "chunks",
            SWEEP,
            stop.clone(),
            each(engine),
            |engine| async move { engine.sweep_chunks().await },
        ));
    }
    let purge = engine.stay();
    tasks.spawn(every("purge", purge, stop.clone(), each(engine), |engine| async move { engine.purge().await }));
    tasks.close();
    tasks
}

/// One loop.
async fn every<F>(
    name: &'static str,
    period: Duration,
    stop: CancellationToken,
    engine: Arc<Engine>,
    round: impl Fn(Arc<Engine>) -> F + Send,
) where
    F: Future<Output = Result<(), Error>> + Send,
{
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match round(Arc::clone(&engine)).await {
            Ok(()) => failing = false,
            Err(error) => {
                if !failing {
                    tracing::warn!(worker = name, %error, "a round failed; it is tried again");
                }
                failing = true;
            }
        }
    }
}
