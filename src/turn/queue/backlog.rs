//! How much waits in all queues, as it is measured.

use crate::turn::{Error, engine::Engine};

/// Messages that are counted at most: more are shown as so many.
const MOST: u32 = 10_000;

impl Engine {
    /// Counts the messages that wait.
    pub async fn measure_backlog(&self) -> Result<(), Error> {
        let (waiting, oldest) = self.store.backlog(MOST).await?;
        self.metrics.queued(waiting, oldest);
        Ok(())
    }
}
