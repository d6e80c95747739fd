//! The embedded PostgreSQL.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the guard process.
pub fn guard_main(_args: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::FAILURE
}
