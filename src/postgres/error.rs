//! Errors of the embedded PostgreSQL. Each message describes how to fix the error.

use std::path::PathBuf;

/// Why the private PostgreSQL could not be started, reached or stopped. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No server binaries were found.
    #[error(
        "no PostgreSQL server binaries (postgres, initdb) found{looked}. Install them, or use an existing server:\n  \
         Debian, Ubuntu:  apt-get install postgresql\n  \
         Fedora, RHEL:    dnf install postgresql-server\n  \
         macOS:           brew install postgresql@17\n  \
         elsewhere:       --database-url postgres://user@host/dbname"
    )]
    NoBinaries {
        /// Where the search was confined to; empty if it was not.
        looked: String,
    },
    /// Binaries were found, but all are older than the minimum version.
    #[error("PostgreSQL {found} is too old: install version {minimum} or newer, or use --database-url")]
    TooOld {
        /// The versions and directories found.
        found: String,
        /// The oldest supported major version.
        minimum: u32,
    },
    /// The cluster has another major version than all binaries found.
    #[error(
        "{} was created by PostgreSQL {cluster}, but the binaries found are {found}: also install PostgreSQL {cluster}, \
         or move the directory away (after a dump, if you need its data) to start with an empty one",
        data_dir.display()
    )]
    VersionMismatch {
        data_dir: PathBuf,
        /// The cluster's major version, from its PG_VERSION.
        cluster: String,
        /// The versions and directories found.
        found: String,
    },
    /// A directory on the path is not accessible to the user that PostgreSQL runs as.
    #[error(
        "PostgreSQL runs as user {user} (uid {uid}), because it refuses to run as root, and that user cannot access {}, which \
         is on the path to {}: run chmod o+x on it, or choose another path",
        dir.display(), target.display()
    )]
    Unreachable {
        /// The first directory or program that this user cannot access.
        dir: PathBuf,
        /// The path to be reached.
        target: PathBuf,
        /// The name of the user that PostgreSQL runs as.
        user: String,
        uid: u32,
    },
    /// The user has no name, which `initdb` and peer authentication require.
    #[error(
        "uid {uid} has no entry in the user database, and PostgreSQL requires a user name: add it to /etc/passwd, run \
         as another user, or use --database-url"
    )]
    NamelessUser {
        /// The uid that has no name.
        uid: u32,
    },
    /// The data directory belongs to another user than the one that PostgreSQL would run as.
    #[error(
        "{} belongs to uid {owner}, but PostgreSQL would run as {user} (uid {uid}): run chown -R {user} on it, or run contextd \
         as its owner",
        data_dir.display()
    )]
    WrongOwner {
        data_dir: PathBuf,
        /// The uid that owns the directory.
        owner: u32,
        /// The user that PostgreSQL would run as.
        user: String,
        uid: u32,
    },
    /// The data directory exists and is not a cluster.
    #[error("{} is not empty and is not a PostgreSQL cluster: choose another data directory", data_dir.display())]
    NotACluster {
        /// The configured data directory.
        data_dir: PathBuf,
    },
    /// The data directory is a mount point, so a new cluster cannot be renamed to it.
    #[error("{} is a mount point: choose a directory inside it as the data directory", data_dir.display())]
    MountPoint {
        /// The configured data directory.
        data_dir: PathBuf,
    },
    /// Another contextd uses this data directory.
    #[error(
        "{} is in use by another contextd ({holder}): stop that one, or choose another data directory",
        data_dir.display()
    )]
    Locked {
        data_dir: PathBuf,
        /// For example `pid 123`, as far as known.
        holder: String,
    },
    /// The socket path exceeds the operating system's limit.
    #[error(
        "the socket path {} has {length} bytes, but must have fewer than {limit}: choose a runtime directory with a shorter path",
        path.display()
    )]
    SocketPathTooLong {
        path: PathBuf,
        /// In bytes.
        length: usize,
        /// The first length in bytes that is too long.
        limit: usize,
    },
    /// Another user created the socket directory.
    #[error("{} belongs to uid {owner}, not to uid {uid}: remove it, or choose another runtime directory", path.display())]
    SocketDirTaken {
        /// The path, not necessarily a directory.
        path: PathBuf,
        /// The uid that owns it.
        owner: u32,
        /// The uid that should own it.
        uid: u32,
    },
    /// `initdb` failed.
    #[error("initdb could not create a cluster in {} ({status}). Its log:\n{log}", data_dir.display())]
    Initdb {
        /// The data directory that it should have created.
        data_dir: PathBuf,
        /// Its exit status.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// The server exited during startup.
    #[error("PostgreSQL exited during startup in {} ({status}). Its log:\n{log}", data_dir.display())]
    Exited {
        data_dir: PathBuf,
        /// Its exit status.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// The server was not ready before the start timeout.
    #[error(
        "PostgreSQL was not ready in {} after {seconds} s and was stopped; if it was recovering, allow it more time. \
         Its log:\n{log}",
        data_dir.display()
    )]
    StartTimeout {
        data_dir: PathBuf,
        /// The start timeout in seconds.
        seconds: u64,
        /// The last lines of its log.
        log: String,
    },
    /// A server did not stop, not even after SIGQUIT.
    #[error(
        "PostgreSQL in {} (pid {pid}) does not stop: find out what blocks it (usually the disk), then try again",
        data_dir.display()
    )]
    WillNotStop {
        data_dir: PathBuf,
        /// The server's process id.
        pid: i32,
    },
    /// A client program is not installed next to the server.
    #[error(
        "{program} is not in {}, the directory of the server programs: install the PostgreSQL client programs of that version",
        dir.display()
    )]
    NoClient {
        program: &'static str,
        /// The directory that was searched.
        dir: PathBuf,
    },
    /// A client program failed.
    #[error("{program} failed ({status}). Its output:\n{log}")]
    Client {
        program: &'static str,
        /// Its exit status.
        status: String,
        /// Its standard error.
        log: String,
    },
    /// A backup cannot be restored, because the database is not empty.
    #[error(
        "the database in {} is not empty, and a backup can be restored only to an empty one: choose another data \
         directory, or move this one away first",
        data_dir.display()
    )]
    NotEmpty {
        /// The configured data directory.
        data_dir: PathBuf,
    },
    /// The server is running, but a statement or connection failed.
    #[error("the private PostgreSQL failed: {0}")]
    Database(#[from] tokio_postgres::Error),
    /// A file operation failed.
    #[error("could not {action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Adds the operation and the path to an `io::Error`, for use with `map_err`.
pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io { action, path: path.into(), source }
}
