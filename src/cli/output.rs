//! Output of commands on stdout.

use std::fmt::Display;
use std::io::Write;

/// The output format of a command: lines of text, or one JSON object.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(super) enum Format {
    #[default]
    Text,
    Json,
}

/// Prints a line to stdout.
pub(super) fn print_line(line: impl Display) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}
