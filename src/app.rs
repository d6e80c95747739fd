//! The composition root.

use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::telemetry::progress::Progress;

/// Serves until `shutdown` is cancelled and everything in flight is finished or handed over.
pub async fn serve(_config: Config, _progress: Progress, _shutdown: CancellationToken) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}

/// Brings the database's schema to the version that this binary knows.
pub async fn migrate(_config: &Config, _progress: &Progress) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
