//! CPU time of a server, of its PostgreSQL and of this process, from `/proc`.

#![allow(dead_code, reason = "each benchmark has a copy of its own, and uses some of it")]

use std::{fmt, fs, ops::Sub, path::Path};

/// Clock ticks per second in `/proc`, the same on every Linux.
const TICKS: f64 = 100.0;

/// The processes to measure.
pub(crate) struct Processor {
    server: u32,
    postmaster: u32,
}

/// CPU time in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Used {
    pub(crate) server: f64,
    pub(crate) postgres: f64,
    pub(crate) clients: f64,
}

impl Processor {
    /// Measures the given server with its descendants, and the cluster in `data_dir`.
    pub(crate) fn of(server: u32, data_dir: &Path) -> Self {
        let text = fs::read_to_string(data_dir.join("postmaster.pid")).unwrap();
        let postmaster = text.lines().next().unwrap().trim().parse().unwrap();
        Self { server, postmaster }
    }

    /// The CPU time used so far.
    pub(crate) fn used(&self) -> Used {
        Used {
            server: self.server(),
            postgres: self.postgres(),
            clients: stat(std::process::id()).map_or(0.0, |stat| stat.own),
        }
    }

    /// The CPU time of the server process and its descendants, without a cluster that it runs.
    fn server(&self) -> f64 {
        let all = processes();
        let mut used = 0.0;
        let mut open = vec![self.server];
        while let Some(pid) = open.pop() {
            used += stat(pid).map_or(0.0, |stat| stat.own + stat.ended);
            let below = all.iter().filter(|(_, stat)| stat.parent == pid);
            open.extend(below.map(|(pid, _)| *pid).filter(|pid| *pid != self.postmaster));
        }
        used
    }

    /// The CPU time of the postmaster, of backends that have exited, and of running backends.
    fn postgres(&self) -> f64 {
        let postmaster = stat(self.postmaster).map_or(0.0, |stat| stat.own + stat.ended);
        let all = processes().into_iter();
        let backends = all.filter(|(_, stat)| stat.parent == self.postmaster);
        postmaster + backends.map(|(_, stat)| stat.own).sum::<f64>()
    }
}

/// All processes.
fn processes() -> Vec<(u32, Stat)> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

struct Stat {
    parent: u32,
    own: f64,
    /// CPU time of children that have exited.
    ended: f64,
}

/// Reads `/proc/PID/stat`. Returns `None` if the process has exited.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain spaces.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let seconds = |at: usize| fields.get(at)?.parse::<f64>().ok().map(|ticks| ticks / TICKS);
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own: seconds(11)? + seconds(12)?,
        ended: seconds(13)? + seconds(14)?,
    })
}

impl Sub for Used {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            server: self.server - before.server,
            postgres: self.postgres - before.postgres,
            clients: self.clients - before.clients,
        }
    }
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, postgres, clients } = self;
        write!(f, "[{server:.1} {postgres:.1} {clients:.1}]")
    }
}
