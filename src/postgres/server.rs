//! Starts the server with its settings and waits until it is ready.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::binaries::Binaries;
use super::child::GuardedProcess;
use super::error::Error;
use super::owner::Owner;
use super::pid_file::PidFile;
use super::{Durability, Progress, Settings};

/// How often to check whether the server is ready.
const POLL: Duration = Duration::from_millis(5);
/// How often a slow start is reported.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// PostgreSQL refuses to start with this error until the backends of a killed postmaster have noticed its death and
/// exited.
const OLD_BACKENDS: &str = "pre-existing shared memory block";
/// How long to wait before the next attempt after [`OLD_BACKENDS`].
const OLD_BACKENDS_WAIT: Duration = Duration::from_millis(100);

/// Small and quiet: contextd is the only client, and the server replicates nothing.
const FIXED: [&str; 14] = [
    "listen_addresses=",
    "logging_collector=off",
    "log_destination=stderr",
    "log_line_prefix=",
    "lc_messages=C",
    "timezone=UTC",
    "log_timezone=UTC",
    "cluster_name=contextd",
    "jit=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    "shared_buffers=128MB",
    "max_wal_size=1GB",
    "checkpoint_timeout=15min",
];
const DURABLE: [&str; 3] = ["fsync=on", "full_page_writes=on", "synchronous_commit=on"];
const DISPOSABLE: [&str; 3] = ["fsync=off", "full_page_writes=off", "synchronous_commit=off"];

/// Starts the server and returns when it accepts connections.
pub(super) async fn start(
    settings: &Settings,
    owner: &Owner,
    binaries: &Binaries,
    socket_dir: &Path,
    progress: Progress<'_>,
) -> Result<GuardedProcess, Error> {
    progress(&format!("starting PostgreSQL {}", binaries.version));
    let deadline = Instant::now() + settings.start_timeout;
    let args = arguments(settings, socket_dir);
    loop {
        let before = PidFile::read(&settings.cluster_dir);
        let process = GuardedProcess::spawn(&settings.guard_program, owner, &binaries.postgres(), &args)?;
        match until_ready(&process, settings, before.as_ref(), deadline, progress).await {
            Ok(()) => return Ok(process),
            Err(Error::Exited { log, .. }) if log.contains(OLD_BACKENDS) && Instant::now() < deadline => {
                tokio::time::sleep(OLD_BACKENDS_WAIT).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn arguments(settings: &Settings, socket_dir: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> =
        vec!["-D".into(), settings.cluster_dir.clone().into(), "-k".into(), socket_dir.into()];
    let durability = match settings.durability {
        Durability::Durable => DURABLE,
        Durability::Disposable => DISPOSABLE,
    };
    let ours = FIXED.into_iter().chain(durability).map(str::to_owned);
    let connections = format!("max_connections={}", settings.embedded.max_connections);
    let extra = settings.server_settings.iter().map(|(name, value)| format!("{name}={value}"));
    for setting in ours.chain([connections]).chain(extra) {
        args.extend(["-c".into(), setting.into()]);
    }
    args
}

/// Watches `postmaster.pid`, since connecting too early would only fill the log. `before` is the file of an earlier
/// server, which may still report `ready`.
async fn until_ready(
    process: &GuardedProcess,
    settings: &Settings,
    before: Option<&PidFile>,
    deadline: Instant,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let data_dir = &settings.cluster_dir;
    let mut next_report = Instant::now() + REPORT_EVERY;
    loop {
        let file = PidFile::read(data_dir).filter(|file| before.is_none_or(|before| !file.same_server(before)));
        if file.is_some_and(|file| file.is_ready()) {
            return Ok(());
        }
        if let Ok(status) = timeout(POLL, process.exited()).await {
            let log = process.log.last_lines().await;
            return Err(Error::Exited { data_dir: data_dir.clone(), status: status.to_string(), log });
        }
        if Instant::now() > deadline {
            let seconds = settings.start_timeout.as_secs();
            let log = process.log.last_line();
            return Err(Error::StartTimeout { data_dir: data_dir.clone(), seconds, log });
        }
        if Instant::now() > next_report {
            progress(&format!("PostgreSQL is still starting; its last log line: {}", process.log.last_line()));
            next_report += REPORT_EVERY;
        }
    }
}
