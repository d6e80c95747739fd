//! `contextd version`: which contextd this is.

use std::process::ExitCode;

use super::output::say;

/// Print the version.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_args: Args) -> anyhow::Result<ExitCode> {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("GIT_COMMIT") {
        Some(commit) => say(format_args!("contextd {version} ({commit})"))?,
        None => say(format_args!("contextd {version}"))?,
    }
    Ok(ExitCode::SUCCESS)
}
