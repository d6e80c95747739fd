//! The settings of the PostgreSQL that contextd runs itself.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::database::DatabaseConfig;
use super::environment::SYSTEM_DATA_DIR;

/// Connections beside the pool: heartbeats, listening for wake-ups, migrations, and an operator's
/// psql.
const CONNECTIONS_BESIDE_THE_POOL: usize = 8;

/// `[embedded]`: the private PostgreSQL cluster, used when `database.url` is absent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EmbeddedConfig {
    /// Where the cluster and everything beside it lives.
    pub data_dir: PathBuf,
    /// Folder with `postgres` and `initdb`. Absent: the usual places are searched.
    pub bin_dir: Option<PathBuf>,
    /// Folder for the socket, with a short path. Absent: one is chosen.
    pub runtime_dir: Option<PathBuf>,
    /// PostgreSQL's `max_connections`.
    pub max_connections: usize,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from(SYSTEM_DATA_DIR),
            bin_dir: None,
            runtime_dir: None,
            max_connections: 40,
        }
    }
}

impl EmbeddedConfig {
    pub(super) fn check(&self, checks: &mut Checks, database: &DatabaseConfig) {
        let Self {
            data_dir,
            bin_dir: _,
            runtime_dir: _,
            max_connections,
        } = self;
        checks.require(
            !data_dir.as_os_str().is_empty(),
            "embedded.data_dir",
            || "must not be empty".to_owned(),
        );
        checks.number(
            "embedded.max_connections",
            *max_connections,
            10..=10_000,
            "connections",
        );
        let needed = database
            .pool_size
            .saturating_add(CONNECTIONS_BESIDE_THE_POOL);
        checks.require(
            database.url.is_some() || *max_connections >= needed,
            "embedded.max_connections",
            || {
                format!(
                    "{max_connections} is too few for database.pool_size {}: at least {needed}",
                    database.pool_size
                )
            },
        );
    }
}
