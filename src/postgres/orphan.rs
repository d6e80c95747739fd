//! Detects and stops a server that an earlier run left behind.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use super::Progress;
use super::error::{Error, io};
use super::pid_file::PidFile;
use super::stopping::{FAST_SHUTDOWN_TIMEOUT, IMMEDIATE_SHUTDOWN_TIMEOUT};

/// Interval between checks whether a process has exited. Only its parent process can wait for it.
const POLL: Duration = Duration::from_millis(5);

/// The state of the process that a `postmaster.pid` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PostmasterState {
    /// It is running and serves this cluster.
    Running,
    /// It has exited, and its parent has not read its exit status.
    Zombie,
    /// Its pid now belongs to another program.
    OtherProcess,
    /// No such process exists.
    Gone,
}

/// Stops a server of the cluster and removes files that would prevent the next start.
///
/// If the process is gone, its pid file is kept: PostgreSQL uses it to check whether backends of that server are still
/// alive.
pub(super) async fn clear(data_dir: &Path, progress: Progress<'_>) -> Result<(), Error> {
    let Some(file) = PidFile::read(data_dir) else {
        return remove_pid_file(data_dir);
    };
    if file.pid <= 0 {
        return Ok(()); // a stand-alone backend is not stopped; the start of PostgreSQL then reports it
    }
    match postmaster_state(file.pid, data_dir) {
        PostmasterState::Gone => Ok(()),
        PostmasterState::Zombie | PostmasterState::OtherProcess => remove_pid_file(data_dir),
        PostmasterState::Running => {
            progress(&format!("stopping the PostgreSQL server of an earlier run (pid {})", file.pid));
            stop(file.pid, data_dir).await
        }
    }
}

/// Stops the server of the cluster, first with a fast shutdown, then with an immediate one.
async fn stop(pid: i32, data_dir: &Path) -> Result<(), Error> {
    for (signal, patience) in [(Signal::SIGINT, FAST_SHUTDOWN_TIMEOUT), (Signal::SIGQUIT, IMMEDIATE_SHUTDOWN_TIMEOUT)] {
        let _ = kill(Pid::from_raw(pid), signal); // the process may already be gone
        if ends_within(patience, pid, data_dir).await {
            return remove_pid_file(data_dir);
        }
    }
    Err(Error::WillNotStop { data_dir: data_dir.into(), pid })
}

async fn ends_within(patience: Duration, pid: i32, data_dir: &Path) -> bool {
    let deadline = Instant::now() + patience;
    while postmaster_state(pid, data_dir) == PostmasterState::Running {
        if Instant::now() > deadline {
            return false;
        }
        sleep(POLL).await;
    }
    true
}

fn remove_pid_file(data_dir: &Path) -> Result<(), Error> {
    let path = PidFile::path(data_dir);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Determines the state of a process without affecting it.
pub(super) fn postmaster_state(pid: i32, data_dir: &Path) -> PostmasterState {
    match kill(Pid::from_raw(pid), None) {
        Err(Errno::ESRCH) => PostmasterState::Gone,
        Ok(()) | Err(_) if Path::new("/proc/self/stat").exists() => state_from_proc(pid, data_dir),
        Ok(()) | Err(_) => state_from_ps(pid, data_dir),
    }
}

fn state_from_proc(pid: i32, data_dir: &Path) -> PostmasterState {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return PostmasterState::Gone;
    };
    let Some((name, state)) = name_and_state(&stat) else {
        return PostmasterState::OtherProcess;
    };
    match state {
        'Z' | 'X' => PostmasterState::Zombie,
        _ if name == "postgres" && serves_cluster(pid, data_dir) => PostmasterState::Running,
        _ => PostmasterState::OtherProcess,
    }
}

/// Parses `42 (postgres) S 1 ...`; the name may contain spaces and parentheses.
fn name_and_state(stat: &str) -> Option<(&str, char)> {
    let (front, back) = stat.rsplit_once(") ")?;
    let (_, name) = front.split_once(" (")?;
    Some((name, back.chars().next()?))
}

/// Whether the process serves the cluster. A server's working directory is its data directory. Root in a container may
/// be unable to read it; then the arguments are checked. A process without a working directory and arguments is exiting
/// and counts as serving the cluster.
fn serves_cluster(pid: i32, data_dir: &Path) -> bool {
    match fs::read_link(format!("/proc/{pid}/cwd")) {
        Ok(directory) => directory == data_dir,
        Err(_) => {
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let names = |argument: &[u8]| argument == data_dir.as_os_str().as_bytes();
            arguments.is_empty() || arguments.split(|byte| *byte == 0).any(names)
        }
    }
}

/// The state of a process on systems without `/proc`.
fn state_from_ps(pid: i32, data_dir: &Path) -> PostmasterState {
    let pid = pid.to_string();
    let output = Command::new("/bin/ps").args(["-ww", "-o", "state=,args=", "-p", &pid]).output();
    let line = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let (state, arguments) = line.split_once(' ').unwrap_or((&line, ""));
    match state.chars().next() {
        None => PostmasterState::Gone,
        Some('Z') => PostmasterState::Zombie,
        Some(_) if arguments.contains(&format!("postgres -D {} ", data_dir.display())) => PostmasterState::Running,
        Some(_) => PostmasterState::OtherProcess,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_does_not_confuse_the_state() {
        assert_eq!(name_and_state("7 (a) b (c)) S 1 2"), Some(("a) b (c)", 'S')));
        assert_eq!(name_and_state("7 (postgres) Z 1 2"), Some(("postgres", 'Z')));
    }

    #[test]
    fn our_own_process_is_not_taken_for_a_postmaster() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(postmaster_state(pid, Path::new("/nowhere")), PostmasterState::OtherProcess);
        if Path::new("/bin/ps").exists() {
            assert_eq!(state_from_ps(pid, Path::new("/nowhere")), PostmasterState::OtherProcess);
        }
    }
}
