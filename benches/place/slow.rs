//! PostgreSQL with slower commits, as on many cloud disks.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use tempfile::TempDir;

/// Added delay of each flush to disk, in microseconds.
const SLOWER: u32 = 1000;

/// Creates wrappers of the PostgreSQL programs that delay each flush to disk. Returns `None` if strace is not
/// available.
pub(crate) fn slow_programs(place: &TempDir, programs: &Path) -> Option<PathBuf> {
    let found = Command::new("strace").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.ok().filter(ExitStatus::success)?;
    let slow = place.path().join("slow");
    fs::create_dir(&slow).unwrap();
    let programs = programs.display();
    // The tracer is a grandchild (-D), so that signals reach PostgreSQL itself.
    let trace = format!(
        "exec strace -D -f -qqq --seccomp-bpf -o /dev/null -e trace=fdatasync -e signal=none \
         -e inject=fdatasync:delay_exit={SLOWER}"
    );
    let postgres =
        format!("[ \"$1\" = --version ] && exec {programs}/postgres \"$@\"\n{trace} {programs}/postgres \"$@\"");
    for (name, body) in [("postgres", postgres), ("initdb", format!("exec {programs}/initdb \"$@\""))] {
        let path = slow.join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    Some(slow)
}
