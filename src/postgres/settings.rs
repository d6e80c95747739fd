//! What a private PostgreSQL is started with.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The superuser that we connect as.
pub const ROLE: &str = "contextd";
/// The database that exists after every start.
pub const DATABASE: &str = "contextd";

/// Called with a few words about each part of a start that takes time.
pub type Progress<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// What a start needs to know. [`Settings::new`] fills in everything that has a default.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster; created if missing. Its parent directory must be writable, as it also holds a
    /// lock file.
    pub data_dir: PathBuf,
    /// Where a directory for the socket is made; keep it short. Default, and where the server's
    /// user cannot enter it: /tmp.
    pub runtime_dir: Option<PathBuf>,
    /// Take the programs from here and nowhere else.
    pub bin_dir: Option<PathBuf>,
    /// The value of PATH; directories in which to look for the programs first.
    pub search_path: OsString,
    /// contextd's cache directory, under which `postgresql/*/bin` is searched last.
    pub cache_dir: Option<PathBuf>,
    /// The contextd executable, which must call [`guard_main`](super::guard_main) when its first
    /// argument is `__postgres-guard`.
    pub guard_program: PathBuf,
    /// Whether data must survive a crash of the machine.
    pub durability: Durability,
    /// Connections that the server accepts, three of them kept for emergencies.
    pub max_connections: u32,
    /// Further server settings, name and value, for example `shared_preload_libraries` and
    /// `pg_stat_statements`.
    pub server_settings: Vec<(String, String)>,
    /// How long a start may take; recovery after a crash is part of it.
    pub start_timeout: Duration,
}

impl Settings {
    /// Durable, 40 connections, half an hour to start, programs wherever they are usually installed.
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
    /// Yes: a commit is on disk before it is acknowledged.
    Durable,
    /// No: nothing is ever flushed. For tests.
    Disposable,
}
