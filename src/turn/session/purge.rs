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

    /// Removes what deleted sessions left, once no reader can be following them any more: round after
    /// round while there are more, each after a pause as long as the one before took.
    pub async fn purge(&self) -> Result<(), Error> {
        let purged = self.batches((), |()| async move {
            let found = self.store.purgeable(ROUND).await?;
            let is_full = found.len() == ROUND as usize;
            let mut purged = 0;
            for key in found {
                if self.draining.is_cancelled() {
                    break;
                }
                match self.store.purge(&key).await {
                    Ok(()) => purged += 1,
                    Err(error) => {
                        tracing::warn!(session.id = %key.session, %error, "deleted session not purged");
                    }
                }
            }
            // Where none could be purged the next round would find the same.
            Ok((purged, (is_full && purged > 0).then_some(())))
        });
        purged.await.map(drop)
    }
}
