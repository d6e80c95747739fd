//! `contextd version`: prints the version.

use std::process::ExitCode;

use serde_json::json;

use super::output::{Format, print_line};
use crate::store::migrate;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const COMMIT: Option<&str> = option_env!("GIT_COMMIT");

/// Print the version.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Output format: text or json.
    #[arg(long, env = "CONTEXTD_OUTPUT", value_enum, default_value_t)]
    output: Format,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match (args.output, COMMIT) {
        (Format::Text, Some(commit)) => print_line(format_args!("contextd {VERSION} ({commit})"))?,
        (Format::Text, None) => print_line(format_args!("contextd {VERSION}"))?,
        (Format::Json, commit) => print_line(json!({
            "version": VERSION,
            "commit": commit,
            "schemaVersion": migrate::newest(),
            "os": std::env::consts::OS,
            "architecture": std::env::consts::ARCH,
        }))?,
    }
    Ok(ExitCode::SUCCESS)
}
