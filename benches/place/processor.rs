//! Processor time of a server, of its PostgreSQL and of this process, by `/proc`.

use std::{fmt, fs, ops::Sub, path::Path};

/// Ticks of a second in `/proc`, on every Linux.
const TICKS: f64 = 100.0;

/// The processes.
pub(crate) struct Processor {
    server: u32,
    postmaster: u32,
}

/// Seconds.
#[derive(Clone, Copy)]
pub(crate) struct Used {
    server: f64,
    postgres: f64,
    clients: f64,
}

impl Processor {
    /// Of that server and the cluster in that directory.
    pub(crate) fn of(server: u32, data_dir: &Path) -> Self {
        let text = fs::read_to_string(data_dir.join("postmaster.pid")).unwrap();
        let postmaster = text.lines().next().unwrap().trim().parse().unwrap();
        Self { server, postmaster }
    }

    /// What they have used so far.
    pub(crate) fn used(&self) -> Used {
        Used {
            server: stat(self.server).map_or(0.0, |stat| stat.own),
            postgres: self.postgres(),
            clients: stat(std::process::id()).map_or(0.0, |stat| stat.own),
        }
    }

    /// Of the server process, the backends that ended, and those that there are.
    fn postgres(&self) -> f64 {
        let postmaster = stat(self.postmaster).map_or(0.0, |stat| stat.own + stat.ended);
        let all = fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let backends = pids.filter_map(stat);
        let backends = backends.filter(|stat| stat.parent == self.postmaster);
        postmaster + backends.map(|stat| stat.own).sum::<f64>()
    }
}

struct Stat {
    parent: u32,
    own: f64,
    /// Of children that ended.
    ended: f64,
}

/// `None`: the process has ended.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have spaces.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let seconds = |at: usize| {
        fields
            .get(at)?
            .parse::<f64>()
            .ok()
            .map(|ticks| ticks / TICKS)
    };
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
        let Self {
            server,
            postgres,
            clients,
        } = self;
        write!(f, "[{server:.1} {postgres:.1} {clients:.1}]")
    }
}
