//! What commands print on stdout.

use std::fmt::Display;
use std::io::Write;

/// How a command prints what it found: lines for people, or one JSON object.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(super) enum Format {
    #[default]
    Text,
    Json,
}

/// Writes a line of the command's own output.
pub(super) fn say(line: impl Display) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}
