//! Measures the cost of the queue: enqueuing a message compared with a plain insert, with and without wake-ups, and how
//! soon a turn on another replica sees a message. `docs/benchmarks.md` explains the results.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

mod place;
#[path = "place/slow.rs"]
mod slow;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use contextd::{
    codec,
    config::DatabaseConfig,
    model::{Delivery, InputMessage, MessageId, Part, Role, SessionId, SessionKey, TenantId, command::Idempotency},
    pb::{
        self, event::Payload, queue_service_client::QueueServiceClient, session_service_client::SessionServiceClient,
        turn_service_client::TurnServiceClient,
    },
    postgres::{DATABASE, Postgres},
    store::{Database, Store, queue::NewQueued},
};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use futures_util::future::join_all;
use place::{Served, turn};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};
use tonic::transport::Channel;

/// Rounds of each comparison, and messages observed on another replica; one and a few under `cargo test`, which only
/// checks that the benchmark runs.
const ROUNDS: usize = 40;
const SEEN: usize = 100;
/// Number of connections, or of concurrent calls.
const CONCURRENCY: usize = 8;
/// Messages that each of them enqueues per round, in a separate session.
const MESSAGES: usize = 40;
/// The text of a message.
const WORDS: &str = "also look at the tests, and tell me which of them are slow";
/// How long wake-ups are batched, the same as in the server.
const GATHER: Duration = Duration::from_millis(10);
/// The poll interval of a replica that receives no wake-ups.
const POLL: Duration = Duration::from_millis(250);
const LISTEN_SETTINGS: &str = "[turn]\npoll_interval = '250ms'\n[database]\npool_size = 8\n";
const NO_LISTEN_SETTINGS: &str =
    "[turn]\npoll_interval = '250ms'\n[database]\npool_size = 8\ntransaction_pooler = true\n";
/// Settings that connections through a pooler cannot set themselves.
const ROLE: &str = "alter role current_user set enable_seqscan = off; alter role current_user set statement_timeout = '10s';
    alter role current_user set lock_timeout = '2s'; alter role current_user set idle_in_transaction_session_timeout = '5s'";
/// A model that produces text until it is stopped.
const SCRIPT: &str = r#"{ "steps": [
    { "when": { "user_contains": "Stop" }, "say": [{ "text": "Fine." }] },
    { "say": [{ "repeat": { "text": "word ", "times": 100000 }, "delay_ms": 20 }] }
] }"#;

#[tokio::main]
async fn main() {
    let whole = std::env::args().any(|arg| arg == "--bench");
    let (rounds, seen) = if whole { (ROUNDS, SEEN) } else { (1, 2) };
    let place = place::directory();
    let programs = measure("native", &place, None, rounds, seen).await;
    match slow::slow_programs(&place, &programs) {
        Some(slow) => {
            drop(measure("slow commits: each flush takes 1 ms more", &place, Some(slow), rounds, seen).await);
        }
        None => println!("\nslow commits: skipped, strace is not installed"),
    }
}

/// Runs all measurements on one cluster. Returns the directory of its programs.
async fn measure(profile: &str, place: &TempDir, programs: Option<PathBuf>, rounds: usize, seen: usize) -> PathBuf {
    let postgres = place::start_postgres_of(place, programs).await;
    let admin = connect(&postgres).await;
    admin.batch_execute(ROLE).await.unwrap();
    let owner = Served::start(place, &postgres, SCRIPT, LISTEN_SETTINGS);
    let deaf = Served::start(place, &postgres, SCRIPT, NO_LISTEN_SETTINGS);
    let other = Served::start(place, &postgres, SCRIPT, LISTEN_SETTINGS);
    let bench = Bench::new(&postgres, &other).await;
    println!("\n{profile} ({rounds} rounds of {CONCURRENCY} x {MESSAGES} messages, {seen} messages seen elsewhere)");
    bench.costs(profile, rounds).await;
    for (name, owner, percent, aim) in [
        ("enqueue to seen, with LISTEN, p50", &owner, 50, Duration::from_millis(15)),
        ("enqueue to seen, without it, p99", &deaf, 99, POLL),
    ] {
        let samples = bench.seen(owner, &format!("{profile} {percent}"), seen).await;
        let p50 = share(&samples, 50);
        let p99 = share(&samples, 99);
        println!("  {name:<40} p50 {p50:>10.2?}   p99 {p99:>10.2?}   aim {aim:>10.2?}");
    }
    let programs: String = admin.query_one(BINDIR, &[]).await.unwrap().get(0);
    drop((bench, admin, owner, deaf, other));
    postgres.stop().await.unwrap();
    PathBuf::from(programs)
}

