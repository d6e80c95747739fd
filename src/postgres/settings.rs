//! The settings of a private PostgreSQL.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The superuser that contextd connects as.
pub const ROLE: &str = "contextd";
/// The database that exists after every start.
pub const DATABASE: &str = "contextd";

/// Called with a short description of each part of a start that takes time.
pub type Progress<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// The settings of a start. [`Settings::new`] sets everything that has a default.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster; created if missing. Its parent directory must be writable, since it also holds a lock file.
    pub data_dir: PathBuf,
    /// Where the directory of the socket is created; the path must be short. /tmp is used if this is not set or the
    /// server's user cannot enter it.
    pub runtime_dir: Option<PathBuf>,
    /// The only directory in which to look for the programs, if set.
    pub bin_dir: Option<PathBuf>,
    /// The value of PATH, whose directories are searched first.
    pub search_path: OsString,
    /// contextd's cache directory; `postgresql/*/bin` in it is searched last.
    pub cache_dir: Option<PathBuf>,
    /// The contextd executable. It must call [`guard_main`](super::guard_main) if its first argument is
    /// `__postgres-guard`.
    pub guard_program: PathBuf,
    /// Whether data must survive a crash of the machine.
    pub durability: Durability,
    /// The server's `max_connections`; three of them are reserved for the superuser.
    pub max_connections: u32,
    /// Further server settings, name and value, for example `shared_preload_libraries` and `pg_stat_statements`.
    pub server_settings: Vec<(String, String)>,
    /// The time limit of a start, including crash recovery.
    pub start_timeout: Duration,
}

impl Settings {
    /// The defaults: durable, 40 connections, half an hour to start, programs from the usual locations.
    pub fn new(data_dir: impl Into<PathBuf>, guard_program: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            runtime_dir: None,
            bin_dir: None,
            search_path: OsString::new(),
            cache_dir: None,
            guard_program: guard_program.into(),
            durability: Durability::Durable,
            max_connections: 40,
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
