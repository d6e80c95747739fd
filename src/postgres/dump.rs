//! Dumps of our database, written and restored by pg_dump and pg_restore.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;
use tokio_postgres::{Config, config::Host};

use super::binaries::Binaries;
use super::error::{Error, io};
use super::owner::Owner;
use super::{DATABASE, ROLE, Settings, cluster, database, resolve, socket};

/// Writes a consistent snapshot of our database to `to`. The file appears only when it is complete. The server keeps
/// running.
pub async fn dump(settings: Settings, server: &Config, to: &Path) -> Result<(), Error> {
    let draft = to.with_added_extension("part");
    private_file(&draft)?;
    let args = ["--format=custom".into(), "--file".into(), draft.clone().into_os_string()];
    let written = run(&settings, server, "pg_dump", &args).await;
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
        return written;
    }
    File::open(&draft).and_then(|file| file.sync_all()).map_err(io("sync", &draft))?;
    std::fs::rename(&draft, to).map_err(io("create", to))?;
    let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io("sync", dir))
}

/// Restores a dump into our database, in one transaction. The database must be empty.
pub async fn restore(settings: Settings, server: &Config, from: &Path) -> Result<(), Error> {
    // Checked before the database, so that a mistyped file name is reported as such.
    File::open(from).map_err(io("open", from))?;
    if !database::is_empty(server).await? {
        return Err(Error::NotEmpty { data_dir: settings.cluster_dir });
    }
    database::make_roles(server).await?;
    let from = std::path::absolute(from).map_err(io("resolve", from))?;
    let args = ["--single-transaction".into(), "--exit-on-error".into(), "--no-owner".into(), from.into_os_string()];
    let database = format!("--dbname={DATABASE}").into();
    let args: Vec<OsString> = [database].into_iter().chain(args).collect();
    run(&settings, server, "pg_restore", &args).await
}

/// Creates an empty file that only we can read, since it will contain conversations.
fn private_file(path: &Path) -> Result<(), Error> {
    let _ = std::fs::remove_file(path);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map(drop).map_err(io("create", path))
}

/// Runs a client program of the cluster's version against the server, as the current user: the server uses peer
/// authentication.
async fn run(settings: &Settings, server: &Config, program: &'static str, args: &[OsString]) -> Result<(), Error> {
    let settings = resolve(settings.clone())?;
    let owner = Owner::of(&settings.cluster_dir)?;
    let version = cluster::version(&settings.cluster_dir);
    let binaries = Binaries::find(&settings, &owner, version.as_deref()).await?;
    let path = binaries.client(program).ok_or_else(|| Error::NoClient { program, dir: binaries.dir().to_owned() })?;
    let mut command = Command::new(&path);
    command
        .args(args)
        .env_clear() // contextd's secrets must not reach it
        .envs([("PATH", "/usr/bin:/bin"), ("LC_ALL", "C"), ("TZ", "UTC")])
        .envs([("PGUSER", ROLE), ("PGDATABASE", DATABASE)])
        .env("PGPORT", socket::PORT.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(Host::Unix(dir)) = server.get_hosts().first() {
        command.env("PGHOST", dir);
    }
    let output = command.output().await.map_err(io("run", path))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Client {
        program,
        status: output.status.to_string(),
        log: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
