//! `postmaster.pid`, in which a running server records its process and its socket.

use std::fs;
use std::path::{Path, PathBuf};

/// The lines of `postmaster.pid` that contextd uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PidFile {
    /// The postmaster; negative for a stand-alone backend.
    pub(super) pid: i32,
    /// The start time as written; distinguishes two processes with the same pid.
    pub(super) started: String,
    /// The socket directory; not set until the socket exists.
    pub(super) socket_dir: Option<PathBuf>,
    /// `starting`, `ready` or `stopping`; empty at first.
    pub(super) status: String,
}

impl PidFile {
    pub(super) fn path(data_dir: &Path) -> PathBuf {
        data_dir.join("postmaster.pid")
    }

    /// Reads the file. Returns `None` if it is missing or does not begin with a number.
    pub(super) fn read(data_dir: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(Self::path(data_dir)).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let line = |number: usize| text.lines().nth(number - 1).unwrap_or_default().trim();
        Some(Self {
            pid: line(1).parse().ok()?,
            started: line(3).to_owned(),
            socket_dir: Some(line(5)).filter(|dir| !dir.is_empty()).map(PathBuf::from),
            status: line(8).to_owned(),
        })
    }

    /// Whether the server accepts connections.
    pub(super) fn is_ready(&self) -> bool {
        self.status == "ready"
    }

    /// Whether both files were written by the same server process.
    pub(super) fn same_server(&self, other: &Self) -> bool {
        (self.pid, &self.started) == (other.pid, &other.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_server_is_read_line_by_line() {
        let file = PidFile::parse("42\n/data\n1700000000\n5432\n/run/x\n\n  123 4\nready   \n").unwrap();
        assert_eq!((file.pid, file.started.as_str(), file.is_ready()), (42, "1700000000", true));
        assert_eq!(file.socket_dir, Some("/run/x".into()));
    }

    #[test]
    fn a_half_written_file_is_not_ready_and_an_empty_one_is_none() {
        assert!(!PidFile::parse("42\n/data\n17").unwrap().is_ready());
        assert_eq!(PidFile::parse(""), None);
    }
}
