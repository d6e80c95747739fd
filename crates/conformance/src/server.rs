//! The servers of a kit: the main server with its own PostgreSQL, and further replicas on the same database that can be
//! killed.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use super::{
    Setup,
    scenario::{SCRIPTS, Scenario},
};
use contextd_proto::{
    self as pb, session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient,
};

/// Time limit of a start; the first start creates a database cluster.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit of a stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Page size of ListEvents.
const PAGE: i32 = 1_000;
/// Short leases, small deltas and fast retries.
const SETTINGS: &str = r#"
[turn]
lease_ttl = "3s"
delta_flush = "1ms"
retry_base_delay = "50ms"
retry_max_delay = "100ms"
max_call_attempts = 2

[models]
default_model = "scripted/turn"

[server]
drain_timeout = "1s"
"#;

/// The servers that all runs share.
#[derive(Debug)]
pub(super) struct Servers {
    setup: Setup,
    place: PathBuf,
    main: Replica,
}

/// A server process.
#[derive(Debug)]
pub(super) struct Replica {
    process: Child,
    pub(super) channel: Channel,
}

impl Replica {
    /// Kills the server process.
    pub(super) async fn kill(mut self) {
        let _ = self.process.kill().await;
    }
}

impl Servers {
    /// Starts the main server.
    pub(super) async fn start(setup: Setup) -> anyhow::Result<Self> {
        let name = format!("contextd-conformance-{}", Uuid::now_v7());
        let place = setup.temporary.join(name);
        make_place(&place).with_context(|| format!("cannot make {}", place.display()))?;
        let data = place.join("data");
        let more = [("CONTEXTD_DATA_DIR", data.as_os_str())];
        let started = start(&setup, &place, &more).await;
        match started {
            Ok(main) => Ok(Self { setup, place, main }),
            Err(error) => {
                let log = fs::read_to_string(place.join("log")).unwrap_or_default();
                let _ = fs::remove_dir_all(&place);
                Err(error.context(format!("the server did not start:\n{log}")))
            }
        }
    }

    /// A channel to the main server.
    pub(super) fn channel(&self) -> Channel {
        self.main.channel.clone()
    }

    /// Starts one more server on the same database.
    pub(super) async fn replica(&self) -> anyhow::Result<Replica> {
        let file = self.place.join("data/postgresql/postmaster.pid");
        let pid_file = fs::read_to_string(file).context("PostgreSQL is not running")?;
        let socket = pid_file.lines().nth(4).unwrap_or_default();
        let url = format!("postgres://contextd@localhost/contextd?host={socket}");
        let more = [("CONTEXTD_DATABASE_URL", OsStr::new(&url))];
        start(&self.setup, &self.place, &more).await
    }

    /// Creates a session for one run.
    pub(super) async fn create_session(&self, id: &str, scenario: &Scenario) -> anyhow::Result<()> {
        let fallback = scenario
            .fallback
            .map(|model| pb::Policy { fallback_models: vec![model.to_owned()], ..pb::Policy::default() });
        let request = pb::CreateSessionRequest {
            session: Some(pb::Session {
                session_id: id.to_owned(),
                model: format!("scripted/{}", scenario.model),
                policy_overrides: fallback,
                ..pb::Session::default()
            }),
            ..pb::CreateSessionRequest::default()
        };
        let mut sessions = SessionServiceClient::new(self.channel());
        let created = sessions.create_session(request).await;
        created.context("cannot create a session").map(drop)
    }

    /// All durable events of the session.
    pub(super) async fn settled(&self, id: &str) -> anyhow::Result<Vec<pb::Event>> {
        let mut turns = TurnServiceClient::new(self.channel());
        let mut events = Vec::new();
        let mut after_seq = 0;
        loop {
            let request = pb::ListEventsRequest {
                session_id: id.to_owned(),
                after_seq,
                page_size: PAGE,
                ..pb::ListEventsRequest::default()
            };
            let page = turns.list_events(request).await.context("cannot read the events")?;
            let page = page.into_inner();
            after_seq = page.next_after_seq;
            events.extend(page.events);
            if after_seq >= page.last_seq {
                return Ok(events);
            }
        }
    }

    /// Stops the main server and removes its files.
    pub(super) async fn stop(mut self) {
        let process = &mut self.main.process;
        let id = process.id().and_then(|id| i32::try_from(id).ok());
        if let Some(id) = id {
            let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        }
        if timeout(STOP_TIMEOUT, process.wait()).await.is_err() {
            let _ = process.kill().await;
        }
        let _ = fs::remove_dir_all(&self.place);
    }
}

/// Creates a directory that is readable for the user that runs PostgreSQL if the kit runs as root.
fn make_place(place: &Path) -> std::io::Result<()> {
    fs::create_dir_all(place.join("scripts"))?;
    fs::set_permissions(place, fs::Permissions::from_mode(0o755))?;
    fs::write(place.join("contextd.toml"), SETTINGS)?;
    for (name, script) in SCRIPTS {
        fs::write(place.join("scripts").join(format!("{name}.json")), script)?;
    }
    Ok(())
}

async fn start(setup: &Setup, place: &Path, more: &[(&str, &OsStr)]) -> anyhow::Result<Replica> {
    let log = fs::File::options().create(true).append(true).open(place.join("log"))?;
    let mut process = Command::new(&setup.program)
        .arg("serve")
        .env_clear()
        .envs(setup.environment.iter().map(|(name, value)| (name, value)))
        .envs(more.iter().copied())
        .env("CONTEXTD_CONFIG", place.join("contextd.toml"))
        .env("CONTEXTD_SCRIPT_DIR", place.join("scripts"))
        .env("CONTEXTD_LISTEN", "127.0.0.1:0")
        .env("CONTEXTD_LOG_FORMAT", "text") // for the line that reports readiness
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", setup.program.display()))?;
    let output = process.stdout.take().context("it has no standard output")?;
    let mut lines = BufReader::new(output).lines();
    let ready = timeout(START_TIMEOUT, lines.next_line()).await;
    let Some(ready) = ready.context("it was not ready before the timeout")?? else {
        let ended = process.wait().await?;
        let log = fs::read_to_string(place.join("log")).unwrap_or_default();
        bail!(
            "it exited before it was ready, {ended}; its last log line: {}",
            log.lines().next_back().unwrap_or("none")
        );
    };
    let Some(address) = ready.strip_prefix("contextd listens on ") else {
        bail!("unexpected output {ready:?}");
    };
    let endpoint = Endpoint::from_shared(format!("http://{}", address.trim()))?;
    Ok(Replica { process, channel: endpoint.connect_lazy() })
}
