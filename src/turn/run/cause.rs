//! Why a turn starts to run on a replica.

use std::time::Instant;

/// Why a turn starts to run on this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::turn) enum Cause {
    /// ExecuteTurn started it. Contains the time at which the request was received.
    Executed(Instant),
    /// A queued message started it.
    Queued,
    /// The last missing tool result arrived.
    Answered,
    /// It continues after another owner, or after a grant with a lost response.
    Continued,
}
