//! Backs up and restores the embedded database.

use std::path::Path;

use anyhow::Context as _;

use super::{embedded_settings, start_embedded};
use crate::{
    config::Config,
    postgres::{self, Postgres},
    store::Connection,
    telemetry::progress::Progress,
};

/// Writes a dump of the embedded database to a new file. A running server is not interrupted.
pub async fn backup(config: &Config, to: &Path, progress: &Progress) -> anyhow::Result<()> {
    check_embedded(config)?;
    anyhow::ensure!(!to.exists(), "{} already exists and is not overwritten", to.display());
    let running = postgres::find_running(&config.embedded.cluster_dir()).await;
    let (server, postgres) = match running {
        Some(server) => (server, None),
        None => {
            anyhow::ensure!(
                config.embedded.cluster_dir().exists(),
                "there is no database in {}",
                config.embedded.data_dir.display()
            );
            started(start_embedded(config, progress).await?)
        }
    };
    progress.step(format!("writing {}", to.display()));
    let written = postgres::dump(embedded_settings(config)?, &server, to).await;
    stop(postgres).await?;
    written?;
    let bytes = std::fs::metadata(to).context("cannot read the backup")?;
    progress.step(format!("{} bytes written", bytes.len()));
    Ok(())
}

/// Restores a backup into the embedded database, which must be empty and not in use. The next start migrates
/// it.
pub async fn restore(config: &Config, from: &Path, progress: &Progress) -> anyhow::Result<()> {
    check_embedded(config)?;
    std::fs::metadata(from).with_context(|| format!("cannot read {}", from.display()))?;
    let (server, postgres) = started(start_embedded(config, progress).await?);
    progress.step(format!("reading {}", from.display()));
    let filled = postgres::restore(embedded_settings(config)?, &server, from).await;
    stop(postgres).await?;
    Ok(filled?)
}

fn started(postgres: Postgres) -> (Connection, Option<Postgres>) {
    (postgres.config(postgres::DATABASE), Some(postgres))
}

async fn stop(postgres: Option<Postgres>) -> anyhow::Result<()> {
    if let Some(postgres) = postgres {
        postgres.stop().await?;
    }
    Ok(())
}

fn check_embedded(config: &Config) -> anyhow::Result<()> {
    anyhow::ensure!(
        config.database.url.is_none(),
        "database.url is set: back up and restore an external database with its own tools, e.g. pg_dump"
    );
    Ok(())
}
