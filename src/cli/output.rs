//! What commands print on stdout.

use std::fmt::Display;
use std::io::Write;

/// Writes a line of the command's own output.
pub(super) fn say(line: impl Display) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}
