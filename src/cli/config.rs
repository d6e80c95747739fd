//! `contextd config`: prints and validates the settings.

use std::process::ExitCode;

use clap::Subcommand;

use super::output::say;
use super::settings::SettingArgs;
use crate::config;

/// Print or validate the settings, without starting anything.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the settings in force as TOML with the source of each. Secrets are hidden.
    Print(SettingArgs),
    /// Validate the settings and report every problem.
    Validate(SettingArgs),
    /// Print all settings with their defaults, ranges and documentation, as Markdown.
    Reference,
    /// Print the JSON schema of a configuration file.
    Schema,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Print(settings) => say(config::print(&settings.load()?).trim_end())?,
        Action::Validate(settings) => {
            settings.load()?;
            say("configuration is valid")?;
        }
        Action::Reference => say(config::reference::markdown().trim_end())?,
        Action::Schema => say(&serde_json::to_string_pretty(&config::reference::schema())?)?,
    }
    Ok(ExitCode::SUCCESS)
}