async fn connect(postgres: &Postgres) -> Client {
    let (client, connection) = postgres.config(DATABASE).connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

const BINDIR: &str = "select setting from pg_config where name = 'BINDIR'";

/// A plain insert of the same row into a table with the same columns and indexes.
const RAW: &str =
    "insert into raw_queue (tenant_id, session_id, message_id, body, request_id) values ($1, $2, $3, $4, $5)";

/// A connection pool like the store's.
fn pool(postgres: &Postgres) -> Pool {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(postgres.config(DATABASE), NoTls, recycling);
    Pool::builder(manager).max_size(CONCURRENCY).build().unwrap()
}

/// How a message is enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// As a plain row.
    Raw,
    /// By the server's transaction, in this process.
    Transaction,
    /// By the server's transaction, with a wake-up for each message.
    Woken,
    /// By a call to the server.
    Call,
}

/// The connections and clients of a round.
struct Bench {
    raw: Pool,
    store: Store,
    queues: Vec<QueueServiceClient<Channel>>,
    sessions: SessionServiceClient<Channel>,
    body: Vec<u8>,
    due: Arc<Mutex<BTreeSet<String>>>,
}

impl Bench {
    async fn new(postgres: &Postgres, served: &Served) -> Self {
        let config = DatabaseConfig {
            pool_size: CONCURRENCY,
            acquire_timeout: Duration::from_secs(10),
            ..DatabaseConfig::default()
        };
        let lease_ttl = Duration::from_secs(15);
        let database = Database::new(&postgres.config(DATABASE), &config, lease_ttl);
        let store = Store::new(database.unwrap(), "bench", lease_ttl);
        let table = "create table if not exists raw_queue (like queue including all)";
        connect(postgres).await.batch_execute(table).await.unwrap();
        let connect = || async { Channel::from_shared(served.url()).unwrap().connect().await.unwrap() };
        let queues = join_all((0..CONCURRENCY).map(|_| async { QueueServiceClient::new(connect().await) })).await;
        let sessions = SessionServiceClient::new(connect().await);
        let message = InputMessage::new(Role::User, vec![Part::text(WORDS)]);
        Self { raw: pool(postgres), store, queues, sessions, body: codec::queue::encode(&message), due: Arc::default() }
    }

