//! Sessions that are moved from one database to another.

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

/// Writes sessions to a new file. Servers may run meanwhile.
pub async fn export(
    config: &Config,
    choice: &Choice,
    to: &Path,
    progress: &Progress,
) -> anyhow::Result<()> {
    let (database, postgres) = open(config, progress).await?;
    progress.step(format!("writing {}", to.display()));
    let written = Reach::All.scope(write(&database, choice, to)).await;
    close(database, postgres).await?;
    progress.step(format!("{} sessions written", written?));
    Ok(())
}

/// The file is only there if all of it is.
async fn write(database: &Database, choice: &Choice, to: &Path) -> anyhow::Result<u64> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file = options.open(to).await;
    let mut file = BufWriter::new(file.with_context(|| format!("cannot make {}", to.display()))?);
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

/// Adds the sessions of a file to a database, after bringing its schema up to date.
pub async fn import(config: &Config, from: &Path, progress: &Progress) -> anyhow::Result<()> {
    let file = File::open(from).await;
    let file = file.with_context(|| format!("cannot read {}", from.display()))?;
    let (database, postgres) = open(config, progress).await?;
    let filling = async {
        run_migrations(&database, progress).await?;
        progress.step(format!("reading {}", from.display()));
        Ok::<_, anyhow::Error>(transfer::fill(&database, &mut BufReader::new(file)).await?)
    };
    let filled = Reach::All.scope(filling).await;
    close(database, postgres).await?;
    let transfer::Filled { added, skipped } = filled?;
    progress.step(format!(
        "{added} sessions added; {skipped} were there already and are as they were"
    ));
    Ok(())
}
