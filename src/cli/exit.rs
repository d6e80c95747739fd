//! How a command that failed ends.

use std::process::ExitCode;

use crate::config::ConfigError;

/// Exit code of a command that could not start because of how it was called or configured.
const USAGE: u8 = 2;

/// The exit code for what ended a command.
pub(super) fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<ConfigError>() {
        ExitCode::from(USAGE)
    } else {
        ExitCode::FAILURE
    }
}
