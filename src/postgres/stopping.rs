//! Time limits for stopping the server: fast shutdown (SIGINT), then immediate shutdown (SIGQUIT), then giving up.

use std::time::Duration;

/// Time limit of a fast shutdown; then the server is stopped immediately, without cleanup.
pub(super) const FAST_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of the immediate shutdown of a server that an earlier run left behind.
pub(super) const IMMEDIATE_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the guard may take to stop the server before contextd stops the server itself.
pub(super) const GUARD_TIMEOUT: Duration = Duration::from_secs(20);
