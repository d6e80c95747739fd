//! A PostgreSQL program that runs under the guard.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use super::error::{self, Error};
use super::guard;
use super::log::Log;
use super::owner::Owner;

/// A program under the guard. It runs until it exits, or until this is dropped, which closes the pipe to the guard.
///
/// Built on threads, not on tasks, so that it outlives the async runtime from which it was started.
#[derive(Debug)]
pub(super) struct GuardedProcess {
    pipe: Mutex<Option<ChildStdin>>,
    exit: watch::Receiver<Option<ExitStatus>>,
    pub(super) log: Log,
}

impl GuardedProcess {
    /// Starts `program` as `owner`, under `guard`.
    pub(super) fn spawn(guard: &Path, owner: &Owner, program: &Path, args: &[OsString]) -> Result<Self, Error> {
        let mut command = Command::new(guard);
        command
            .args(guard::arguments(owner, program.into()))
            .args(args)
            .env_clear() // contextd's secrets must not reach it
            .envs([("PATH", "/usr/bin:/bin"), ("LC_ALL", "C"), ("TZ", "UTC")])
            .current_dir("/")
            .process_group(0) // Ctrl-C in a terminal is for contextd, which drains first
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.spawn().and_then(Self::attend).map_err(error::io("run", guard))
    }

    fn attend(mut child: Child) -> io::Result<Self> {
        let pipe = child.stdin.take();
        let output = child.stderr.take().ok_or_else(|| io::Error::other("no standard error to read from"))?;
        let log = Log::follow(output)?;
        let (ended, exit) = watch::channel(None);
        std::thread::Builder::new().name("postgres-wait".into()).spawn(move || {
            if let Ok(status) = child.wait() {
                ended.send_replace(Some(status));
            }
        })?;
        Ok(Self { pipe: Mutex::new(pipe), exit, log })
    }

    /// Requests the exit of the program by closing the pipe.
    pub(super) fn request_exit(&self) {
        *self.pipe.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits for the exit. The status is that of the guard, which passes on its child's.
    pub(super) async fn exited(&self) -> ExitStatus {
        let mut exit = self.exit.clone();
        let status = exit.wait_for(Option::is_some).await.ok().and_then(|status| *status);
        status.unwrap_or_default()
    }
}
