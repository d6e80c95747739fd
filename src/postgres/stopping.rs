//! How long stopping the server may take, step by step: asked to stop (SIGINT), told to quit
//! (SIGQUIT), given up.

use std::time::Duration;

/// How long a fast stop may take before the server is made to quit without tidying up.
pub(super) const QUIT_AFTER: Duration = Duration::from_secs(10);
/// How long a server that an earlier run left, and that was told to quit, may take.
pub(super) const GIVE_UP_AFTER: Duration = Duration::from_secs(10);
/// How long the guard may take to stop the server before contextd stops it itself.
pub(super) const GUARD_TIMEOUT: Duration = Duration::from_secs(20);
