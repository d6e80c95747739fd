//! `contextd backup` and `contextd restore`: dump the embedded database to a file, and load it again.

use std::{path::PathBuf, process::ExitCode};

use super::settings::SettingArgs;
use crate::{app, telemetry, telemetry::progress::Progress};

/// Write the embedded database to a file, even while a server is using it.
#[derive(Debug, clap::Args)]
pub(super) struct BackupArgs {
    /// The file, which must not exist: a dump in PostgreSQL's custom format.
    file: PathBuf,
    #[command(flatten)]
    settings: SettingArgs,
}

/// Load a file written by `backup` into an empty embedded database.
#[derive(Debug, clap::Args)]
pub(super) struct RestoreArgs {
    /// The file.
    file: PathBuf,
    #[command(flatten)]
    settings: SettingArgs,
}

pub(super) async fn backup(args: BackupArgs) -> anyhow::Result<ExitCode> {
    let config = args.settings.load()?.config;
    let _log = telemetry::init(&config.telemetry)?;
    let progress = Progress::to_terminal(config.telemetry.log_format);
    let outcome = app::backup::backup(&config, &args.file, &progress).await;
    outcome.map(|()| ExitCode::SUCCESS)
}

pub(super) async fn restore(args: RestoreArgs) -> anyhow::Result<ExitCode> {
    let config = args.settings.load()?.config;
    let _log = telemetry::init(&config.telemetry)?;
    let progress = Progress::to_terminal(config.telemetry.log_format);
    let outcome = app::backup::restore(&config, &args.file, &progress).await;
    outcome.map(|()| ExitCode::SUCCESS)
}
