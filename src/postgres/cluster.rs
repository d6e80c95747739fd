//! The data directory: created atomically, and accessible only to its owner.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::binaries::Binaries;
use super::child::GuardedProcess;
use super::error::{Error, io};
use super::lock::sibling_path;
use super::owner::{Owner, our_name};
use super::{Durability, Progress, ROLE, Settings};

/// Every local connection must come from an operating system user that pg_ident.conf maps to our role.
const HBA: &str = "# Written by contextd.\nlocal all all peer map=contextd\n";

/// Resolves the path of the data directory and creates its parents. The directory itself need not exist.
pub(super) fn locate(data_dir: &Path) -> Result<PathBuf, Error> {
    let path = std::path::absolute(data_dir).map_err(io("resolve", data_dir))?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::NotACluster { data_dir: data_dir.into() });
    };
    DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(io("create", parent))?;
    let place = parent.canonicalize().map_err(io("resolve", parent))?.join(name);
    Ok(place.canonicalize().unwrap_or(place))
}

/// The major version of the cluster. Returns `None` if no cluster exists.
pub(super) fn version(data_dir: &Path) -> Option<String> {
    Some(fs::read_to_string(data_dir.join("PG_VERSION")).ok()?.trim().to_owned())
}

/// Checks the owner of the cluster: PostgreSQL requires that it owns its data directory.
pub(super) fn check_owner(data_dir: &Path, owner: &Owner) -> Result<(), Error> {
    let found = fs::metadata(data_dir).map_err(io("inspect", data_dir))?;
    match found.uid() == owner.uid {
        true => Ok(()),
        false => Err(Error::WrongOwner {
            data_dir: data_dir.into(),
            owner: found.uid(),
            user: owner.name.clone(),
            uid: owner.uid,
        }),
    }
}

/// Creates a cluster in a sibling directory and renames it into place when it is complete. Remains of an earlier
/// attempt are removed.
pub(super) async fn create(
    settings: &Settings,
    owner: &Owner,
    binaries: &Binaries,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let data_dir = &settings.cluster_dir;
    check_vacant(data_dir)?;
    progress(&format!("creating a PostgreSQL {} cluster in {}", binaries.version, data_dir.display()));
    let draft = sibling_path(data_dir, ".init");
    remove_all(&draft)?;
    owner.make_dir(&draft)?;
    initdb(settings, owner, binaries, &draft).await?;
    owner.write_file(&draft.join("pg_hba.conf"), HBA)?;
    publish(&draft, data_dir)
}

/// Allows the user that this process runs as to connect. It may differ from that of the last run.
pub(super) fn allow_current_user(data_dir: &Path, owner: &Owner) -> Result<(), Error> {
    let us = our_name()?.replace('"', "\"\"");
    owner.write_file(&data_dir.join("pg_ident.conf"), &format!("# Written by contextd.\ncontextd \"{us}\" {ROLE}\n"))
}

/// Removes a directory and its contents. A missing directory is not an error.
pub(super) fn remove_all(dir: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io("remove", dir)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Fails unless the directory is missing or empty; only then may a cluster replace it.
fn check_vacant(data_dir: &Path) -> Result<(), Error> {
    let vacant = match fs::read_dir(data_dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    if vacant { Ok(()) } else { Err(Error::NotACluster { data_dir: data_dir.into() }) }
}

async fn initdb(settings: &Settings, owner: &Owner, binaries: &Binaries, draft: &Path) -> Result<(), Error> {
    let mut args: Vec<OsString> = vec!["-D".into(), draft.into(), "-U".into(), ROLE.into()];
    args.extend(["--locale=C", "--encoding=UTF8", "--data-checksums", "--no-instructions"].map(OsString::from));
    args.extend(["--auth-local=peer", "--auth-host=reject"].map(OsString::from));
    if settings.durability == Durability::Disposable {
        args.push("--no-sync".into());
    }
    let process = GuardedProcess::spawn(&settings.guard_program, owner, &binaries.initdb(), &args)?;
    let status = process.exited().await;
    match status.success() {
        true => Ok(()),
        false => Err(Error::Initdb {
            data_dir: draft.into(),
            status: status.to_string(),
            log: process.log.last_lines().await,
        }),
    }
}

fn publish(draft: &Path, data_dir: &Path) -> Result<(), Error> {
    fs::rename(draft, data_dir).map_err(|error| {
        if error.kind() == ErrorKind::ResourceBusy {
            return Error::MountPoint { data_dir: data_dir.into() };
        }
        io("move the new cluster to", data_dir)(error)
    })?;
    let parent = data_dir.parent().unwrap_or(data_dir);
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(io("sync", parent))
}
