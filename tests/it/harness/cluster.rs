//! A PostgreSQL of one test's own, which can be crashed, stopped and started again, and whose
//! settings can be anything.

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
    events::PATIENCE,
    process::alive,
    proxy::{Target, database_target},
};

/// Name of the database in it.
const NAME: &str = "faulty";

/// A PostgreSQL with one migrated database. It ends with the test.
pub struct Cluster {
    settings: Settings,
    postgres: Option<Postgres>,
    root: Option<TempDir>,
}

impl Cluster {
    /// Started, with further settings.
    pub async fn start(more: &[(&str, &str)]) -> Self {
        Self::with_connections(max_connections(100), more).await
    }

    /// The same with room for this many connections.
    pub async fn with_connections(connections: u32, more: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("place");
        let mut cluster = Self::start_with(place, connections, more).await;
        cluster.root = Some(root);
        cluster
    }

    /// Started in a directory that is made there.
    pub async fn start_in(place: PathBuf, more: &[(&str, &str)]) -> Self {
        Self::start_with(place, max_connections(100), more).await
    }

    async fn start_with(place: PathBuf, connections: u32, more: &[(&str, &str)]) -> Self {
        fs::set_permissions(place.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
        own(&place);
        let mut settings = Settings::new(place.join("data"), env!("CARGO_BIN_EXE_contextd"));
        settings.search_path = std::env::var_os("PATH").unwrap_or_default();
        settings.cache_dir =
            std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/contextd"));
        settings.durability = Durability::Durable;
        settings.max_connections = connections;
        settings.server_settings = more
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        let mut cluster = Self {
            settings,
            postgres: None,
            root: None,
        };
        cluster.restart().await;
        TestDatabase::migrated(cluster.postgres.as_ref().unwrap(), NAME).await;
        cluster
    }

    /// The database.
    pub fn database(&self) -> TestDatabase {
        TestDatabase {
            config: self.postgres.as_ref().expect("it is stopped").config(NAME),
        }
    }

    /// Where it listens.
    pub fn target(&self) -> Target {
        database_target(&self.database())
    }

    /// Its data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.settings.data_dir.clone()
    }

    /// The process id of its first process.
    pub fn postmaster(&self) -> i32 {
        let file = fs::read_to_string(self.data_dir().join("postmaster.pid")).unwrap();
        file.lines().next().unwrap().parse().unwrap()
    }

    /// Ends it: SIGINT is a fast stop, SIGQUIT an immediate one after which it must recover,
    /// SIGKILL a crash.
    pub async fn end(&mut self, signal: Signal) {
        let pid = self.postmaster();
        kill(Pid::from_raw(pid), signal).unwrap();
        let gone = async {
            while alive(pid) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, gone)
            .await
            .expect("PostgreSQL does not end");
        self.postgres = None;
    }

    /// Starts it again where it ended.
    pub async fn restart(&mut self) {
        self.postgres = Some(
            Postgres::start(self.settings.clone(), &|_| {})
                .await
                .unwrap(),
        );
    }

    /// The directory of its socket.
    pub fn socket_dir(&self) -> PathBuf {
        match self.database().config.get_hosts() {
            [Host::Unix(path)] => path.clone(),
            other => panic!("not a socket: {other:?}"),
        }
    }
}

/// A directory of the user's that PostgreSQL runs as.
fn own(path: &Path) {
    fs::create_dir(path).unwrap();
    if geteuid().is_root() {
        let user = User::from_name("postgres")
            .unwrap()
            .or_else(|| User::from_name("nobody").unwrap())
            .unwrap();
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    }
}
