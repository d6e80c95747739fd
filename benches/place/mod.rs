//! Common setup of benchmarks that run whole processes: a durable PostgreSQL, and `contextd serve` on it as a separate
//! process.

#![allow(unreachable_pub, dead_code, reason = "each benchmark has a copy of its own, and uses some of it")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use contextd::{
    pb,
    postgres::{DATABASE, Postgres, Settings},
};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// A directory that PostgreSQL's user can enter.
pub(crate) fn directory() -> TempDir {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    place
}

/// Starts a cluster with contextd's own settings: a commit is on disk before it is acknowledged.
pub(crate) async fn start_postgres(place: &TempDir) -> Postgres {
    start_postgres_of(place, None).await
}

/// Starts such a cluster with the programs in the given directory, instead of those that are found.
pub(crate) async fn start_postgres_of(place: &TempDir, programs: Option<PathBuf>) -> Postgres {
    let mut settings = Settings::new(place.path().join("data"), env!("CARGO_BIN_EXE_contextd"));
    settings.embedded.bin_dir = programs;
    settings.embedded.max_connections = 200;
    settings.search_path = std::env::var_os("PATH").unwrap_or_default();
    settings.cache_dir = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/contextd"));
    Postgres::start(settings, &|_| {}).await.unwrap()
}

/// A `contextd serve` process. Killed on drop.
pub(crate) struct Served {
    pub child: Child,
    /// The address on which it listens.
    pub address: String,
}

impl Served {
    /// Starts a server with one script, `bench`, and these settings.
    pub(crate) fn start(place: &TempDir, postgres: &Postgres, script: &str, settings: &str) -> Self {
        // Audit lines are logged at any level unless turned off.
        let levels = "error,contextd::audit=off";
        Self::logging(place, postgres, script, settings, levels, Stdio::inherit())
    }

    /// Starts a server that writes a log with these levels to `log`.
    pub(crate) fn logging(
        place: &TempDir,
        postgres: &Postgres,
        script: &str,
        settings: &str,
        levels: &str,
        log: Stdio,
    ) -> Self {
        let scripts = place.path().join("scripts");
        fs::create_dir_all(&scripts).unwrap();
        fs::write(scripts.join("bench.json"), script).unwrap();
        // A separate file: other servers in this directory have their own.
        let config = place.path().join(format!("contextd-{}.toml", uuid::Uuid::now_v7()));
        fs::write(&config, settings).unwrap();
        let url = format!(
            "postgresql:///{DATABASE}?host={}&user={}",
            postgres.socket_dir().display(),
            postgres.config(DATABASE).get_user().unwrap()
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_contextd"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--migrate", "--log", levels, "--database-url", &url]);
        command.arg("--config").arg(&config).arg("--script-dir").arg(&scripts);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut ready = String::new();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut stdout, &mut ready).unwrap();
        let address = ready.trim().strip_prefix("contextd listens on ").unwrap().to_owned();
        Self { child, address }
    }

    /// The endpoint without TLS.
    pub(crate) fn endpoint(&self) -> Endpoint {
        Channel::from_shared(self.url()).unwrap()
    }

    /// The URL without TLS.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait()); // it may have exited already
    }
}

/// A request for a turn with the script.
pub(crate) fn turn(session: &str) -> pb::ExecuteTurnRequest {
    let text = pb::part::Content::Text("Go".to_owned());
    let part = pb::Part { content: Some(text), ..pb::Part::default() };
    pb::ExecuteTurnRequest {
        session_id: session.to_owned(),
        request_id: uuid::Uuid::now_v7().to_string(),
        input: Some(pb::InputMessage { parts: vec![part], ..pb::InputMessage::default() }),
        model: "scripted/bench".to_owned(),
        session: Some(pb::Session::default()),
        ..pb::ExecuteTurnRequest::default()
    }
}

/// A request for all events of a session after a seq.
pub(crate) fn watch(session: &str, after: i64) -> pb::WatchEventsRequest {
    pb::WatchEventsRequest {
        session_id: session.to_owned(),
        after_seq: after,
        follow: true,
        ..pb::WatchEventsRequest::default()
    }
}
