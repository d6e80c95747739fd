//! The drain at shutdown: turns reach a step boundary or are handed over.

use std::time::Duration;

use crate::turn::engine::Engine;

/// Longest time after the drain for handing turns over and for saving calibrations.
const LAST_WRITES: Duration = Duration::from_secs(5);

impl Engine {
    /// Lets turns reach a step boundary, for at most `patience`, and hands the rest over. Returns
    /// when no task runs any more, or when the time for the last writes has passed.
    pub async fn drain(&self, patience: Duration) {
        self.capacity.draining.cancel();
        self.capacity.tasks.close();
        let drained = tokio::time::timeout(patience, self.capacity.tasks.wait()).await;
        // An unresponsive database must not block the shutdown.
        let end = tokio::time::Instant::now() + LAST_WRITES;
        if drained.is_err() {
            self.capacity.aborting.cancel();
            let _ = tokio::time::timeout_at(end, self.capacity.tasks.wait()).await;
        }
        // Only this replica has the calibration of its last calls. A count that takes long is
        // abandoned.
        let counting = self.prompts.calibration_memory.counted();
        let _ = tokio::time::timeout_at(end - LAST_WRITES / 2, counting).await;
        match tokio::time::timeout_at(end, self.prompts.save_calibrations()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "failed to save the calibration")
            }
            Err(_) => tracing::warn!("timed out saving the calibration"),
        }
    }
}
