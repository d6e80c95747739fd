//! A server under attack: calls and turns of another client continue during the attack, and the effects of the attack
//! are reported.

use std::{
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use contextd::{
    auth::secret,
    model::derive::hex,
    pb::{self, event::Payload, session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, transport::Channel};

use super::wire::Tally;
use crate::harness::{
    TestDatabase,
    host::until,
    process::{Place, Served},
    requests::turn,
};

/// Variable with the duration of each attack in seconds. The default is 1; script/attacks sets 20.
const SECONDS: &str = "CONTEXTD_TEST_ATTACK_SECONDS";
/// Variable with the path of the contextd program to attack. The default is the program built for the tests.
const PROGRAM: &str = "CONTEXTD_TEST_ATTACK_PROGRAM";
/// Pause between two calls of the other client.
const PAUSE: Duration = Duration::from_millis(2);
/// MiB by which the server may grow during an attack, unless the attack sets another limit.
const GROWTH: usize = 64;
/// The throughput of the other client is compared if the attack lasts at least this long.
const FULL: Duration = Duration::from_secs(20);
/// The timeout of a probe, and the interval between probes.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN_PROBES: Duration = Duration::from_millis(100);
const VICTIM: &str = "scripted/brief";

/// A server, and a client that is not an attacker.
pub(super) struct Siege {
    name: &'static str,
    growth: usize,
    /// The port at which `/livez` is probed, if it is.
    admin: Option<u16>,
    /// The directory of the keys file, if callers need keys.
    files: Option<TempDir>,
    returns_to: Option<usize>,
    served: Served,
    client: Client,
    _place: Place,
    _database: TestDatabase,
}

/// The target of an attack.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    /// The time at which the attack ends.
    pub(super) until: Instant,
}

/// A client that is not an attacker.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) channel: Channel,
    pub(super) key: Option<String>,
}

impl Client {
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(key) = &self.key {
            let bearer = format!("Bearer {key}").parse().unwrap();
            request.metadata_mut().insert("authorization", bearer);
        }
        request
    }

    async fn turn(&self, session: &str) -> Result<(), Status> {
        let request = self.request(turn(session, VICTIM, "Hello"));
        let mut turns = TurnServiceClient::new(self.channel.clone());
        let mut stream = turns.execute_turn(request).await?.into_inner();
        let mut completed = false;
        while let Some(message) = stream.message().await? {
            let payload = message.event.and_then(|event| event.payload);
            completed |= matches!(payload, Some(Payload::TurnCompleted(_)));
        }
        assert!(completed, "the turn of {session} did not complete");
        Ok(())
    }

    async fn call(&self) -> Result<(), Status> {
        let request = self.request(pb::GetSessionRequest { session_id: "victim".to_owned() });
        let mut sessions = SessionServiceClient::new(self.channel.clone());
        sessions.get_session(request).await.map(drop)
    }
}

/// The latencies, turns and failures that the other client observed.
#[derive(Default)]
struct Experience {
    took: Duration,
    calls: Vec<Duration>,
    turns: usize,
    failures: Vec<String>,
}

impl Experience {
    fn turns_per_second(&self) -> f64 {
        let turns = u32::try_from(self.turns).unwrap();
        f64::from(turns) / self.took.as_secs_f64()
    }

    fn p99(&self) -> Duration {
        let mut calls = self.calls.clone();
        calls.sort_unstable();
        let at = calls.len() * 99 / 100;
        calls.get(at).copied().unwrap_or_default()
    }
}

/// The duration of an attack.
fn length() -> Duration {
    let seconds = std::env::var_os(SECONDS).and_then(|seconds| seconds.into_string().ok());
    Duration::from_secs(seconds.map_or(1, |seconds| seconds.parse().unwrap()))
}

/// The place of a server with these settings.
pub(super) fn place(settings: &str) -> Place {
    let brief = json!({ "steps": [{ "say": [{ "text": "Hello there." }] }] });
    let place = Place::new(settings).script("brief", &brief);
    match std::env::var_os(PROGRAM) {
        Some(program) => place.with_program(program),
        None => place,
    }
}

