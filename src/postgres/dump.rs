//! Dumps of our database, made and read by PostgreSQL's own programs.

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

/// Writes all of our database, as it is at one moment, to `to`, which is only there when it is
/// whole. The server goes on.
pub async fn dump(settings: Settings, server: &Config, to: &Path) -> Result<(), Error> {
    let draft = to.with_added_extension("part");
    private_file(&draft)?;
    let args = ["--format=custom".into(), file_flag(&draft)];
    let written = run(&settings, server, "pg_dump", &args).await;
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
        return written;
    }
    File::open(&draft)
        .and_then(|file| file.sync_all())
        .map_err(io("sync", &draft))?;
    std::fs::rename(&draft, to).map_err(io("make", to))?;
    let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(io("sync", dir))
}

/// Fills our database from a dump, in one transaction. It must be empty.
pub async fn restore(settings: Settings, server: &Config, from: &Path) -> Result<(), Error> {
    // Looked at before the database is: a name that was mistyped is told as such.
    File::open(from).map_err(io("open", from))?;
    if !database::is_empty(server).await? {
        return Err(Error::NotEmpty {
            data_dir: settings.data_dir,
        });
    }
    database::make_roles(server).await?;
    let from = std::path::absolute(from).map_err(io("find", from))?;
    let args = [
        "--single-transaction".into(),
        "--exit-on-error".into(),
        "--no-owner".into(),
        from.into_os_string(),
    ];
    let database = format!("--dbname={DATABASE}").into();
    let args: Vec<OsString> = [database].into_iter().chain(args).collect();
    run(&settings, server, "pg_restore", &args).await
}

/// An empty file that only we can read, since conversations will be in it.
fn private_file(path: &Path) -> Result<(), Error> {
    let _ = std::fs::remove_file(path);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    made.map(drop).map_err(io("make", path))
}

fn file_flag(path: &Path) -> OsString {
    let mut flag = OsString::from("--file=");
    flag.push(path);
    flag
}

/// Runs a client program of the cluster's version against the server, as ourselves: the server
/// knows us by who we are.
async fn run(
    settings: &Settings,
    server: &Config,
    program: &'static str,
    args: &[OsString],
) -> Result<(), Error> {
    let settings = resolve(settings.clone())?;
    let owner = Owner::of(&settings.data_dir)?;
    let version = cluster::version(&settings.data_dir);
    let binaries = Binaries::find(&settings, &owner, version.as_deref()).await?;
    let path = binaries.client(program).ok_or_else(|| Error::NoClient {
        program,
        dir: binaries.dir().to_owned(),
    })?;
    let mut command = Command::new(&path);
    command
        .args(args)
        .env_clear() // secrets of ours are none of its business
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
