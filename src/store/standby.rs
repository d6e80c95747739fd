//! Detects whether commits wait for a synchronous standby.

use std::time::Duration;

use tokio::time::timeout;

use super::{Error, connections::Connections, error::Outage};
use crate::telemetry::Metrics;

/// Timeout of the check.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Finds any commit in this database that waits for a standby. PostgreSQL shows the wait event of a session only to its
/// own role.
const AWAITED: &str = "-- store::standby::awaited
    select 1 from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep' limit 1";

/// Checks for waiting commits.
#[derive(Clone)]
pub(super) struct Standby {
    /// Connections of the login role of all other connections.
    connections: Connections,
    metrics: Metrics,
}

impl Standby {
    pub(super) fn new(connections: Connections, metrics: Metrics) -> Self {
        Self { connections, metrics }
    }

    /// Whether a commit without a response may be waiting for a standby. If the database has no connection left for
    /// this check, waiting commits may be the cause, so the result is true.
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