impl Siege {
    /// Starts a server with these settings.
    pub(super) async fn begin(name: &'static str, settings: &str) -> Self {
        let place = place(settings);
        let database = TestDatabase::new().await;
        let served = place.serve_over(&database).await;
        let channel = served.channel().await;
        let client = Client { channel, key: None };
        Self::of(name, place, database, served, client)
    }

    /// Wraps a running server and its other client.
    pub(super) fn of(name: &'static str, place: Place, database: TestDatabase, served: Served, client: Client) -> Self {
        Self {
            name,
            growth: GROWTH,
            admin: None,
            files: None,
            returns_to: None,
            served,
            client,
            _place: place,
            _database: database,
        }
    }

    /// A server that requires keys, with these settings of `[server]`. The other client belongs to another tenant than
    /// the attacker. Returns the key of the attacker, which has read access.
    pub(super) async fn guarded(name: &'static str, server: &str) -> (Self, String) {
        Self::guarded_from(name, server, "read").await
    }

    /// Like [`Self::guarded`], with this access for the key of the attacker. `settings` are settings of `[server]`,
    /// optionally followed by further tables.
    pub(super) async fn guarded_from(name: &'static str, settings: &str, access: &str) -> (Self, String) {
        let files = TempDir::new().unwrap();
        let keys = files.path().join("keys.toml");
        let mut entries = String::new();
        let [attacker, victim] = [("attacker", access), ("victim", "write")].map(|(tenant, access)| {
            let (key, hash) = secret::generate().unwrap();
            let hash = hex(&hash.0);
            entries +=
                &format!("[[keys]]\nname = '{tenant}'\ntenant = '{tenant}'\naccess = '{access}'\nsha256 = '{hash}'\n");
            key
        });
        fs::write(&keys, entries).unwrap();
        let admin = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let place = place(&format!(
            "[server]\nadmin_listen = '127.0.0.1:{admin}'\n{settings}\n\
             [auth]\nrequired = true\nkeys_file = '{}'\n",
            keys.display()
        ));
        let database = TestDatabase::new().await;
        let served = place.serve_over(&database).await;
        let client = Client { channel: served.channel().await, key: Some(victim) };
        let mut siege = Self::of(name, place, database, served, client);
        siege.admin = Some(admin);
        siege.files = Some(files);
        (siege, attacker)
    }

    /// Sets the number of MiB by which the server may grow.
    pub(super) fn growing(mut self, mib: usize) -> Self {
        self.growth = mib;
        self
    }

    /// After the attack, the server must release memory until it uses at most this many MiB more than before.
    pub(super) fn returning_to(mut self, mib: usize) -> Self {
        self.returns_to = Some(mib);
        self
    }

    /// A client with a key, on a separate connection.
    pub(super) async fn client_with(&self, key: &str) -> Client {
        Client { channel: self.served.channel().await, key: Some(key.to_owned()) }
    }

    /// Runs the attack, which ends at the time in its target.
    pub(super) async fn attacked<A>(self, attack: impl FnOnce(Target) -> A) -> Tally
    where
        A: Future<Output = Tally> + Send + 'static,
    {
        self.client.turn("victim").await.unwrap();
        let calm = self
            .live(async {
                sleep(length() / 2).await;
            })
            .await
            .1;
        let pid = self.served.pid();
        let before = resident(pid);
        let target = Target { address: self.served.address, until: Instant::now() + length() };
        let attack = tokio::spawn(attack(target));
        let ((tally, peak), besieged) = self
            .live(async {
                let (peak, tally) = peak(pid, attack).await;
                (tally.unwrap(), peak)
            })
            .await;
        self.client.turn("after").await.unwrap();
        let after = resident(pid);
        eprintln!(
            "{:<34} connections {:>5}, ended {:>5} ({}); resets {:>6}; RSS {} -> {} -> {} MiB; turns/s {:.0} then {:.0}; p99 {:.1} then {:.1} ms",
            self.name,
            tally.connections,
            tally.ended(),
            tally.ends_shown(),
            tally.resets,
            before,
            peak,
            after,
            calm.turns_per_second(),
            besieged.turns_per_second(),
            calm.p99().as_secs_f64() * 1e3,
            besieged.p99().as_secs_f64() * 1e3,
        );
        for experience in [&calm, &besieged] {
            assert_eq!(experience.failures, [""; 0], "of the other client");
        }
        if length() >= FULL {
            let (before, during) = (calm.turns_per_second(), besieged.turns_per_second());
            assert!(during * 10.0 >= before, "{during} turns/s after {before}");
            if self.admin.is_some() {
                let (before, during) = (calm.p99(), besieged.p99());
                assert!(during <= before * 5, "p99 {during:?} after {before:?}");
            }
        }
        let grown = peak.saturating_sub(before);
        assert!(grown <= self.growth, "it grew by {grown} MiB");
        if let Some(mib) = self.returns_to {
            let ended = Instant::now();
            until("the memory to be given back", || async { resident(pid) <= before + mib }).await;
            eprintln!("{:<34} gave its memory back within {:.1?}", self.name, ended.elapsed());
        }
        let said = self.served.log_text();
        assert!(!said.contains("panicked"), "{said}");
        self.served.stop().await;
        drop(self.files);
        tally
    }

