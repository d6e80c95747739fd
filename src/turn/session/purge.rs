//! The purge of deleted sessions: how long their rows stay for readers, and their removal.

use std::time::Duration;

use crate::turn::{Error, engine::Engine};

/// How long the rows of a deleted session stay at most.
const LONGEST_STAY: Duration = Duration::from_mins(1);
/// Sessions that are purged in one round.
const ROUND: u32 = 32;

impl Engine {
    /// How long the rows of a deleted session stay for those who follow it. A lease is many times
    /// as long as it takes to hear of it.
    pub fn stay(&self) -> Duration {
        self.store.lease().min(LONGEST_STAY)
    }

    /// Removes what deleted sessions left, once no reader can be following them any more.
    pub async fn purge(&self) -> Result<(), Error> {
        for key in self.store.purgeable(ROUND).await? {
            if self.draining.is_cancelled() {
                break;
            }
            if let Err(error) = self.store.purge(&key).await {
                tracing::warn!(session.id = %key.session, %error, "deleted session not purged");
            }
        }
        Ok(())
    }
}
