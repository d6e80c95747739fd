//! A server under attack: another client's calls and turns go on meanwhile, and what the attack costs is
//! reported.

use std::{
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use contextd::pb::{
    self, event::Payload, session_service_client::SessionServiceClient,
    turn_service_client::TurnServiceClient,
};
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
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

/// Seconds that each attack lasts; 1 unless it is set (script/attacks sets 20).
const SECONDS: &str = "CONTEXTD_TEST_ATTACK_SECONDS";
/// The contextd that is attacked, unless it is that of the tests' own build.
const PROGRAM: &str = "CONTEXTD_TEST_ATTACK_PROGRAM";
/// Between two calls of the other client.
const PAUSE: Duration = Duration::from_millis(2);
/// MiB by which the server may grow during an attack, unless the attack says otherwise.
const GROWTH: usize = 64;
/// From this length on, what the other client gets done is compared.
const FULL: Duration = Duration::from_secs(20);
const VICTIM: &str = "scripted/brief";

/// A server, and another client of it.
pub(super) struct Siege {
    name: &'static str,
    growth: usize,
    served: Served,
    client: Client,
    _place: Place,
    _database: TestDatabase,
}

/// What an attack is aimed at.
#[derive(Clone, Copy)]
pub(super) struct Target {
    /// Where the server listens.
    pub(super) address: SocketAddr,
    /// When the attack ends.
    pub(super) until: Instant,
}

/// A client that attacks nothing.
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
        let request = self.request(pb::GetSessionRequest {
            session_id: "victim".to_owned(),
        });
        let mut sessions = SessionServiceClient::new(self.channel.clone());
        sessions.get_session(request).await.map(drop)
    }
}

/// What the other client experienced.
#[derive(Default)]
struct Experience {
    calls: Vec<Duration>,
    turns: usize,
    failures: Vec<String>,
}

impl Experience {
    fn p99(&self) -> Duration {
        let mut calls = self.calls.clone();
        calls.sort_unstable();
        let at = calls.len() * 99 / 100;
        calls.get(at).copied().unwrap_or_default()
    }
}

/// How long an attack lasts.
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
    /// A server with these settings.
    pub(super) async fn begin(name: &'static str, settings: &str) -> Self {
        let place = place(settings);
        let database = TestDatabase::new().await;
        let served = place.serve_over(&database).await;
        let channel = served.channel().await;
        let client = Client { channel, key: None };
        Self::of(name, place, database, served, client)
    }

    /// A server that was started, and its other client.
    pub(super) fn of(
        name: &'static str,
        place: Place,
        database: TestDatabase,
        served: Served,
        client: Client,
    ) -> Self {
        Self {
            name,
            growth: GROWTH,
            served,
            client,
            _place: place,
            _database: database,
        }
    }

    /// The server may grow by so many MiB.
    pub(super) fn growing(mut self, mib: usize) -> Self {
        self.growth = mib;
        self
    }

    /// Attacks; the attack ends by itself at its target's time.
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
        let target = Target {
            address: self.served.address,
            until: Instant::now() + length(),
        };
        let attack = tokio::spawn(attack(target));
        let ((tally, peak), besieged) = self
            .live(async {
                let peak = peak(pid, target.until).await;
                (attack.await.unwrap(), peak)
            })
            .await;
        self.client.turn("after").await.unwrap();
        let after = resident(pid);
        eprintln!(
            "{:<34} connections {:>5}, ended {:>5} ({}); resets {:>6}; RSS {} -> {} -> {} MiB; turns {} then {}; p99 {:.1} then {:.1} ms",
            self.name,
            tally.connections,
            tally.ended(),
            tally.ends_shown(),
            tally.resets,
            before,
            peak,
            after,
            calm.turns,
            besieged.turns,
            calm.p99().as_secs_f64() * 1e3,
            besieged.p99().as_secs_f64() * 1e3,
        );
        for experience in [&calm, &besieged] {
            assert_eq!(experience.failures, [""; 0], "of the other client");
        }
        if length() >= FULL {
            // Twice as long: at least a tenth of the rate before.
            let (calm, besieged) = (calm.turns, besieged.turns);
            assert!(besieged * 5 >= calm, "{besieged} turns after {calm}");
        }
        let grown = peak.saturating_sub(before);
        assert!(grown <= self.growth, "it grew by {grown} MiB");
        let said = self.served.said();
        assert!(!said.contains("panicked"), "{said}");
        self.served.stop().await;
        tally
    }

    /// What the other client experiences while something happens.
    async fn live<T>(&self, something: impl Future<Output = T>) -> (T, Experience) {
        let stop = CancellationToken::new();
        let experience = Arc::new(Mutex::new(Experience::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(calls(
            self.client.clone(),
            Arc::clone(&experience),
            stop.clone(),
        ));
        tasks.spawn(turns(
            self.client.clone(),
            Arc::clone(&experience),
            stop.clone(),
        ));
        let outcome = something.await;
        // A machine that is busy with other tests may need longer for a turn.
        until("the other client's turn", || async {
            experience.lock().unwrap().turns > 0
        })
        .await;
        stop.cancel();
        tasks.join_all().await;
        let experience = std::mem::take(&mut *experience.lock().unwrap());
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
            experience
                .failures
                .extend(called.err().map(|it| it.to_string()));
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

/// The most memory that a process holds until then, in MiB.
async fn peak(pid: i32, until: Instant) -> usize {
    let mut ticks = interval(Duration::from_millis(20));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut peak = 0;
    let end = sleep_until(until);
    tokio::pin!(end);
    loop {
        peak = peak.max(resident(pid));
        tokio::select! {
            () = &mut end => return peak,
            _ = ticks.tick() => {}
        }
    }
}

/// The memory that a process holds, in MiB; 0 where the system does not say.
fn resident(pid: i32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kib.unwrap_or_default() / 1024
}
