//! `contextd config`: what the settings are, and whether they are right.

use std::process::ExitCode;

use clap::Subcommand;

use super::output::say;
use super::settings::SettingArgs;
use crate::config;

/// Print or check the settings, without starting anything.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the settings in force as TOML, secrets hidden, with where each came from.
    Print(SettingArgs),
    /// Check the settings and name everything that is wrong with them.
    Validate(SettingArgs),
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Print(settings) => say(config::print(&settings.load()?).trim_end())?,
        Action::Validate(settings) => {
            settings.load()?;
            say("configuration is valid")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
