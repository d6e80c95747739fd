//! A PostgreSQL for one test, which can be crashed, stopped and restarted, with any settings.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    time::Duration,
};

use contextd::postgres::{Durability, Postgres, Settings};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, User, geteuid},
};
use tempfile::TempDir;
use tokio_postgres::config::Host;

use super::{
    TestDatabase,
    database::max_connections,
    events::TEST_TIMEOUT,
    process::alive,
    proxy::{Target, database_target},
};

/// The name of its database.
const NAME: &str = "faulty";

/// A PostgreSQL with one migrated database. It stops at the end of the test.
pub struct Cluster {
    settings: Settings,
    postgres: Option<Postgres>,
    root: Option<TempDir>,
}

impl Cluster {
    /// Starts a cluster with additional settings.
    pub async fn start(more: &[(&str, &str)]) -> Self {
        Self::with_connections(max_connections(100), more).await
    }

    /// Starts a cluster with this `max_connections` and additional settings.
    pub async fn with_connections(connections: u32, more: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("place");
        let mut cluster = Self::start_with(place, connections, more).await;
        cluster.root = Some(root);
        cluster
    }

    /// Starts a cluster in a directory, which is created.
    pub async fn start_in(place: PathBuf, more: &[(&str, &str)]) -> Self {
        Self::start_with(place, max_connections(100), more).await
    }

    async fn start_with(place: PathBuf, connections: u32, more: &[(&str, &str)]) -> Self {
        fs::set_permissions(place.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
        own(&place);
        let mut settings = Settings::new(place.join("data"), env!("CARGO_BIN_EXE_contextd"));
        settings.search_path = std::env::var_os("PATH").unwrap_or_default();
        settings.cache_dir = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/contextd"));
        settings.durability = Durability::Durable;
        settings.embedded.max_connections = connections as usize;
        settings.server_settings = more.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let mut cluster = Self { settings, postgres: None, root: None };
        cluster.restart().await;
        TestDatabase::migrated(cluster.postgres.as_ref().unwrap(), NAME).await;
        cluster
    }

    pub fn database(&self) -> TestDatabase {
        TestDatabase { config: self.postgres.as_ref().expect("it is stopped").config(NAME) }
    }

    /// The socket on which the server listens.
    pub fn target(&self) -> Target {
        database_target(&self.database())
    }

    pub fn data_dir(&self) -> PathBuf {
        self.settings.cluster_dir.clone()
    }

    /// The process id of the postmaster.
    pub fn postmaster(&self) -> i32 {
        let file = fs::read_to_string(self.data_dir().join("postmaster.pid")).unwrap();
        file.lines().next().unwrap().parse().unwrap()
    }

    /// Stops the server: SIGINT is a fast shutdown, SIGQUIT an immediate one that requires recovery, SIGKILL a crash.
    pub async fn end(&mut self, signal: Signal) {
        let pid = self.postmaster();
        kill(Pid::from_raw(pid), signal).unwrap();
        let gone = async {
            while alive(pid) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, gone).await.expect("PostgreSQL does not end");
        self.postgres = None;
    }

    /// Starts the server again on the same cluster.
    pub async fn restart(&mut self) {
        self.postgres = Some(Postgres::start(self.settings.clone(), &|_| {}).await.unwrap());
    }

    /// The directory of the server's socket.
    pub fn socket_dir(&self) -> PathBuf {
        match self.database().config.get_hosts() {
            [Host::Unix(path)] => path.clone(),
            other => panic!("not a socket: {other:?}"),
        }
    }
}

/// Creates a directory that belongs to the user that PostgreSQL runs as.
fn own(path: &Path) {
    fs::create_dir(path).unwrap();
    if geteuid().is_root() {
        let user = User::from_name("postgres").unwrap().or_else(|| User::from_name("nobody").unwrap()).unwrap();
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    }
}
