//! `contextd completion`: prints completion scripts for shells.

use std::io::Write;
use std::process::ExitCode;

use clap_complete::Shell;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell.
    shell: Shell,
}

/// Prints the completion script for `command`, the root of the command line.
pub(super) fn run(args: Args, command: &mut clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "contextd", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
