//! Measures what contextd adds to the time to the first token: a turn through its server compared with a direct call of
//! the same scripted model. As a lower bound, it also measures one round trip to the database and one commit.
//! `docs/benchmarks.md` explains the results.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

#[path = "place/slow.rs"]
mod slow;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use contextd::{
    context::estimate,
    model::{Contents, Generation, Prompt, Transcript},
    pb::{self, event::Payload, turn_service_client::TurnServiceClient},
    postgres::{Postgres, Settings},
    provider::{Chunk, Provider as _, scripted::Scripted},
};
use futures_util::StreamExt as _;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls, Statement};
use tonic::transport::Channel;

/// Rounds that are measured, and warm-up rounds before them.
const ROUNDS: usize = 400;
const WARM_UP: usize = 50;
/// What a fast machine may add in addition to its commit.
const ALLOWANCE: Duration = Duration::from_millis(1);
/// The model responds immediately, then produces a word every 2 ms.
const SCRIPT: &str = r#"{ "steps": [{ "say": [{ "text": "one two three four five six", "delay_ms": 2 }] }] }"#;

#[tokio::main]
async fn main() {
    // `cargo bench` passes `--bench`; `cargo test` only checks that the benchmark runs.
    let rounds = if std::env::args().any(|arg| arg == "--bench") { ROUNDS } else { 3 };
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let programs = measure("native", &place, None, rounds).await;
    match slow::slow_programs(&place, &programs) {
        Some(slow) => drop(measure("slow commits: each flush takes 1 ms more", &place, Some(slow), rounds).await),
        None => println!("\nslow commits: skipped, strace is not installed"),
    }
}

/// Runs all measurements on one cluster. Returns the directory of its programs.
async fn measure(profile: &str, place: &TempDir, programs: Option<PathBuf>, rounds: usize) -> PathBuf {
    let postgres = start_postgres(place, programs).await;
    let (floor, found) = Floor::new(&postgres).await;
    drop(Served::start(place, &postgres)); // runs the migrations
    let begun = Instant::now();
    let served = Served::start(place, &postgres);
    let started = begun.elapsed();
    let mut bench = Bench::new(&served, floor).await;
    for round in 0..WARM_UP.min(rounds) {
        bench.round(&format!("warm-{round}")).await;
    }
    bench.samples = Samples::default();
    for round in 0..rounds {
        bench.round(&format!("chat-{round}")).await;
    }
    let work = bench.work(&served, &found, rounds).await;
    println!("\n{profile} ({rounds} rounds)");
    bench.samples.print();
    println!("{work}");
    println!("  start until ready: {:.0} ms", millis(started));
    drop((bench, served));
    postgres.stop().await.unwrap();
    PathBuf::from(found.programs)
}

/// The samples of one profile, in the order in which a round takes them.
#[derive(Default)]
struct Samples {
    direct: Vec<Duration>,
    new: Vec<Duration>,
    existing: Vec<Duration>,
    select: Vec<Duration>,
    commit: Vec<Duration>,
}

impl Samples {
    fn print(&mut self) {
        for samples in [&mut self.direct, &mut self.new, &mut self.existing, &mut self.select, &mut self.commit] {
            samples.sort_unstable();
        }
        let Self { direct, new, existing, select, commit } = self;
        println!("  {:<44} {:>10} {:>10}", "", "p50", "p99");
        let rows = [
            ("direct call to first text", &*direct),
            ("turn of a new session to first text", new),
            ("turn of an existing session to first text", existing),
            ("floor: SELECT 1", select),
            ("floor: one row, one commit", commit),
        ];
        for (name, samples) in rows {
            println!("  {name:<44} {:>7.3} ms {:>7.3} ms", millis(share(samples, 50)), millis(share(samples, 99)));
        }
        for (name, turns) in [("new", new), ("existing", existing)] {
            let ratio = |percent| {
                let added = share(turns, percent).saturating_sub(share(direct, percent));
                added.as_secs_f64() / (share(commit, percent) + ALLOWANCE).as_secs_f64()
            };
            let name = format!("added / (commit + 1 ms), {name} session");
            println!("  {name:<44} {:>10.2} {:>10.2}", ratio(50), ratio(99));
        }
    }
}

