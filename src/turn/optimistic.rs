//! Optimistic concurrency: what an operation decides from is read without a lock, and what it writes
//! applies only if nothing of that has changed.

use std::{
    future::Future,
    ops::ControlFlow::{self, Break, Continue},
};

use crate::{store, turn::Error};

/// How often an operation looks before it is refused.
const TRIES: u32 = 10;

/// Looks, decides and writes until that applies. An attempt returns `None` if the session changed
/// between its look and its write.
pub(in crate::turn) async fn retry_on_change<T, F>(attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<Option<T>, Error>>,
{
    let attempt = &attempt;
    retry_with((), |()| async move {
        Ok(match attempt().await? {
            Some(done) => Break(done),
            None => Continue(()),
        })
    })
    .await
}

/// The same where an attempt that does not apply leaves something to the next one.
pub(in crate::turn) async fn retry_with<S, T, F>(
    first: S,
    attempt: impl Fn(S) -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<ControlFlow<T, S>, Error>>,
{
    attempts(first, attempt)
        .await?
        .break_value()
        .ok_or_else(|| {
            Error::Store(store::Error::Conflict(
                "the session kept changing".to_owned(),
            ))
        })
}

/// The same for what may also stay undone. Continues if no attempt applied.
pub(in crate::turn) async fn attempts<S, T, F>(
    first: S,
    attempt: impl Fn(S) -> F,
) -> Result<ControlFlow<T, S>, Error>
where
    F: Future<Output = Result<ControlFlow<T, S>, Error>>,
{
    let mut left = first;
    for _ in 0..TRIES {
        match attempt(left).await? {
            Break(done) => return Ok(Break(done)),
            Continue(next) => left = next,
        }
    }
    Ok(Continue(left))
}
