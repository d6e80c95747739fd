//! The metric of queued messages.

use crate::turn::{Error, engine::SessionCommands};

/// Most messages that are counted. A larger backlog is reported as this number.
const MAX_COUNTED_MESSAGES: u32 = 10_000;

impl SessionCommands {
    /// Counts the queued messages of all sessions for the metrics.
    pub async fn measure_backlog(&self) -> Result<(), Error> {
        let (waiting, oldest) = self.store.backlog(MAX_COUNTED_MESSAGES).await?;
        self.metrics.queued(waiting, oldest);
        Ok(())
    }
}
