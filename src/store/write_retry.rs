//! Repeats an owner's write whose response was lost, for as long as its lease may last.

use std::time::{Duration, Instant};

use super::{Error, Store};

/// The first pause. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The maximum pause.
const MAX_PAUSE: Duration = Duration::from_secs(1);

impl Store {
    /// Repeats a write until it gets a response. The write must detect whether an earlier attempt succeeded.
    pub(super) async fn retry_write<T, F>(&self, write: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let give_up = Instant::now() + self.lease_ttl;
        let mut pause = FIRST_PAUSE;
        loop {
            match write().await {
                Err(error) if error.is_transient() && Instant::now() + pause < give_up => {
                    tracing::warn!(%error, "no response to a write; retrying");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                result => return result,
            }
        }
    }
}
