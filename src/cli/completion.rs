//! `contextd completion`: what a shell needs to complete the command line.

use std::io::Write;
use std::process::ExitCode;

use clap_complete::Shell;

/// Print a completion script, for the shell to load.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell.
    shell: Shell,
}

/// Prints the script for `command`, the whole command line.
pub(super) fn run(args: Args, command: &mut clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "contextd", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
