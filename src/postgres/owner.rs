//! The user that PostgreSQL runs as: the current user, or an unprivileged user if the current user is root.

use std::fs::{self, Metadata};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown, fchown};
use std::path::Path;

use nix::unistd::{Uid, User, getegid, geteuid};

use super::error::{Error, io};

/// The candidates, in order of preference, if the current user is root and no cluster exists.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];

/// The user that owns the cluster and runs its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) name: String,
    /// Whether we are root and switch to this user for PostgreSQL only.
    pub(super) drops_privileges: bool,
}

impl Owner {
    /// The current user. For root, the owner of the existing cluster, else `postgres`, else `nobody`.
    pub(super) fn of(data_dir: &Path) -> Result<Self, Error> {
        if !geteuid().is_root() {
            let uid = geteuid().as_raw();
            let gid = getegid().as_raw();
            return Ok(Self { uid, gid, name: name_of(geteuid())?, drops_privileges: false });
        }
        match fs::metadata(data_dir.join("PG_VERSION")) {
            Ok(found) if found.uid() != 0 => Self::dropped_to(found.uid(), found.gid()),
            Ok(_) | Err(_) => Self::unprivileged(),
        }
    }

    fn dropped_to(uid: u32, gid: u32) -> Result<Self, Error> {
        Ok(Self { uid, gid, name: name_of(Uid::from_raw(uid))?, drops_privileges: true })
    }

    fn unprivileged() -> Result<Self, Error> {
        let user = UNPRIVILEGED.into_iter().find_map(|name| User::from_name(name).ok().flatten());
        let user = user.ok_or(Error::NamelessUser { uid: 65534 })?;
        Self::dropped_to(user.uid.as_raw(), user.gid.as_raw())
    }

    /// Returns an error if this user cannot search a directory on the path to `target`, or cannot execute `target`. The
    /// error names the first such directory or file.
    pub(super) fn check_reaches(&self, target: &Path) -> Result<(), Error> {
        if !self.drops_privileges {
            return Ok(()); // the current user: the operating system reports missing permissions
        }
        let mut way: Vec<&Path> = target.ancestors().collect();
        way.reverse();
        match way.into_iter().find(|step| fs::metadata(step).is_ok_and(|found| !self.may_pass(&found))) {
            None => Ok(()),
            Some(step) => Err(Error::Unreachable {
                dir: step.into(),
                target: target.into(),
                user: self.name.clone(),
                uid: self.uid,
            }),
        }
    }

    /// Checks search permission on a directory, execute permission on a program. The user has no supplementary groups.
    fn may_pass(&self, found: &Metadata) -> bool {
        let bit = match (found.uid() == self.uid, found.gid() == self.gid) {
            (true, _) => 0o100,
            (false, true) => 0o010,
            (false, false) => 0o001,
        };
        found.mode() & bit != 0
    }

    /// Creates a directory that only this user (and root) can enter.
    pub(super) fn make_dir(&self, dir: &Path) -> Result<(), Error> {
        fs::DirBuilder::new().mode(0o700).create(dir).map_err(io("create", dir))?;
        if self.drops_privileges {
            chown(dir, Some(self.uid), Some(self.gid)).map_err(io("chown", dir))?;
        }
        Ok(())
    }

    /// Replaces a file of this user atomically. Never writes through an existing link, since we may be root in a
    /// directory that is not root's.
    pub(super) fn write_file(&self, path: &Path, content: &str) -> Result<(), Error> {
        let new = path.with_extension("new");
        let _ = fs::remove_file(&new);
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(io("create", &new))?;
        self.chown_file(&file, &new)?;
        file.write_all(content.as_bytes()).map_err(io("write", &new))?;
        file.sync_all().map_err(io("sync", &new))?;
        fs::rename(&new, path).map_err(io("replace", path))
    }

    /// Changes the owner of an open file to this user.
    pub(super) fn chown_file(&self, file: &fs::File, path: &Path) -> Result<(), Error> {
        match self.drops_privileges {
            true => fchown(file, Some(self.uid), Some(self.gid)).map_err(io("chown", path)),
            false => Ok(()),
        }
    }
}

/// The name of the current user, which may be root.
pub(super) fn our_name() -> Result<String, Error> {
    name_of(geteuid())
}

fn name_of(uid: Uid) -> Result<String, Error> {
    let user = User::from_uid(uid).ok().flatten();
    user.map(|user| user.name).ok_or(Error::NamelessUser { uid: uid.as_raw() })
}
