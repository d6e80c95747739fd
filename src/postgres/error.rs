//! Errors of the embedded PostgreSQL, each with how to fix it.

use std::path::PathBuf;

/// Why the private PostgreSQL could not be started, reached or stopped. Every message says what to
/// do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No server binaries were found anywhere.
    #[error(
        "no PostgreSQL server binaries (postgres, initdb) found{looked}. Get them, or use a server of your own:\n  \
         Debian, Ubuntu:  apt-get install postgresql\n  \
         Fedora, RHEL:    dnf install postgresql-server\n  \
         macOS:           brew install postgresql@17\n  \
         elsewhere:       --database-url postgres://user@host/dbname"
    )]
    NoBinaries {
        /// Empty, or where the search was confined to.
        looked: String,
    },
    /// Binaries exist, but all are older than we can use.
    #[error(
        "PostgreSQL {found} is too old: install version {minimum} or newer, or use --database-url"
    )]
    TooOld {
        /// What was found, versions and directories.
        found: String,
        /// The oldest major version that works.
        minimum: u32,
    },
    /// The cluster belongs to another major version than any binaries found.
    #[error(
        "{} was made by PostgreSQL {cluster}, but the binaries found are {found}: install PostgreSQL {cluster} beside \
         them, or move the directory away (after a dump, if its data matters) to begin with an empty one",
        data_dir.display()
    )]
    VersionMismatch {
        /// The cluster.
        data_dir: PathBuf,
        /// Its major version, as written in its PG_VERSION.
        cluster: String,
        /// What was found, versions and directories.
        found: String,
    },
    /// A directory on the way shuts out the user PostgreSQL runs as.
    #[error(
        "{} does not let user {user} (uid {uid}) through, and PostgreSQL, which never runs as root, runs as that user \
         to reach {}: chmod o+x it, or choose another place",
        dir.display(), target.display()
    )]
    Unreachable {
        /// The first directory, or program, that refuses.
        dir: PathBuf,
        /// What has to be reached.
        target: PathBuf,
        /// Name of the user PostgreSQL runs as.
        user: String,
        /// Its number.
        uid: u32,
    },
    /// The user has no name, which `initdb` and peer authentication need.
    #[error(
        "uid {uid} has no entry in the user database, and PostgreSQL needs a name for it: add it to /etc/passwd, run \
         as another user, or use --database-url"
    )]
    NamelessUser {
        /// The number without a name.
        uid: u32,
    },
    /// The data directory belongs to a user PostgreSQL will not run as here.
    #[error(
        "{} belongs to uid {owner}, but PostgreSQL would run as {user} (uid {uid}): chown -R {user} it, or run contextd \
         as its owner",
        data_dir.display()
    )]
    WrongOwner {
        /// The cluster.
        data_dir: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who would run PostgreSQL.
        user: String,
        /// That user's number.
        uid: u32,
    },
    /// Something else lies where the cluster should be.
    #[error("{} is not empty and not a PostgreSQL cluster: choose another data directory", data_dir.display())]
    NotACluster {
        /// The place.
        data_dir: PathBuf,
    },
    /// The data directory is a mount point, so a finished cluster cannot be moved there.
    #[error("{} is a mount point: choose a directory inside it as data directory", data_dir.display())]
    MountPoint {
        /// The place.
        data_dir: PathBuf,
    },
    /// Another contextd uses this data directory.
    #[error(
        "{} is in use by another contextd ({holder}): stop that one, or choose another data directory",
        data_dir.display()
    )]
    Locked {
        /// The cluster.
        data_dir: PathBuf,
        /// `pid 123`, as far as known.
        holder: String,
    },
    /// The operating system's limit for socket paths.
    #[error(
        "the socket path {} has {length} bytes, and fewer than {limit} are allowed: choose a shorter runtime directory",
        path.display()
    )]
    SocketPathTooLong {
        /// The whole path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
        /// The length that is too long.
        limit: usize,
    },
    /// Another user made our socket directory first.
    #[error("{} belongs to uid {owner}, not to uid {uid}: remove it, or choose another runtime directory", path.display())]
    SocketDirTaken {
        /// The directory (or whatever it is).
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who should.
        uid: u32,
    },
    /// `initdb` failed.
    #[error("initdb could not make a cluster in {} ({status}). Its log:\n{log}", data_dir.display())]
    Initdb {
        /// Where it should have been.
        data_dir: PathBuf,
        /// How it ended.
        status: String,
        /// Its last lines.
        log: String,
    },
    /// The server ended while starting.
    #[error("PostgreSQL ended while starting in {} ({status}). Its log:\n{log}", data_dir.display())]
    Exited {
        /// The cluster.
        data_dir: PathBuf,
        /// How it ended.
        status: String,
        /// Its last lines.
        log: String,
    },
    /// The server did not get ready in time.
    #[error(
        "PostgreSQL was not ready in {} after {seconds} s and was stopped; if it was recovering, allow it more time. \
         Its log:\n{log}",
        data_dir.display()
    )]
    StartTimeout {
        /// The cluster.
        data_dir: PathBuf,
        /// The time it had.
        seconds: u64,
        /// Its last lines.
        log: String,
    },
    /// A server would not stop, not even when told to quit.
    #[error(
        "the PostgreSQL of {} (pid {pid}) does not stop: look at what holds it up (usually the disk), then try again",
        data_dir.display()
    )]
    WillNotStop {
        /// The cluster.
        data_dir: PathBuf,
        /// The server's process.
        pid: i32,
    },
    /// A client program is not installed beside the server.
    #[error(
        "{program} is not in {}, beside the server's own programs: install PostgreSQL's client programs of that version",
        dir.display()
    )]
    NoClient {
        /// Its name.
        program: &'static str,
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// A client program failed.
    #[error("{program} failed ({status}). It says:\n{log}")]
    Client {
        /// Its name.
        program: &'static str,
        /// How it ended.
        status: String,
        /// What it said.
        log: String,
    },
    /// A backup was to be restored into a database that has something in it.
    #[error(
        "the database in {} is not empty, and a backup is not mixed with what is there: choose another data directory, \
         or move this one away first",
        data_dir.display()
    )]
    NotEmpty {
        /// The cluster.
        data_dir: PathBuf,
    },
    /// The server is up but did not do as asked.
    #[error("the private PostgreSQL refused: {0}")]
    Database(#[from] tokio_postgres::Error),
    /// The operating system refused.
    #[error("could not {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Its answer.
        source: std::io::Error,
    },
}

/// Names the deed and the path of an `io::Error`, for use with `map_err`.
pub(super) fn io(
    action: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io {
        action,
        path: path.into(),
        source,
    }
}
