//! A commit without the guard of a race.

use crate::protocol::guards::without_version;

/// A commit that does not notice that the session has changed since it was read, with a delay before it.
pub(super) fn slow_without_version(commit: &str) -> String {
    let slow = "  if not found then\n    return;\n  end if;\n";
    without_version(commit).replacen(slow, &format!("{slow}  perform pg_sleep(0.005);\n"), 1)
}
