//! `contextd migrate`: migrates the schema of the database, then exits.

use std::process::ExitCode;

use super::settings::SettingArgs;
use crate::telemetry::progress::Progress;
use crate::{app, telemetry};

/// Migrate the schema of the database, then exit. Safe while servers are running.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    settings: SettingArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = args.settings.load()?.config;
    let _log = telemetry::init(&config.telemetry)?;
    let progress = Progress::to_terminal(config.telemetry.log_format);
    let outcome = app::migrate(&config, &progress).await;
    outcome.map(|()| ExitCode::SUCCESS)
}
