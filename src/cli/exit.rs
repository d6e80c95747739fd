//! Exit codes of failed commands.

use std::process::ExitCode;

use crate::config::ConfigError;

/// Exit code for invalid arguments or an invalid configuration.
const USAGE: u8 = 2;

/// The exit code for the error that ended a command.
pub(super) fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<ConfigError>() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
}
