//! The store of one replica: its connections, its name, and how long its leases last.

use std::time::Duration;

use super::{
    Database, Error, own_sessions::OwnSessions, pool::PING, recent_events::RecentEvents,
    written_bytes::WrittenBytes, written_chunks::WrittenChunks,
};
use crate::model::TenantId;

/// The database as one replica uses it.
#[derive(Debug, Clone)]
pub struct Store {
    pub(super) database: Database,
    pub(super) replica: String,
    pub(super) lease: Duration,
    pub(super) own: OwnSessions,
    pub(super) recent: RecentEvents,
    pub(super) chunks: WrittenChunks,
}

impl Store {
    /// A store whose leases are taken in the name of `replica` (unique among running processes) for
    /// `lease`. It remembers nothing of what turns read.
    pub fn new(database: Database, replica: impl Into<String>, lease: Duration) -> Self {
        Self {
            database,
            replica: replica.into(),
            lease,
            own: OwnSessions::new(0),
            recent: RecentEvents::new(lease),
            chunks: WrittenChunks::default(),
        }
    }

    /// The same store, which remembers up to so many bytes of what turns read.
    #[must_use]
    pub fn with_session_memory(self, bytes: usize) -> Self {
        let own = OwnSessions::new(bytes);
        Self { own, ..self }
    }

    /// In whose name leases are taken.
    pub fn replica(&self) -> &str {
        &self.replica
    }

    /// What was written here for tenants whose storage is limited.
    pub fn written(&self) -> &WrittenBytes {
        &self.database.written
    }

    /// How long a lease lasts after its last renewal.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The connections that are kept for what must not wait: what is asked there is asked again
    /// within a lease.
    pub(super) fn aside(&self) -> Database {
        self.database.aside(self.lease / 3)
    }

    /// How long a new request of a tenant would wait for a connection; zero if there is one.
    pub fn expected_wait(&self, tenant: &TenantId) -> Duration {
        self.database.expected_wait(tenant)
    }

    /// Asks the database for a sign of life within that time, over the connections that are kept for
    /// what must not wait and over those that requests use. That these are all in use is no failure.
    pub async fn ping(&self, within: Duration) -> Result<(), Error> {
        let aside = self.database.aside(within);
        aside.read(PING, &[]).await?;
        match self.database.ping_requests(within).await {
            Ok(()) | Err(Error::Busy) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// After how long without a use a connection is closed.
    pub fn idle_timeout(&self) -> Duration {
        self.database.idle_timeout()
    }

    /// Forgets the content of sessions that were not written here since the last time.
    pub fn forget_unused(&self) {
        self.own.forget_unused();
        self.recent.forget_unused();
    }

    /// Closes the connections that nothing has used for a while.
    pub fn close_idle_connections(&self) {
        self.database.close_idle();
    }
}
