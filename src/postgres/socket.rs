//! The directory of the Unix socket: a short path, private, one per cluster.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::{Error, io};
use super::owner::Owner;

/// Part of the socket file's name; no TCP port is opened.
pub(super) const PORT: u16 = 5432;
/// Below the limits of Linux (108) and macOS (104).
const PATH_LIMIT: usize = 100;

/// Creates the socket directory for a server of this cluster, or cleans an existing one. The server must not be
/// running.
///
/// The directory is created in `runtime_dir`, or in /tmp if none is set or the owner cannot access it (root's login
/// session has one that only root may enter).
pub(super) fn prepare(data_dir: &Path, runtime_dir: Option<&Path>, owner: &Owner) -> Result<PathBuf, Error> {
    let parent = runtime_dir.filter(|dir| owner.check_reaches(dir).is_ok()).unwrap_or(Path::new("/tmp"));
    let dir = parent.join(format!("contextd-{}-{}", owner.uid, digest(data_dir)));
    check_length(&dir)?;
    match fs::symlink_metadata(&dir) {
        Ok(found) => check_ours(&found, &dir, owner)?,
        Err(_) => make(parent, &dir, owner)?,
    }
    sweep(&dir)?;
    Ok(dir)
}

fn make(parent: &Path, dir: &Path, owner: &Owner) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(io("create", parent))?;
    owner.make_dir(dir)
}

/// A short name that distinguishes the clusters in one runtime directory.
fn digest(data_dir: &Path) -> String {
    let digest = Sha256::digest(data_dir.as_os_str().as_bytes());
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn check_length(dir: &Path) -> Result<(), Error> {
    let path = dir.join(format!(".s.PGSQL.{PORT}"));
    let length = path.as_os_str().len();
    match length < PATH_LIMIT {
        true => Ok(()),
        false => Err(Error::SocketPathTooLong { path, length, limit: PATH_LIMIT }),
    }
}

/// Checks the owner and mode of the directory: in /tmp, another user may have created it.
fn check_ours(found: &fs::Metadata, dir: &Path, owner: &Owner) -> Result<(), Error> {
    let private = found.is_dir() && found.uid() == owner.uid && found.mode() & 0o077 == 0;
    match private {
        true => Ok(()),
        false => Err(Error::SocketDirTaken { path: dir.into(), owner: found.uid(), uid: owner.uid }),
    }
}

/// Removes the socket and the lock file of a killed server. The pid in the lock file may belong to another process now.
fn sweep(dir: &Path) -> Result<(), Error> {
    for name in [format!(".s.PGSQL.{PORT}"), format!(".s.PGSQL.{PORT}.lock")] {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(io("remove", path)(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Removes the directory after the server has exited.
pub(super) fn remove(dir: &Path) {
    let _ = fs::remove_dir(dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_path_of_100_bytes_is_too_long() {
        let dir = |length: usize| PathBuf::from(format!("/{}", "x".repeat(length - 1)));
        let socket = "/.s.PGSQL.5432".len();
        assert!(check_length(&dir(99 - socket)).is_ok());
        let error = check_length(&dir(100 - socket)).unwrap_err().to_string();
        assert!(error.contains("has 100 bytes, but must have fewer than 100"), "{error}");
    }
}
