//! Purge: how long the rows of a deleted session stay for readers, and their removal.

use std::time::Duration;

use crate::turn::{Error, engine::SessionCommands};

/// Longest time that the rows of a deleted session stay.
const MAX_PURGE_DELAY: Duration = Duration::from_mins(1);
/// Sessions purged in one round.
const ROUND: u32 = 32;

impl SessionCommands {
    /// How long the rows of a deleted session stay for its readers. A lease is many times longer
    /// than readers need to be notified of the deletion.
    pub fn stay(&self) -> Duration {
        self.store.lease_ttl().min(MAX_PURGE_DELAY)
    }

    /// Removes the rows of deleted sessions that can no longer have readers: round after round
    /// while there are more, each followed by a pause as long as the round took.
    pub async fn purge(&self) -> Result<(), Error> {
        let purged = self.capacity.batches((), |()| async move {
            let found = self.store.purgeable(ROUND).await?;
            let is_full = found.len() == ROUND as usize;
            let mut purged = 0;
            for key in found {
                if self.capacity.draining.is_cancelled() {
                    break;
                }
                match self.store.purge(&key).await {
                    Ok(()) => purged += 1,
                    Err(error) => {
                        tracing::warn!(session.id = %key.session, %error, "failed to purge a deleted session");
                    }
                }
            }
            // If none could be purged, the next round would find the same sessions.
            Ok((purged, (is_full && purged > 0).then_some(())))
        });
        purged.await.map(drop)
    }
}
