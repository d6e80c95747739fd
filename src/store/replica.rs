//! The [`Store`] of one replica: its connections, its name and the duration of its leases.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use super::{
    Database, Error, admitted::Read, pool::PING, recent_events::RecentEvents, row::get, session_cache::SessionCache,
    written_bytes::WrittenBytes, written_chunks::WrittenChunks,
};
use crate::model::TenantId;

/// Database access of one replica.
#[derive(Debug, Clone)]
pub struct Store {
    pub(super) database: Database,
    pub(super) replica: String,
    pub(super) lease_ttl: Duration,
    pub(super) session_cache: SessionCache,
    pub(super) recent: RecentEvents,
    pub(super) chunks: WrittenChunks,
    /// Whether turns were given back since the last heartbeat.
    pub(super) handed_over: Arc<AtomicBool>,
}

impl Store {
    /// Creates a store that takes leases of duration `lease_ttl` in the name of `replica`, which must be unique among
    /// running processes. It does not cache turn data.
    pub fn new(database: Database, replica: impl Into<String>, lease_ttl: Duration) -> Self {
        Self {
            database,
            replica: replica.into(),
            lease_ttl,
            session_cache: SessionCache::new(0),
            recent: RecentEvents::new(lease_ttl),
            chunks: WrittenChunks::default(),
            handed_over: Arc::default(),
        }
    }

    /// Returns the store with a cache for turn data of up to `session_memory` bytes.
    #[must_use]
    pub fn with_session_memory(self, session_memory: usize) -> Self {
        let own = SessionCache::new(session_memory);
        Self { session_cache: own, ..self }
    }

    /// Returns the name in which leases are taken.
    pub fn replica(&self) -> &str {
        &self.replica
    }

    /// Returns the bytes written by this process for tenants with a storage limit.
    pub fn written(&self) -> &WrittenBytes {
        &self.database.written
    }

    /// Returns how long a lease lasts after its last renewal.
    pub fn lease_ttl(&self) -> Duration {
        self.lease_ttl
    }

    /// The reserved connections for work that must not wait. Their timeout allows a retry within a lease.
    pub(super) fn reserved(&self) -> Database {
        self.database.with_reserved_connections(self.lease_ttl / 3)
    }

    /// Estimates how long a new request of a tenant would wait for a connection; zero if one is free.
    pub fn expected_wait(&self, tenant: &TenantId) -> Duration {
        self.database.expected_wait(tenant)
    }

    /// Checks that the database responds within this time, on the reserved connections and on those for requests. If
    /// all connections for requests are in use, this is not a failure.
    pub async fn ping(&self, within: Duration) -> Result<(), Error> {
        let aside = self.database.with_reserved_connections(within);
        aside.read(PING, &[]).await?;
        match self.database.ping_requests(within).await {
            Ok(()) | Err(Error::Busy) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads a version and the time of the read. `of` names it in the error.
    pub(super) async fn read_version(&self, sql: &'static str, of: &str) -> Result<(i64, Read), Error> {
        let sent_at = Instant::now();
        let rows = self.reserved().read(sql, &[]).await?;
        let row = rows.first().ok_or_else(|| Error::Corrupt(format!("the version of {of} is missing")))?;
        Ok((get(row, "version")?, Read { at: get(row, "at")?, sent_at }))
    }

    /// Returns the time after which an idle connection is closed.
    pub fn idle_timeout(&self) -> Duration {
        self.database.idle_timeout()
    }

    /// Drops the cached content of sessions that this replica has not written since the previous call.
    pub fn forget_unused(&self) {
        self.session_cache.forget_unused();
        self.recent.forget_unused();
    }

    /// Closes connections that were idle for too long.
    pub fn close_idle_connections(&self) {
        self.database.close_idle();
    }
}
