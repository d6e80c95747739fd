//! Optimistic concurrency: what an operation decides from is read without a lock, and what it writes
//! applies only if nothing of that has changed.

use std::future::Future;

use crate::{store, turn::Error};

/// How often an operation looks before it is refused.
pub(in crate::turn) const TRIES: u32 = 10;

/// Looks, decides and writes until that applies. An attempt returns `None` if the session changed
/// between its look and its write.
pub(in crate::turn) async fn retry_on_change<T, F>(attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<Option<T>, Error>>,
{
    for _ in 0..TRIES {
        if let Some(done) = attempt().await? {
            return Ok(done);
        }
    }
    Err(kept_changing())
}

/// An operation is refused because the session changed under every one of its tries.
pub(in crate::turn) fn kept_changing() -> Error {
    Error::Store(store::Error::Conflict(
        "the session kept changing".to_owned(),
    ))
}
