//! The guard: a hidden command that is the parent of a PostgreSQL program and stops it when contextd exits.
//!
//! Its standard input is a pipe whose other end only contextd holds. However contextd exits, the pipe closes, and the
//! guard stops its child, first with SIGINT (fast shutdown), then with SIGQUIT (immediate shutdown). The guard knows
//! nothing else about PostgreSQL.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::owner::Owner;
use super::stopping::FAST_SHUTDOWN_TIMEOUT;

/// The first argument that selects the guard.
pub(super) const COMMAND: &str = "__postgres-guard";

/// Runs `contextd __postgres-guard <uid:gid or -> <program> <arguments...>`. `args` are the arguments after the
/// command's name.
///
/// Returns the program's exit code, or 128 plus the number of the signal that killed it.
pub fn guard_main(args: impl Iterator<Item = OsString>) -> ExitCode {
    match run(args) {
        Ok(status) => exit_code(status),
        Err(error) => {
            let _ = writeln!(io::stderr(), "FATAL:  {COMMAND}: {error}"); // stderr may be closed
            ExitCode::FAILURE
        }
    }
}

/// The guard's arguments for running `program` as `owner`.
pub(super) fn arguments(owner: &Owner, program: OsString) -> [OsString; 3] {
    let user = if owner.drops_privileges { format!("{}:{}", owner.uid, owner.gid) } else { "-".into() };
    [COMMAND.into(), user.into(), program]
}

fn run(args: impl Iterator<Item = OsString>) -> io::Result<ExitStatus> {
    let mut command =
        parse(args).ok_or_else(|| io::Error::other("expected: <uid:gid or -> <program> <arguments...>"))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(async {
        ignore_termination_signals()?;
        watch(command.spawn()?).await
    });
    runtime.shutdown_background();
    status
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Command> {
    let user = args.next()?.into_string().ok()?;
    let mut command = Command::new(args.next()?);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    if user != "-" {
        let (uid, gid) = user.split_once(':')?;
        command.uid(uid.parse().ok()?).gid(gid.parse().ok()?); // also drops root's supplementary groups
    }
    Some(command)
}

/// Ignores termination signals; only the pipe ends the guard. A signal to the whole service must not stop the database
/// before contextd has drained.
fn ignore_termination_signals() -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let _ = signal(kind)?; // once caught, a signal keeps its handler for the life of the process
    }
    Ok(())
}

async fn watch(mut child: Child) -> io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = end_of_input()? => {}
    }
    send_signal(&child, Signal::SIGINT);
    if let Ok(status) = tokio::time::timeout(FAST_SHUTDOWN_TIMEOUT, child.wait()).await {
        return status;
    }
    send_signal(&child, Signal::SIGQUIT);
    child.wait().await
}

/// Signals the child. Its pid cannot have been reused, because the child has not been waited for.
fn send_signal(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), signal); // the child may just have exited
    }
}

/// Resolves when the other end of the pipe is closed.
fn end_of_input() -> io::Result<impl Future<Output = ()>> {
    let (ended, end) = oneshot::channel::<()>();
    std::thread::Builder::new().name("end-of-input".into()).spawn(move || {
        let mut ignored = [0; 64];
        while io::stdin().read(&mut ignored).is_ok_and(|length| length > 0) {}
        drop(ended);
    })?;
    Ok(async move {
        let _ = end.await; // nothing is sent: this ends when the thread does
    })
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
