//! Whether commits wait for a synchronous standby.

use std::time::Duration;

use tokio::time::timeout;

use super::{Error, connections::Connections, error::Outage};
use crate::telemetry::Metrics;

/// How long the question may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Any commit in this database that waits for a standby. The wait of others is shown to the role
/// alone that they are of.
const AWAITED: &str = "-- store::standby::awaited
    select 1 from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep' limit 1";

/// The one who asks.
#[derive(Clone)]
pub(super) struct Standby {
    /// Connections of the role that all others log in as.
    connections: Connections,
    metrics: Metrics,
}

impl Standby {
    pub(super) fn new(connections: Connections, metrics: Metrics) -> Self {
        Self {
            connections,
            metrics,
        }
    }

    /// Whether a commit that gave no answer may be one that waits for a standby. What has no room
    /// for the question may be full of them.
    pub(super) async fn is_awaited(&self) -> bool {
        match timeout(TIMEOUT, self.ask()).await {
            Ok(Ok(is_awaited)) => is_awaited,
            Ok(Err(error)) => error.outage() == Some(Outage::NoConnectionLeft),
            Err(_) => false,
        }
    }

    async fn ask(&self) -> Result<bool, Error> {
        let held = self.connections.get_within(TIMEOUT, &self.metrics).await?;
        let rows = held.object.query_typed(AWAITED, &[]).await;
        if rows.is_err() {
            held.close();
        }
        Ok(!rows?.is_empty())
    }
}
