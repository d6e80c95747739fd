//! An owner's write whose answer was lost is repeated for as long as its lease may last.

use std::time::{Duration, Instant};

use super::{Error, Store};

/// The first pause; each one after it is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Store {
    /// Repeats a write until it is answered. It must find out whether it had landed before.
    pub(super) async fn insist<T, F>(&self, write: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let give_up = Instant::now() + self.lease;
        let mut pause = FIRST_PAUSE;
        loop {
            match write().await {
                Err(error) if error.is_transient() && Instant::now() + pause < give_up => {
                    tracing::warn!(%error, "no answer to a write; repeating it");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                result => return result,
            }
        }
    }
}
