//! The disk of PostgreSQL is full, broken or slow. This requires root and strace; tests are skipped where they are not
//! available.

use std::{
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use contextd::pb::event::Payload;
use nix::unistd::geteuid;
use tokio::process::{Child, Command};
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::harness::{
    cluster::Cluster,
    errors::refusal,
    events::TEST_TIMEOUT,
    host::until,
    process::{Place, Served},
    requests::{input, turn},
    survivor::{Survivor, asking, becomes, recoveries, slow, two_tools},
};

use super::{PATIENT, all, free_port};

/// A small in-memory file system, mounted at a directory and removed with the test.
struct LittleDisk<'a>(&'a Path);

impl<'a> LittleDisk<'a> {
    async fn at(path: &'a Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=200m", "tmpfs"]).arg(path).output().await;
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(path))
    }
}

impl Drop for LittleDisk<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0).output();
    }
}

/// Whether the metrics page has a nonzero count.
async fn counted(admin: u16, metric: &str, label: &str) -> bool {
    let page = reqwest::get(format!("http://127.0.0.1:{admin}/metrics")).await;
    let page = page.unwrap().text().await.unwrap();
    let is_it = |line: &str| line.starts_with(metric) && line.contains(label);
    page.lines().any(|line| is_it(line) && !line.ends_with(" 0"))
}

async fn before(cluster: &Cluster, settings: &str) -> (Place, Served) {
    let place = Place::new(settings).script("slow", &slow()).script("tools", &two_tools());
    let served = place.serve_over(&cluster.database()).await;
    becomes(&mut served.health().await, ServingStatus::Serving).await;
    (place, served)
}

/// Row F12
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_writes_and_loses_nothing() {
    let root = tempfile::tempdir().unwrap();
    let Some(disk) = LittleDisk::at(root.path()).await.filter(|_| geteuid().is_root()) else {
        eprintln!("skipped: no little disk can be mounted here");
        return;
    };
    let cluster = Cluster::start_in(root.path().join("place"), &[]).await;
    let admin = free_port();
    let settings = format!("{PATIENT}[server]\nadmin_listen = '127.0.0.1:{admin}'\n");
    let (_place, served) = before(&cluster, &settings).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    let mut megabytes = 0;
    while fs::write(root.path().join(format!("ballast-{megabytes}")), vec![1; 1 << 20]).is_ok() {
        megabytes += 1;
    }
    let large = |n: u32| {
        let mut request = turn(&format!("large-{n}"), "scripted/slow", "");
        request.input = Some(input(&uuid::Uuid::now_v7().to_string().repeat(10_000)));
        request
    };
    let mut refused = None;
    for n in 0..100 {
        if let Err(status) = served.turns().await.execute_turn(large(n)).await {
            refused = Some(status);
            break;
        }
    }
    let refused = refused.expect("there was room for everything");
    assert_eq!((refused.code(), refusal(&refused).reason.as_str()), (Code::Unavailable, "DATABASE_UNAVAILABLE"));
    assert_eq!(refused.message(), "the database's disk is full");
    let (metric, label) = ("db_client_operation_duration_seconds_count{", "error_type=\"disk_full\"");
    assert!(counted(admin, metric, label).await);
    for n in 0..=megabytes {
        let _ = fs::remove_file(root.path().join(format!("ballast-{n}")));
    }
    host.survive(&[&served]).await;
    host.check_story(&served).await;
    let mut next = Survivor::new(large(1000));
    next.survive(&[&served]).await;
    next.check_story(&served).await;
    drop((served, cluster, disk));
}

/// strace, attached to a server and every process that it starts from then on.
struct Tampering {
    strace: Child,
    log: tempfile::NamedTempFile,
    /// The text that strace adds to a system call that it tampered with.
    mark: String,
}

impl Tampering {
    async fn with(cluster: &Cluster, how: &str, mark: &str) -> Option<Self> {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", "trace=fdatasync", "-e", &format!("inject=fdatasync:{how}"), "-o"]);
        strace.arg(log.path()).args(["-p", &cluster.postmaster().to_string()]).kill_on_drop(true);
        let strace = strace.stdin(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let traced = format!("/proc/{}/status", cluster.postmaster());
        let attached = || async { !fs::read_to_string(&traced).unwrap_or_default().contains("TracerPid:\t0\n") };
        let waited = tokio::time::timeout(Duration::from_secs(5), until("strace", attached)).await;
        waited.is_ok().then_some(Self { strace, log, mark: mark.to_owned() })
    }

    fn injected(&self) -> bool {
        fs::read_to_string(self.log.path()).unwrap_or_default().contains(&self.mark)
    }

    async fn end(mut self) {
        let pid = i32::try_from(self.strace.id().unwrap()).unwrap();
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
        let _ = tokio::time::timeout(TEST_TIMEOUT, self.strace.wait()).await;
    }
}

/// Row F13
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_fsync_is_a_crash_and_loses_nothing() {
    let cluster = Cluster::start(&[]).await;
    let Some(tampering) = Tampering::with(&cluster, "error=EIO:when=2", "INJECTED").await else {
        eprintln!("skipped: no strace that may be used");
        return;
    };
    let (_place, served) = before(&cluster, PATIENT).await;
    let mut hosts: Vec<Survivor> = (0..4)
        .map(|n| Survivor::new(asking(["scripted/slow", "scripted/tools"][n % 2], &format!("chat-{n}"))))
        .collect();
    let breaking = async {
        until("a failed flush", || async { tampering.injected() }).await;
        tampering.end().await;
    };
    tokio::join!(breaking, all(hosts.iter_mut().map(async |host| host.survive(&[&served]).await)));
    for host in &hosts {
        host.check_story(&served).await;
    }
}

/// Row F14
#[tokio::test(flavor = "multi_thread")]
async fn slow_commits_do_not_lose_leases() {
    let cluster = Cluster::start(&[]).await;
    let Some(tampering) = Tampering::with(&cluster, "delay_exit=20000", "DELAYED").await else {
        eprintln!("skipped: no strace that may be used");
        return;
    };
    let (_place, served) = before(&cluster, "[turn]\nlease_ttl = '10s'\npoll_interval = '50ms'\n").await;
    let mut hosts: Vec<Survivor> = (0..20)
        .map(|n| Survivor::new(asking(["scripted/slow", "scripted/tools"][n % 2], &format!("chat-{n}"))))
        .collect();
    let begun = Instant::now();
    all(hosts.iter_mut().map(async |host| host.survive(&[&served]).await)).await;
    eprintln!("20 turns with commits of 20 ms took {:?}", begun.elapsed());
    assert!(tampering.injected());
    for host in &hosts {
        host.check_story(&served).await;
        assert_eq!(recoveries(&host.seen), []);
    }
    tampering.end().await;
}