    /// Compares messages per second; each round measures all ways.
    async fn costs(&self, profile: &str, rounds: usize) {
        let all = [How::Raw, How::Transaction, How::Woken, How::Call];
        let mut rates = all.map(|_| Vec::with_capacity(rounds));
        let name: String = profile.chars().filter(char::is_ascii_alphanumeric).collect();
        for round in 0..=rounds {
            for (how, rates) in all.iter().zip(&mut rates) {
                let rate = self.round(&format!("{name}-{round}-{how:?}"), *how).await;
                // The first round is a warm-up.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        for rates in &mut rates {
            rates.sort_unstable_by(f64::total_cmp);
        }
        let [raw, transaction, woken, call] = rates.map(|rates| rates[rates.len() / 2]);
        let transaction_aim = if profile == "native" { 0.5 } else { 0.9 };
        for (name, rate, beside, aim) in [
            ("raw insert", raw, raw, None),
            ("transaction / raw insert", transaction, raw, Some(transaction_aim)),
            ("EnqueueMessage / raw insert", call, raw, None),
            ("transaction with / without wake-ups", woken, transaction, Some(0.9)),
        ] {
            let aim = aim.map(|aim| format!("   aim {aim:.1}")).unwrap_or_default();
            println!("  {name:<40} {rate:>8.0}/s   ratio {:.2}{aim}", rate / beside);
        }
    }

    /// Messages per second.
    async fn round(&self, name: &str, how: How) -> f64 {
        let sessions: Vec<String> = (0..CONCURRENCY).map(|n| format!("{name}-{n}")).collect();
        for session_id in &sessions {
            let session = pb::Session { session_id: session_id.clone(), ..pb::Session::default() };
            let request = pb::CreateSessionRequest { session: Some(session), request_id: String::new() };
            self.sessions.clone().create_session(request).await.unwrap();
        }
        let waking = (how == How::Woken).then(|| self.wake());
        let begun = Instant::now();
        join_all(sessions.iter().enumerate().map(|(n, session)| async move {
            for _ in 0..MESSAGES {
                self.put(n, session, how).await;
            }
        }))
        .await;
        let took = begun.elapsed();
        if let Some(waking) = waking {
            waking.abort();
        }
        (CONCURRENCY * MESSAGES) as f64 / took.as_secs_f64()
    }

    async fn put(&self, n: usize, session: &str, how: How) {
        let id = uuid::Uuid::now_v7().to_string();
        match how {
            How::Raw => self.insert(session, &id).await,
            How::Transaction => self.enqueue(session, &id).await,
            How::Woken => {
                self.enqueue(session, &id).await;
                self.due.lock().unwrap().insert(format!("news default {session}"));
            }
            How::Call => {
                let text = pb::part::Content::Text(WORDS.to_owned());
                let part = pb::Part { content: Some(text), ..pb::Part::default() };
                let request = pb::EnqueueMessageRequest {
                    session_id: session.to_owned(),
                    request_id: id,
                    message: Some(pb::InputMessage { parts: vec![part], ..pb::InputMessage::default() }),
                    ..pb::EnqueueMessageRequest::default()
                };
                self.queues[n].clone().enqueue_message(request).await.unwrap();
            }
        }
    }

    async fn insert(&self, session: &str, id: &str) {
        let client = self.raw.get().await.unwrap();
        let insert = client.prepare_cached(RAW).await.unwrap();
        client.execute(&insert, &[&"default", &session, &id, &self.body, &id]).await.unwrap();
    }

    async fn enqueue(&self, session: &str, id: &str) {
        let key = SessionKey::new(TenantId::new("default"), SessionId::new(session));
        let idempotency = Idempotency { request: Some(contextd::model::RequestId::new(id)), hash: "hash".to_owned() };
        let new = NewQueued {
            blobs: &[],
            message: &MessageId::new(id),
            body: &self.body,
            delivery: Delivery::Asap,
            starts_turn: false,
            execute: None,
            ttl: None,
            limit: 100,
            idempotency: &idempotency,
        };
        self.store.enqueue(&key, &new, None).await.unwrap();
    }

    /// Sends pending wake-ups every few milliseconds, as each replica does; the three servers listen.
    fn wake(&self) -> tokio::task::JoinHandle<()> {
        let store = self.store.clone();
        let due = Arc::clone(&self.due);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(GATHER).await;
                let due: Vec<String> = std::mem::take(&mut *due.lock().unwrap()).into_iter().collect();
                if !due.is_empty() {
                    store.notify(&due).await.unwrap();
                }
            }
        })
    }

    /// Times from the acknowledgement by one replica until a client of another replica sees its turn stop for the
    /// message, sorted.
    async fn seen(&self, owner: &Served, name: &str, times: usize) -> Vec<Duration> {
        let mut turns = TurnServiceClient::connect(owner.url()).await.unwrap();
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let mut samples = Vec::new();
        for n in 0..times {
            let session = format!("seen-{name}-{n}");
            let mut stream = turns.execute_turn(turn(&session)).await.unwrap().into_inner();
            let mut begun = None;
            while let Some(message) = stream.message().await.unwrap() {
                match message.event.and_then(|event| event.payload) {
                    Some(Payload::TextDelta(_)) if begun.is_none() => {
                        // Spread the messages over the interval between two polls.
                        tokio::time::sleep(POLL.mul_f64(n as f64 / times as f64)).await;
                        self.interrupt(&session).await;
                        begun = Some(Instant::now());
                    }
                    Some(Payload::TurnCancelled(_)) => samples.push(begun.unwrap().elapsed()),
                    _ => {}
                }
            }
        }
        assert_eq!(samples.len(), times);
        samples.sort_unstable();
        samples
    }

    async fn interrupt(&self, session: &str) {
        let part = pb::Part { content: Some(pb::part::Content::Text("Stop".to_owned())), ..pb::Part::default() };
        let request = pb::EnqueueMessageRequest {
            session_id: session.to_owned(),
            message: Some(pb::InputMessage { parts: vec![part], ..pb::InputMessage::default() }),
            delivery: pb::Delivery::Interrupt.into(),
            ..pb::EnqueueMessageRequest::default()
        };
        self.queues[0].clone().enqueue_message(request).await.unwrap();
    }
}

fn share(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}