fn share(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// The clients of a round.
struct Bench {
    turns: TurnServiceClient<Channel>,
    model: Scripted,
    prompt: Arc<Prompt>,
    floor: Floor,
    samples: Samples,
}

impl Bench {
    async fn new(served: &Served, floor: Floor) -> Self {
        let turns = TurnServiceClient::connect(format!("http://{}", served.address)).await.unwrap();
        let prompt = Prompt {
            model: "paced".to_owned(),
            system: Vec::new(),
            provider_tools: Vec::new(),
            transcript: Transcript::new(Vec::new()).close().unwrap(),
            contents: Contents::default(),
            tools: Vec::new(),
            max_output_tokens: None,
            generation: Generation::default(),
            size: estimate::count(0),
        };
        let model = Scripted::new("scripted", None).unwrap().with_script("paced", SCRIPT).unwrap();
        Self { turns, model, prompt: Arc::new(prompt), floor, samples: Samples::default() }
    }

    /// Takes one sample of each kind, so that other load on the machine affects all kinds alike.
    async fn round(&mut self, session: &str) {
        let direct = self.direct().await;
        self.samples.direct.push(direct);
        let new = self.turn(session).await;
        self.samples.new.push(new);
        let select = self.floor.time(&self.floor.select).await;
        self.samples.select.push(select);
        let existing = self.turn(session).await;
        self.samples.existing.push(existing);
        let commit = self.floor.time(&self.floor.insert).await;
        self.samples.commit.push(commit);
    }

    async fn direct(&self) -> Duration {
        let begun = Instant::now();
        let mut answer = self.model.call(Arc::clone(&self.prompt));
        assert!(matches!(answer.next().await, Some(Ok(Chunk::Text(_)))));
        let first = begun.elapsed();
        while answer.next().await.is_some() {}
        first
    }

    async fn turn(&mut self, session: &str) -> Duration {
        let text = pb::part::Content::Text("Hello".to_owned());
        let part = pb::Part { content: Some(text), ..pb::Part::default() };
        let request = pb::ExecuteTurnRequest {
            session_id: session.to_owned(),
            request_id: uuid::Uuid::now_v7().to_string(),
            input: Some(pb::InputMessage { parts: vec![part], ..pb::InputMessage::default() }),
            model: "scripted/paced".to_owned(),
            session: Some(pb::Session::default()),
            busy_policy: pb::BusyPolicy::Reject.into(),
            ..pb::ExecuteTurnRequest::default()
        };
        let begun = Instant::now();
        let mut stream = self.turns.execute_turn(request).await.unwrap().into_inner();
        let mut first = None;
        while let Some(message) = stream.message().await.unwrap() {
            if matches!(message.event.and_then(|event| event.payload), Some(Payload::TextDelta(_))) {
                first.get_or_insert_with(|| begun.elapsed());
            }
        }
        first.unwrap()
    }

    /// The CPU time of turns, without pauses between them and without the lower bound.
    async fn work(&mut self, served: &Served, found: &Found, rounds: usize) -> String {
        let processes = || {
            let backends = children(found.postmaster).into_iter().filter(|pid| *pid != found.backend).collect();
            [vec![served.child.id()], backends].map(|pids: Vec<u32>| pids.into_iter().filter_map(processor_time).sum())
        };
        let before: [Duration; 2] = processes();
        for round in 0..rounds {
            self.turn(&format!("work-{round}")).await;
        }
        let after: [Duration; 2] = processes();
        if after[0].is_zero() {
            return "  processor time per turn: skipped, no /proc".to_owned();
        }
        let turns = u32::try_from(rounds).unwrap();
        let [contextd, postgres] = [0, 1].map(|at| millis(after[at].saturating_sub(before[at]) / turns));
        format!("  processor time per turn: {contextd:.2} ms contextd, {postgres:.2} ms PostgreSQL")
    }
}

/// The lower bound for anything that uses this database: the same socket and driver.
struct Floor {
    client: Client,
    select: Statement,
    insert: Statement,
}

/// What the server reports about itself.
struct Found {
    programs: String,
    postmaster: u32,
    backend: u32,
}

impl Floor {
    async fn new(postgres: &Postgres) -> (Self, Found) {
        let (client, connection) = postgres.config(contextd::postgres::DATABASE).connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("create table if not exists floor (number bigint)").await.unwrap();
        let row = client
            .query_one("select setting, pg_backend_pid() from pg_config where name = 'BINDIR'", &[])
            .await
            .unwrap();
        let backend = u32::try_from(row.get::<_, i32>(1)).unwrap();
        let found = Found { programs: row.get(0), postmaster: parent(backend).unwrap_or_default(), backend };
        let select = client.prepare("select 1").await.unwrap();
        let insert = client.prepare("insert into floor values (1)").await.unwrap();
        (Self { client, select, insert }, found)
    }

    async fn time(&self, statement: &Statement) -> Duration {
        let begun = Instant::now();
        self.client.execute(statement, &[]).await.unwrap();
        begun.elapsed()
    }
}

/// A `contextd serve` process. Killed on drop.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(place: &TempDir, postgres: &Postgres) -> Self {
        let scripts = place.path().join("scripts");
        fs::create_dir_all(&scripts).unwrap();
        fs::write(scripts.join("paced.json"), SCRIPT).unwrap();
        let url = format!(
            "postgresql:///{}?host={}&user={}",
            contextd::postgres::DATABASE,
            postgres.socket_dir().display(),
            postgres.config(contextd::postgres::DATABASE).get_user().unwrap()
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_contextd"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--migrate", "--log", "warn", "--database-url", &url]);
        command.arg("--script-dir").arg(&scripts);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut ready = String::new();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut stdout, &mut ready).unwrap();
        let address = ready.trim().strip_prefix("contextd listens on ").unwrap().to_owned();
        Self { child, address }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait()); // it may have exited already
    }
}

/// Starts a cluster with contextd's own settings: a commit is on disk before it is acknowledged.
async fn start_postgres(place: &TempDir, programs: Option<PathBuf>) -> Postgres {
    let mut settings = Settings::new(place.path().join("data"), env!("CARGO_BIN_EXE_contextd"));
    settings.embedded.bin_dir = programs;
    settings.search_path = std::env::var_os("PATH").unwrap_or_default();
    settings.cache_dir = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/contextd"));
    Postgres::start(settings, &|_| {}).await.unwrap()
}

/// The fields after the name in `/proc/PID/stat`.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split_whitespace().map(str::to_owned).collect())
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

fn children(of: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| of != 0 && parent(*pid) == Some(of)).collect()
}

/// User and system time; `/proc` counts ticks of 10 ms.
fn processor_time(pid: u32) -> Option<Duration> {
    let stat = stat(pid)?;
    let ticks = stat.get(11)?.parse::<u64>().ok()? + stat.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}
