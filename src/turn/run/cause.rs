//! Why a turn runs on a replica from some moment on.

use std::time::Instant;

/// Why a turn runs here from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::turn) enum Cause {
    /// ExecuteTurn began it; when its request was received.
    Executed(Instant),
    /// A queued message began it.
    Queued,
    /// It waited for results, or had another owner.
    GoesOn,
}