    /// Runs the other client until `something` completes, and returns what the client observed.
    async fn live<T>(&self, something: impl Future<Output = T>) -> (T, Experience) {
        let stop = CancellationToken::new();
        let experience = Arc::new(Mutex::new(Experience::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(calls(self.client.clone(), Arc::clone(&experience), stop.clone()));
        tasks.spawn(turns(self.client.clone(), Arc::clone(&experience), stop.clone()));
        if let Some(admin) = self.admin {
            tasks.spawn(probes(admin, Arc::clone(&experience), stop.clone()));
        }
        let begun = Instant::now();
        let outcome = something.await;
        // A turn may take longer if other tests use the machine.
        until("the other client's turn", || async { experience.lock().unwrap().turns > 0 }).await;
        stop.cancel();
        tasks.join_all().await;
        let mut experience = std::mem::take(&mut *experience.lock().unwrap());
        experience.took = begun.elapsed();
        (outcome, experience)
    }
}

async fn calls(client: Client, experience: Arc<Mutex<Experience>>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let begun = Instant::now();
        let called = client.call().await;
        let took = begun.elapsed();
        {
            let mut experience = experience.lock().unwrap();
            experience.calls.push(took);
            experience.failures.extend(called.err().map(|it| it.to_string()));
        }
        sleep(PAUSE).await;
    }
}

async fn turns(client: Client, experience: Arc<Mutex<Experience>>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let ended = client.turn(&uuid::Uuid::now_v7().to_string()).await;
        let mut experience = experience.lock().unwrap();
        match ended {
            Ok(()) => experience.turns += 1,
            Err(status) => experience.failures.push(status.to_string()),
        }
    }
}

/// Probes `/livez`, each time on a new connection.
async fn probes(admin: u16, experience: Arc<Mutex<Experience>>, stop: CancellationToken) {
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).timeout(PROBE_PATIENCE).build().unwrap();
    while !stop.is_cancelled() {
        let answer = client.get(format!("http://127.0.0.1:{admin}/livez")).send();
        let failed = match answer.await {
            Ok(answer) => (!answer.status().is_success()).then(|| answer.status().to_string()),
            Err(error) => Some(format!("{error:?}")),
        };
        let failed = failed.map(|why| format!("/livez: {why}"));
        experience.lock().unwrap().failures.extend(failed);
        sleep(BETWEEN_PROBES).await;
    }
}

/// The maximum memory of a process during an attack, in MiB.
async fn peak<T>(pid: i32, attack: impl Future<Output = T>) -> (usize, T) {
    let mut ticks = interval(Duration::from_millis(20));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut peak = 0;
    tokio::pin!(attack);
    loop {
        peak = peak.max(resident(pid));
        tokio::select! {
            ended = &mut attack => return (peak, ended),
            _ = ticks.tick() => {}
        }
    }
}

/// The resident memory of a process in MiB. Returns 0 if the system does not report it.
fn resident(pid: i32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kib.unwrap_or_default() / 1024
}
