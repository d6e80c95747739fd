//! The lock file next to the data directory, which admits one contextd at a time.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg, OFlag};

use super::error::{Error, io};
use super::owner::Owner;

/// Held while this value lives. The operating system releases the lock if the process is killed.
#[derive(Debug)]
pub(super) struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Takes the lock. If another process holds it, the error names that process.
    pub(super) fn take(data_dir: &Path, owner: &Owner) -> Result<Self, Error> {
        let path = sibling_path(data_dir, ".lock");
        let file = open(&path).map_err(io("open", &path))?;
        owner.chown_file(&file, &path)?;
        let mut file = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|(file, _)| Error::Locked { data_dir: data_dir.into(), holder: holder(file) })?;
        write_pid(&mut file).map_err(io("write", &path))?;
        Ok(Self { _file: file })
    }
}

/// `<data_dir><suffix>`: a sibling, so that the cluster directory contains only PostgreSQL's files.
pub(super) fn sibling_path(data_dir: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(data_dir);
    path.push(suffix);
    path.into()
}

fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)
}

fn write_pid(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}

fn holder(mut file: File) -> String {
    let mut pid = String::new();
    let read = file.read_to_string(&mut pid);
    match (read, pid.trim()) {
        (Err(_), _) | (Ok(_), "") => "its pid is not yet known".into(),
        (Ok(_), pid) => format!("pid {pid}"),
    }
}
