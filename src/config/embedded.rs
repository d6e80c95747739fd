//! The settings of the embedded PostgreSQL.

use std::path::PathBuf;

use super::database::DatabaseConfig;
use super::environment::SYSTEM_DATA_DIR;
use crate::settings::{Checks, settings};

/// Connections in addition to the pool, for heartbeats, LISTEN, migrations and an operator's psql.
const NON_POOL_CONNECTIONS: usize = 8;

settings! {
    /// `[embedded]`: the embedded PostgreSQL, which is used if `database.url` is not set.
    pub struct EmbeddedConfig {
        /// Directory of the embedded PostgreSQL's cluster and its files.
        data_dir: PathBuf = PathBuf::from(SYSTEM_DATA_DIR);
        /// Directory with `postgres` and `initdb`. Not set: the usual locations are searched.
        bin_dir: Option<PathBuf> = None;
        /// Directory of the Unix socket. Its path must be short. Not set: a directory is chosen.
        runtime_dir: Option<PathBuf> = None;
        /// PostgreSQL's `max_connections`.
        max_connections: usize = 40, in 10..=10_000, "connections";
    }
}

impl EmbeddedConfig {
    /// The directory of the cluster.
    pub fn cluster_dir(&self) -> PathBuf {
        self.data_dir.join("postgresql")
    }

    pub(super) fn check(&self, checks: &mut Checks, database: &DatabaseConfig) {
        let Self { data_dir, max_connections, .. } = self;
        checks.require(!data_dir.as_os_str().is_empty(), "embedded.data_dir", || "must not be empty".to_owned());
        let needed = database.pool_size.saturating_add(NON_POOL_CONNECTIONS);
        checks.require(database.url.is_some() || *max_connections >= needed, "embedded.max_connections", || {
            format!("{max_connections} is too low; database.pool_size = {} needs at least {needed}", database.pool_size)
        });
    }
}
