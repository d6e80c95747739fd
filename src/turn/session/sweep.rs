//! Retention: removes expired rows in batches, deletes sessions that have been unused for too long,
//! and removes unreferenced blobs.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    config::RetentionConfig,
    context::estimator::Estimator,
    model::{SessionKey, command::Idempotency},
    store::{
        self,
        delete::Deletion,
        sweep::{Swept, UNLIMITED, Walk},
    },
    turn::{
        Error,
        engine::{Capacity, SessionCommands},
    },
};

impl SessionCommands {
    /// Removes all expired rows. A failure does not hold up the rest. Returns the first error.
    pub async fn retain(&self) -> Result<(), Error> {
        let RetentionConfig { request_ids, queue, events, sessions: _, tool_sets: _, interval: _, batch_rows } =
            self.prompts.rules.retention;
        let store = &self.store;
        let swept = [
            self.expire_sessions().await,
            self.sweep("request_ids", || store.sweep_requests(request_ids, batch_rows)).await,
            self.sweep("queued_messages", || store.sweep_queue(queue, batch_rows)).await,
            match events {
                Some(events) => self.sweep("events", || store.sweep_events(events, batch_rows)).await,
                None => Ok(()),
            },
            self.sweep_tool_sets().await,
        ];
        swept.into_iter().collect()
    }

    /// Removes blobs that are unreferenced and were not touched for a day, in bounded batches.
    pub async fn sweep_blobs(&self) -> Result<(), Error> {
        let mut walk = Walk::default();
        let mut swept = 0;
        while !self.capacity.draining.is_cancelled() {
            let Some((removed, next)) = self.store.sweep_blobs(&walk).await? else {
                break;
            };
            swept += removed;
            self.metrics.removed("blobs", removed);
            walk = next;
        }
        if swept > 0 {
            tracing::info!(blobs = swept, "removed unreferenced blobs");
        }
        Ok(())
    }

    /// Removes expired rows batch by batch.
    async fn sweep<F>(&self, what: &'static str, batch: impl Fn() -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<Swept, store::Error>>,
    {
        let removed = self.capacity.batches((), |()| async {
            let swept = batch().await?;
            // Counted per batch: a sweep of many rows takes hours.
            self.metrics.removed(what, swept.rows);
            Ok((swept.rows, swept.more.then_some(())))
        });
        log_removed(what, removed.await?);
        Ok(())
    }

    async fn sweep_tool_sets(&self) -> Result<(), Error> {
        let RetentionConfig { tool_sets, batch_rows, .. } = self.prompts.rules.retention;
        let removed = self.capacity.batches(Walk::default(), |walk| async move {
            let swept = self.store.sweep_tool_sets(&walk, tool_sets, batch_rows).await?;
            let (rows, next) = swept.map_or((0, None), |(rows, next)| (rows, Some(next)));
            self.metrics.removed("tool_sets", rows);
            Ok((rows, next))
        });
        log_removed("tool_sets", removed.await?);
        Ok(())
    }

    /// Deletes sessions that have been unused for too long. A session that is used concurrently
    /// stays.
    async fn expire_sessions(&self) -> Result<(), Error> {
        let RetentionConfig { sessions, batch_rows, .. } = self.prompts.rules.retention;
        let unused_for = sessions.unwrap_or(UNLIMITED);
        while !self.capacity.draining.is_cancelled() {
            let unused = self.store.unused_sessions(unused_for, batch_rows).await?;
            let mut deleted = 0;
            for key in &unused {
                deleted += u32::from(self.expire_session(key, unused_for).await?);
            }
            // If none could be deleted, other replicas are deleting them. The rest is found in the
            // next round.
            if deleted == 0 || unused.len() < batch_rows as usize {
                break;
            }
        }
        Ok(())
    }

    /// Deletes a session if it is idle and unused. Returns `false` if it is not, or no longer
    /// exists.
    async fn expire_session(&self, key: &SessionKey, unused_for: Duration) -> Result<bool, Error> {
        let Some(seen) = self.store.head(key, None).await?.filter(|seen| seen.live_turn().is_none()) else {
            return Ok(false);
        };
        let estimator = Estimator::Characters;
        let idempotency = Idempotency::none();
        let deletion = Deletion {
            seen: &seen,
            revision: None,
            end: None,
            estimator: &estimator.name(),
            retention: self.stay(),
            idempotency: &idempotency,
            unused_for: Some(unused_for),
        };
        let Some(last) = self.store.delete(key, &deletion).await? else {
            return Ok(false);
        };
        self.metrics.removed("sessions", 1);
        tracing::info!(session.id = %key.session, "deleted a session whose time to live expired");
        self.live.stop_deleted_session(key, seen.fence.epoch, last);
        Ok(true)
    }
}

impl Capacity {
    /// Runs batch after batch, each from where the one before stopped, until a batch returns no
    /// continuation. Returns the total number of rows. Pauses after each batch for as long as it
    /// took, so that a sweep uses at most half a connection.
    pub(super) async fn batches<W, F>(&self, mut from: W, batch: impl Fn(W) -> F) -> Result<u64, Error>
    where
        F: Future<Output = Result<(u64, Option<W>), store::Error>>,
    {
        let mut all = 0;
        while !self.draining.is_cancelled() {
            let begun = Instant::now();
            let (rows, next) = batch(from).await?;
            all += rows;
            let Some(next) = next else { break };
            from = next;
            tokio::time::sleep(begun.elapsed()).await;
        }
        Ok(all)
    }
}

fn log_removed(what: &'static str, rows: u64) {
    if rows > 0 {
        tracing::info!(what, rows, "removed rows older than their retention");
    }
}
