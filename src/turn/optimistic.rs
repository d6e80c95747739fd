//! Optimistic concurrency: an operation reads what it decides from without a lock, and its write
//! applies only if none of that has changed.

use std::{
    future::Future,
    ops::ControlFlow::{self, Break, Continue},
};

use crate::{store, turn::error::Error};

/// Attempts after which an operation is refused.
const TRIES: u32 = 10;

/// Repeats an attempt (read, decide, write) until it applies. An attempt returns `None` if the
/// session changed between its read and its write.
///
/// # Errors
///
/// A conflict if the session changed during every attempt.
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

/// Like [`retry_on_change`], but an attempt that did not apply passes a state to the next one.
pub(in crate::turn) async fn retry_with<S, T, F>(first: S, attempt: impl Fn(S) -> F) -> Result<T, Error>
where
    F: Future<Output = Result<ControlFlow<T, S>, Error>>,
{
    attempts(first, attempt)
        .await?
        .break_value()
        .ok_or_else(|| Error::Store(store::Error::Conflict("too many concurrent changes of the session".to_owned())))
}

/// Like [`retry_with`], but returns `Continue` instead of an error if no attempt applied.
pub(in crate::turn) async fn attempts<S, T, F>(first: S, attempt: impl Fn(S) -> F) -> Result<ControlFlow<T, S>, Error>
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
