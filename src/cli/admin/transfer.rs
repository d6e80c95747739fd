//! `contextd admin export` and `import`: move sessions to another database through a file.

use std::path::PathBuf;

use crate::{
    app,
    cli::settings::SettingArgs,
    model::{SessionId, TenantId},
    store::transfer::Choice,
    telemetry::{self, progress::Progress},
};

/// Write sessions from the database to a file, even while servers are running or if the database has an older
/// schema.
#[derive(Debug, clap::Args)]
pub(super) struct ExportArgs {
    /// The file, which must not exist: one row in JSON per line.
    file: PathBuf,
    /// Export only sessions of this tenant [no default: all]
    #[arg(long, env = "CONTEXTD_TENANT", hide_env_values = true)]
    tenant: Option<String>,
    /// Export only the session with this id; may be repeated [no default: all]
    #[arg(
        long = "session",
        value_name = "ID",
        env = "CONTEXTD_SESSION",
        hide_env_values = true,
        value_delimiter = ','
    )]
    sessions: Vec<String>,
    #[command(flatten)]
    settings: SettingArgs,
}

/// Add the sessions of a file to the database. A session that already exists is not changed.
#[derive(Debug, clap::Args)]
pub(super) struct ImportArgs {
    /// The file.
    file: PathBuf,
    #[command(flatten)]
    settings: SettingArgs,
}

pub(super) async fn export(args: ExportArgs) -> anyhow::Result<()> {
    let config = args.settings.load()?.config;
    let _log = telemetry::init(&config.telemetry)?;
    let progress = Progress::to_terminal(config.telemetry.log_format);
    let choice = Choice {
        tenant: args.tenant.map(TenantId::new),
        sessions: args.sessions.into_iter().map(SessionId::new).collect(),
    };
    app::transfer::export(&config, &choice, &args.file, &progress).await
}

pub(super) async fn import(args: ImportArgs) -> anyhow::Result<()> {
    let config = args.settings.load()?.config;
    let _log = telemetry::init(&config.telemetry)?;
    let progress = Progress::to_terminal(config.telemetry.log_format);
    app::transfer::import(&config, &args.file, &progress).await
}
