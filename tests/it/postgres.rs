//! The embedded PostgreSQL: it starts after any kind of shutdown, and never outlives its contextd.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::future::Future;
use std::io::BufRead;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use contextd::{
    config::EmbeddedConfig,
    postgres::{Durability, Error, Postgres, Settings, find_running},
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

use crate::harness::scratch::scratch;

/// The line that the helper test below prints when its server runs.
const HOLDING: &str = "holding";
/// Variable with the contextd program that guards the server.
const GUARD_PROGRAM: &str = "CONTEXTD_TEST_GUARD_PROGRAM";
/// Variable with the directory in which the helper test below starts a server.
const HOLD_AT: &str = "CONTEXTD_TEST_HOLD_AT";

/// A directory for one cluster that is accessible to the unprivileged user of a test run by root. Removed after its
/// server has ended.
struct Place {
    root: TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { root }
    }

    fn data_dir(&self) -> PathBuf {
        self.root.path().join("data")
    }

    fn settings(&self) -> Settings {
        let mut settings = settings_at(&self.data_dir());
        settings.embedded.runtime_dir = Some(self.root.path().join("run"));
        settings
    }

    fn durable(&self) -> Settings {
        Settings { durability: Durability::Durable, ..self.settings() }
    }

    async fn start(&self) -> Postgres {
        start(self.settings()).await.unwrap()
    }

    /// Creates a cluster and leaves it stopped.
    async fn with_a_cluster() -> Self {
        let place = Self::new();
        place.start().await.stop().await.unwrap();
        place
    }

    fn postmaster(&self) -> Option<i32> {
        fs::read_to_string(self.data_dir().join("postmaster.pid")).ok()?.lines().next()?.parse().ok()
    }

    /// Makes the server's user the owner of a path.
    fn own(&self, path: &Path) {
        fs::create_dir(path).unwrap();
        let (uid, gid) = server_user();
        chown(path, Some(uid), Some(gid)).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for _ in 0..500 {
            if self.postmaster().is_none_or(|pid| !alive(pid)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn settings_at(data_dir: &Path) -> Settings {
    Settings {
        durability: Durability::Disposable,
        search_path: std::env::var_os("PATH").unwrap(),
        ..Settings::new(data_dir, env!("CARGO_BIN_EXE_contextd"))
    }
}

async fn start(settings: Settings) -> Result<Postgres, Error> {
    Postgres::start(settings, &|_| {}).await
}

async fn failure(settings: Settings) -> String {
    start(settings).await.unwrap_err().to_string()
}

fn server_user() -> (u32, u32) {
    let user = match geteuid().is_root() {
        true => User::from_name("postgres").unwrap().or_else(|| User::from_name("nobody").unwrap()),
        false => User::from_uid(geteuid()).unwrap(),
    };
    user.map(|user| (user.uid.as_raw(), user.gid.as_raw())).unwrap()
}

async fn connect(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn text(client: &Client, query: &str) -> String {
    client.query_one(query, &[]).await.unwrap().get(0)
}

async fn remember(postgres: &Postgres, word: &str) {
    let client = connect(&postgres.config("contextd")).await;
    client.batch_execute(&format!("create table memory as select '{word}'::text as word")).await.unwrap();
}

async fn recall(postgres: &Postgres) -> String {
    text(&connect(&postgres.config("contextd")).await, "select word from memory").await
}

/// Zombies count as ended: if process 1 does not reap, an orphan remains a zombie.
fn alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn parent_of(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

fn kill_9(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

#[tokio::test]
async fn an_empty_directory_gets_a_utf8_cluster_with_checksums_on_a_private_socket() {
    let place = Place::new();
    let postgres = place.start().await;
    let client = connect(&postgres.config("contextd")).await;
    assert_eq!(text(&client, "select current_user::text").await, "contextd");
    assert_eq!(text(&client, "show data_checksums").await, "on");
    assert_eq!(text(&client, "show server_encoding").await, "UTF8");
    assert_eq!(text(&client, "show lc_collate").await, "C");
    assert_eq!(text(&client, "show listen_addresses").await, "");
    let socket_dir = fs::metadata(postgres.socket_dir()).unwrap();
    assert_eq!((socket_dir.uid(), socket_dir.mode() & 0o777), (server_user().0, 0o700));
    let path = postgres.socket_dir().to_owned();
    postgres.stop().await.unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn a_durable_server_flushes_what_it_acknowledges() {
    let place = Place::new();
    let postgres = start(place.durable()).await.unwrap();
    let client = connect(&postgres.config("contextd")).await;
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        assert_eq!(text(&client, &format!("show {setting}")).await, "on", "{setting}");
    }
}

#[tokio::test]
async fn extra_settings_reach_the_embedded_server() {
    let place = Place::new();
    let server_settings = vec![("work_mem".to_owned(), "7MB".to_owned())];
    let postgres = start(Settings {
        server_settings,
        embedded: EmbeddedConfig { max_connections: 17, ..place.settings().embedded },
        ..place.settings()
    })
    .await
    .unwrap();
    let client = connect(&postgres.config("contextd")).await;
    assert_eq!(text(&client, "show work_mem").await, "7MB");
    assert_eq!(text(&client, "show max_connections").await, "17");
}

#[tokio::test]
async fn a_second_start_finds_the_data_of_the_first() {
    let place = Place::new();
    let postgres = place.start().await;
    remember(&postgres, "kept").await;
    postgres.stop().await.unwrap();
    assert_eq!(place.postmaster(), None);
    assert_eq!(recall(&place.start().await).await, "kept");
}

#[tokio::test]
async fn a_dropped_server_stops_and_the_next_start_waits_for_that() {
    let place = Place::new();
    let postgres = place.start().await;
    let old = place.postmaster().unwrap();
    drop(postgres);
    let _next = place.start().await;
    assert!(!alive(old));
}

#[tokio::test]
async fn a_server_outlives_the_runtime_it_was_started_from() {
    let place = Place::new();
    let settings = place.settings();
    let other = std::thread::spawn(|| tokio::runtime::Runtime::new().unwrap().block_on(start(settings)).unwrap());
    let postgres = other.join().unwrap();
    remember(&postgres, "still here").await;
    postgres.stop().await.unwrap();
    assert_eq!(place.postmaster(), None);
}

#[tokio::test]
async fn a_start_can_be_awaited_in_a_task_of_its_own() {
    let place = Place::new();
    let settings = place.settings();
    let postgres = tokio::spawn(async move { Postgres::start(settings, &|_| {}).await }).await.unwrap().unwrap();
    tokio::spawn(postgres.stop()).await.unwrap().unwrap();
}

#[tokio::test]
async fn after_kill_9_of_the_postmaster_the_end_is_noticed_and_the_next_start_recovers() {
    let place = Place::new();
    let postgres = start(place.durable()).await.unwrap();
    remember(&postgres, "recovered").await;
    kill_9(place.postmaster().unwrap());
    soon("exited", postgres.exited()).await;
    drop(postgres);
    assert_eq!(recall(&start(place.durable()).await.unwrap()).await, "recovered");
}

#[tokio::test]
async fn start_waits_for_orphaned_backends_after_the_postmaster_is_killed() {
    let place = Place::new();
    let postgres = start(place.durable()).await.unwrap();
    remember(&postgres, "recovered").await;
    let client = connect(&postgres.config("contextd")).await;
    let busy = "do $$ declare till timestamptz := clock_timestamp() + '1.5 s';
                begin perform 1; while clock_timestamp() < till loop end loop; end $$";
    let busy = tokio::spawn(async move { client.batch_execute(busy).await });
    let watcher = connect(&postgres.config("contextd")).await;
    let seen = "select count(*)::text from pg_stat_activity where state = 'active' and query like 'do $$%'";
    while text(&watcher, seen).await != "1" {
        tokio::task::yield_now().await;
    }
    kill_9(place.postmaster().unwrap());
    soon("exited", postgres.exited()).await;
    drop(postgres);
    assert_eq!(recall(&start(place.durable()).await.unwrap()).await, "recovered");
    let _ = busy.await.unwrap(); // the old backend may or may not have responded before it ended
}

#[tokio::test]
async fn after_kill_9_of_the_guard_a_stop_still_stops_the_server() {
    let place = Place::new();
    let postgres = place.start().await;
    let postmaster = place.postmaster().unwrap();
    kill_9(parent_of(postmaster));
    soon("exited", postgres.exited()).await;
    assert!(alive(postmaster));
    postgres.stop().await.unwrap();
    assert!(!alive(postmaster));
}

#[tokio::test]
async fn after_kill_9_of_the_guard_the_next_start_stops_the_orphan_and_says_so() {
    let place = Place::new();
    let postgres = place.start().await;
    remember(&postgres, "kept").await;
    let orphan = place.postmaster().unwrap();
    kill_9(parent_of(orphan));
    soon("exited", postgres.exited()).await;
    drop(postgres);
    assert!(alive(orphan));
    let said = std::sync::Mutex::new(String::new());
    let next = Postgres::start(place.settings(), &|line| said.lock().unwrap().push_str(line)).await.unwrap();
    assert!(!alive(orphan));
    assert_eq!(recall(&next).await, "kept");
    assert!(said.lock().unwrap().contains(&format!("run (pid {orphan})")));
}

#[tokio::test]
async fn signals_for_the_whole_service_do_not_end_the_guard() {
    let place = Place::new();
    let postgres = place.start().await;
    let guard = parent_of(place.postmaster().unwrap());
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        kill(Pid::from_raw(guard), signal).unwrap();
    }
    remember(&postgres, "still here").await;
    assert!(alive(guard));
}

#[test]
fn the_guard_ends_its_program_when_the_pipe_closes_and_not_before() {
    let mut guard = guard_of(&["-", "/bin/sleep", "600"]);
    assert!(guard.try_wait().unwrap().is_none());
    drop(guard.stdin.take());
    assert_eq!(guard.wait().unwrap().code(), Some(128 + Signal::SIGINT as i32));
}

#[test]
fn the_guard_ends_with_its_program() {
    let mut guard = guard_of(&["-", "/bin/sh", "-c", "exit 7"]);
    let _pipe = guard.stdin.take(); // keeps the pipe open until the end; `wait` would close it
    assert_eq!(guard.wait().unwrap().code(), Some(7));
}

fn guard_of(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_contextd"));
    command.arg("__postgres-guard").args(args).stdin(Stdio::piped()).spawn().unwrap()
}

/// Not a test: the program that the tests below kill. It starts a server and keeps it running.
#[tokio::test]
#[ignore = "run by other tests, as a process of its own"]
async fn hold() {
    let Some(data_dir) = std::env::var_os(HOLD_AT).map(PathBuf::from) else {
        return;
    };
    let guard_program = std::env::var_os(GUARD_PROGRAM).map(PathBuf::from).unwrap();
    let mut settings = settings_at(&data_dir);
    settings.embedded.runtime_dir = data_dir.parent().map(PathBuf::from);
    let _postgres = start(Settings { guard_program, ..settings }).await.unwrap();
    eprintln!("{HOLDING}");
    std::future::pending().await
}

/// Copies a program with another process. A process that is forked here while the copy is open for writing would keep
/// it open for a moment longer, and a program that is open for writing cannot be executed.
fn copied(program: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join(program.file_name().unwrap());
    assert!(Command::new("cp").args([program, copy.as_path()]).status().unwrap().success());
    copy
}

/// Runs `hold` in a separate process, as an ordinary user if `user` is given. Returns once its server runs.
fn holder(place: &Place, user: Option<(u32, u32)>) -> Child {
    let home = place.root.path().join("home");
    fs::create_dir(&home).unwrap();
    let mut programs = [std::env::current_exe().unwrap(), PathBuf::from(env!("CARGO_BIN_EXE_contextd"))];
    if user.is_some() {
        programs = programs.map(|program| copied(&program, &home)); // any user can access this directory
    }
    let [it, contextd] = programs;
    let mut command = Command::new(it);
    if let Some((uid, gid)) = user {
        chown(&home, Some(uid), Some(gid)).unwrap();
        command.uid(uid).gid(gid);
    }
    command.env(GUARD_PROGRAM, contextd);
    command.args(["--exact", "postgres::hold", "--ignored", "--nocapture"]).env(HOLD_AT, home.join("data"));
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut said = Vec::new();
    for line in std::io::BufReader::new(child.stderr.as_mut().unwrap()).lines() {
        said.push(line.unwrap());
        if said.last().is_some_and(|line| line == HOLDING) {
            return child;
        }
    }
    let _ = child.kill();
    panic!("it ended without holding a server ({:?}): {said:#?}", child.wait())
}

async fn kill_9_of_the_holder_stops_its_server(user: Option<(u32, u32)>) {
    let place = Place::new();
    let mut holder = holder(&place, user);
    let data_dir = place.root.path().join("home/data");
    let pid_file = data_dir.join("postmaster.pid");
    let postmaster: i32 = fs::read_to_string(&pid_file).unwrap().lines().next().unwrap().parse().unwrap();
    assert!(alive(postmaster));
    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("the server stops", || !alive(postmaster)).await;
    assert!(!pid_file.exists(), "not a clean stop");
}

#[tokio::test]
async fn kill_9_of_contextd_stops_its_server_cleanly() {
    kill_9_of_the_holder_stops_its_server(None).await;
}

#[tokio::test]
async fn kill_9_of_a_contextd_that_an_ordinary_user_runs_stops_its_server_cleanly() {
    if geteuid().is_root() {
        kill_9_of_the_holder_stops_its_server(Some(server_user())).await;
    }
}

#[tokio::test]
async fn a_cluster_made_as_root_serves_its_owner_too_and_the_other_way_round() {
    if !geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let mut holder = holder(&place, Some(server_user()));
    holder.kill().unwrap();
    holder.wait().unwrap();
    let postgres = start(settings_at(&place.root.path().join("home/data"))).await.unwrap();
    remember(&postgres, "by root").await;
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_half_initialized_cluster_is_discarded() {
    let place = Place::new();
    let draft = place.root.path().join("data.init");
    fs::create_dir(&draft).unwrap();
    fs::write(draft.join("PG_VERSION"), "15\n").unwrap();
    let _postgres = place.start().await;
    assert!(!draft.exists());
}

#[tokio::test]
async fn a_foreign_directory_is_not_touched() {
    let place = Place::new();
    fs::create_dir(place.data_dir()).unwrap();
    fs::write(place.data_dir().join("thesis.txt"), "years of work").unwrap();
    let error = failure(place.settings()).await;
    assert!(error.contains("is not empty and is not a PostgreSQL cluster"), "{error}");
    assert!(place.data_dir().join("thesis.txt").exists());
}

#[tokio::test]
async fn a_process_that_reuses_a_dead_servers_pid_is_ignored() {
    let place = Place::with_a_cluster().await;
    let mut stranger = Command::new("/bin/sleep");
    stranger.arg("600");
    if geteuid().is_root() {
        stranger.uid(server_user().0); // PostgreSQL itself is only misled by a process of the same user
    }
    let mut stranger = stranger.spawn().unwrap();
    let stale = format!("{}\n{}\n1700000000\n5432\n/tmp\n\n\nready   \n", stranger.id(), place.data_dir().display());
    fs::write(place.data_dir().join("postmaster.pid"), stale).unwrap();
    assert!(find_running(&place.data_dir()).await.is_none());
    let postgres = place.start().await;
    assert!(stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    remember(&postgres, "fine").await;
}

#[tokio::test]
async fn a_second_contextd_on_a_data_directory_is_refused_with_the_pid_of_the_first() {
    let place = Place::new();
    let _first = place.start().await;
    let error = failure(place.settings()).await;
    assert!(error.contains(&format!("in use by another contextd (pid {})", std::process::id())), "{error}");
}

#[tokio::test]
async fn a_running_server_is_found_by_its_data_directory_and_a_stopped_one_is_not() {
    let place = Place::new();
    assert!(find_running(&place.data_dir()).await.is_none());
    let postgres = place.start().await;
    let found = find_running(&place.data_dir()).await.unwrap();
    assert_eq!(text(&connect(&found).await, "select current_database()::text").await, "contextd");
    postgres.stop().await.unwrap();
    assert!(find_running(&place.data_dir()).await.is_none());
}

#[tokio::test]
async fn connections_of_another_user_are_refused() {
    if !geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let postgres = place.start().await;
    let url = format!("host={} user=contextd dbname=contextd", postgres.socket_dir().display());
    let psql = |uid: u32| Command::new("psql").args([&url, "-c", "select 1"]).uid(uid).current_dir("/").output();
    let Ok(nobody) = psql(65534) else { return }; // psql is not available
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("Permission denied"), "{nobody:?}");
    let itself = psql(server_user().0).unwrap();
    assert!(String::from_utf8_lossy(&itself.stderr).contains("Peer authentication failed"), "{itself:?}");
}

#[tokio::test]
async fn a_socket_path_that_is_too_long_is_named_with_the_limit() {
    let place = Place::with_a_cluster().await;
    let runtime_dir = place.root.path().join("x".repeat(90));
    let mut settings = place.settings();
    settings.embedded.runtime_dir = Some(runtime_dir.clone());
    let error = failure(settings).await;
    assert!(error.contains(runtime_dir.to_str().unwrap()) && error.contains("fewer than 100"), "{error}");
}

#[tokio::test]
async fn a_runtime_directory_that_the_server_can_enter_is_used_and_a_closed_one_is_not() {
    let place = Place::new();
    let runtime_dir = place.root.path().join("run");
    let settings = place.settings();
    let postgres = start(settings.clone()).await.unwrap();
    assert!(postgres.socket_dir().starts_with(&runtime_dir));
    postgres.stop().await.unwrap();
    if geteuid().is_root() {
        fs::set_permissions(&runtime_dir, fs::Permissions::from_mode(0o700)).unwrap();
        let postgres = start(settings).await.unwrap();
        assert_eq!(postgres.socket_dir().parent(), Some(Path::new("/tmp")));
        postgres.stop().await.unwrap();
    }
}

#[tokio::test]
async fn an_inaccessible_parent_directory_is_named() {
    if !geteuid().is_root() {
        return; // the server of an ordinary user can access everything that the user can
    }
    let place = Place::new();
    let closed = place.root.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let error = failure(settings_at(&closed.join("deeper/data"))).await;
    assert!(error.contains(&format!("cannot access {}, which", closed.display())), "{error}");
}

#[tokio::test]
async fn a_cluster_of_another_version_is_refused_naming_both_versions() {
    let place = Place::new();
    place.own(&place.data_dir());
    fs::write(place.data_dir().join("PG_VERSION"), "12\n").unwrap();
    let error = failure(place.settings()).await;
    assert!(error.contains("was created by PostgreSQL 12, but the binaries found are 1"), "{error}");
}

#[tokio::test]
async fn missing_postgres_programs_are_reported_with_instructions() {
    let place = Place::new();
    let empty = place.root.path().to_owned();
    let mut settings = place.settings();
    settings.embedded.bin_dir = Some(empty.clone());
    let error = failure(settings).await;
    assert!(error.contains(empty.to_str().unwrap()) && error.contains("apt-get install postgresql"), "{error}");
}

#[tokio::test]
async fn the_log_of_a_server_that_fails_to_start_is_quoted() {
    let place = Place::with_a_cluster().await;
    let server_settings = vec![("no_such_setting".to_owned(), "1".to_owned())];
    let error = failure(Settings { server_settings, ..place.settings() }).await;
    assert!(error.contains("unrecognized configuration parameter \"no_such_setting\""), "{error}");
}

#[tokio::test]
async fn scratch_servers_get_a_slot_each_and_reuse_it_empty() {
    let place = Place::new();
    let parent = place.root.path();
    let first = scratch(parent, place.settings()).await.unwrap();
    connect(&first.config("contextd")).await.batch_execute("create database left_over is_template true").await.unwrap();
    let second = scratch(parent, place.settings()).await.unwrap();
    assert_ne!(first.socket_dir(), second.socket_dir());
    drop((first, second));
    let again = scratch(parent, place.settings()).await.unwrap();
    let left = "select count(*)::text from pg_database where datname = 'left_over'";
    assert_eq!(text(&connect(&again.config("contextd")).await, left).await, "0");
    again.stop().await.unwrap();
}
