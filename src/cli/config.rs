//! `contextd config`: prints and validates the settings.

use std::process::ExitCode;

use clap::Subcommand;

use super::output::print_line;
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
        Action::Print(settings) => print_line(config::print(&settings.load()?).trim_end())?,
        Action::Validate(settings) => {
            settings.load()?;
            print_line("configuration is valid")?;
        }
        Action::Reference => print_line(config::reference::markdown().trim_end())?,
        Action::Schema => print_line(&serde_json::to_string_pretty(&config::reference::schema())?)?,
    }
    Ok(ExitCode::SUCCESS)
}
