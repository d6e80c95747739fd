//! The settings of a private PostgreSQL.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::EmbeddedConfig;

/// The superuser that contextd connects as.
pub const ROLE: &str = "contextd";
/// The database that exists after every start.
pub const DATABASE: &str = "contextd";

/// Called with a short description of each part of a start that takes time.
pub type Progress<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// The settings of a start. [`Settings::new`] sets everything that has a default.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster; created if missing. Its parent directory must be writable, since it also holds a lock file. The
    /// binary uses the one in `embedded.data_dir`.
    pub cluster_dir: PathBuf,
    /// If `runtime_dir` is not set or the server's user cannot enter it, the socket is in /tmp. If `bin_dir` is set, no
    /// other directory is searched. Three of `max_connections` are reserved for the superuser.
    pub embedded: EmbeddedConfig,
    /// The value of PATH, whose directories are searched first.
    pub search_path: OsString,
    /// contextd's cache directory; `postgresql/*/bin` in it is searched last.
    pub cache_dir: Option<PathBuf>,
    /// The contextd executable. It must call [`guard_main`](super::guard_main) if its first argument is
    /// `__postgres-guard`.
    pub guard_program: PathBuf,
    /// Whether data must survive a crash of the machine.
    pub durability: Durability,
    /// Further server settings, name and value, for example `shared_preload_libraries` and `pg_stat_statements`.
    pub server_settings: Vec<(String, String)>,
    /// The time limit of a start, including crash recovery.
    pub start_timeout: Duration,
}

impl Settings {
    /// The defaults: durable, half an hour to start, programs from the usual locations.
    pub fn new(cluster_dir: impl Into<PathBuf>, guard_program: impl Into<PathBuf>) -> Self {
        Self {
            cluster_dir: cluster_dir.into(),
            embedded: EmbeddedConfig::default(),
            search_path: OsString::new(),
            cache_dir: None,
            guard_program: guard_program.into(),
            durability: Durability::Durable,
            server_settings: Vec::new(),
            start_timeout: Duration::from_mins(30),
        }
    }
}

/// Whether data must survive a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// A commit is on disk before it is acknowledged.
    Durable,
    /// Nothing is flushed. For tests.
    Disposable,
}
