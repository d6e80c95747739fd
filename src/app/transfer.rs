//! Exports and imports sessions, to move them to another database.

use std::path::Path;

use anyhow::Context as _;
use tokio::{
    fs::{self, File, OpenOptions},
    io::{BufReader, BufWriter},
};

use super::{close, open, run_migrations};
use crate::{
    config::Config,
    store::{
        Database, Reach,
        transfer::{self, Choice},
    },
    telemetry::progress::Progress,
};

/// Exports sessions to a new file. Servers may be running.
pub async fn export(config: &Config, choice: &Choice, to: &Path, progress: &Progress) -> anyhow::Result<()> {
    let (database, postgres) = open(config, progress).await?;
    progress.step(format!("writing {}", to.display()));
    let written = Reach::All.scope(write(&database, choice, to)).await;
    close(database, postgres).await?;
    progress.step(format!("{} sessions written", written?));
    Ok(())
}

/// Writes the file, and removes it again on an error, so that it is never incomplete.
async fn write(database: &Database, choice: &Choice, to: &Path) -> anyhow::Result<u64> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file = options.open(to).await;
    let mut file = BufWriter::new(file.with_context(|| format!("cannot create {}", to.display()))?);
    let written = async {
        let sessions = transfer::export(database, choice, &mut file).await?;
        file.get_ref().sync_all().await?;
        Ok(sessions)
    };
    let written = written.await;
    if written.is_err() {
        fs::remove_file(to).await.ok();
    }
    written
}

/// Imports the sessions of a file into a database, after migrating its schema.
pub async fn import(config: &Config, from: &Path, progress: &Progress) -> anyhow::Result<()> {
    let file = File::open(from).await;
    let file = file.with_context(|| format!("cannot read {}", from.display()))?;
    let (database, postgres) = open(config, progress).await?;
    let filling = async {
        run_migrations(&database, progress).await?;
        progress.step(format!("reading {}", from.display()));
        Ok::<_, anyhow::Error>(transfer::import_sessions(&database, &mut BufReader::new(file)).await?)
    };
    let filled = Reach::All.scope(filling).await;
    close(database, postgres).await?;
    let transfer::ImportSummary { added, skipped } = filled?;
    progress.step(format!("{added} sessions added; {skipped} already existed and were not changed"));
    Ok(())
}
