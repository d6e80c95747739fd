//! Runs the driver of the host under test.

use std::{io, process::Stdio};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use super::{Options, proxy::Proxy, record::Line, scenario::Scenario};

/// Maximum bytes of the driver's standard error that are kept.
const STDERR_BYTES: usize = 4_096;
/// Maximum characters that are kept of a line that is not JSON.
const GARBAGE_CHARS: usize = 200;

/// How a driver ended.
#[derive(Debug, Default)]
pub(super) struct DriverExit {
    /// The exit code. `None` if a signal killed it, including a SIGKILL that the kit sent.
    pub(super) code: Option<i32>,
    /// Whether it was killed because it exceeded its time limit.
    pub(super) timed_out: bool,
    /// Whether it was killed because it stayed in a silent stream for too long.
    pub(super) silent: bool,
    /// The end of its standard error.
    pub(super) stderr: String,
}

/// Runs the driver until it exits or is killed.
pub(super) async fn run(
    options: &Options,
    session: &str,
    scenario: &Scenario,
    proxy: &Proxy,
) -> io::Result<DriverExit> {
    let mut command = Command::new(&options.command[0]);
    command
        .args(&options.command[1..])
        .env("CONTEXTD_URL", format!("http://{}", proxy.address))
        .env("CONTEXTD_CONFORMANCE_SESSION", session)
        .env("CONTEXTD_CONFORMANCE_INPUT", scenario.input)
        .env_remove("CONTEXTD_API_KEY")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let mut ran = DriverExit::default();
    let working = async { tokio::join!(read_lines(stdout, proxy), last_words(stderr)) };
    let allowed = options.timeout + scenario.extra;
    let end = tokio::select! {
        end = timeout(allowed, working) => end.ok(),
        () = proxy.given_up() => {
            ran.silent = true;
            None
        }
    };
    match end {
        Some(((), stderr)) => ran.stderr = stderr,
        None => {
            ran.timed_out = !ran.silent;
            end_all(&child);
        }
    }
    ran.code = child.wait().await?.code();
    Ok(ran)
}

/// Kills the process group of the driver.
fn end_all(child: &Child) {
    if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
    }
}

async fn read_lines(output: Option<impl AsyncRead + Unpin>, proxy: &Proxy) {
    let Some(output) = output else { return };
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str::<Line>(&line) {
            Ok(line) => proxy.line(line).await,
            Err(_) if line.trim().is_empty() => {}
            Err(_) => proxy.garbage(line.chars().take(GARBAGE_CHARS).collect()),
        }
    }
}

async fn last_words(output: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut output) = output else {
        return String::new();
    };
    let mut kept = Vec::new();
    let mut buffer = [0; STDERR_BYTES];
    while let Ok(read @ 1..) = output.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..read]);
        let surplus = kept.len().saturating_sub(STDERR_BYTES);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
