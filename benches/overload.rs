//! Measures a server under overload: three times as many turns as it completes at its peak, and a tenant that exceeds
//! its rate limit in parallel with one that does not. `docs/benchmarks.md` explains the results. The servers are
//! separate processes; this process runs their clients.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

#[path = "place/callers.rs"]
mod callers;
mod place;
#[path = "place/processor.rs"]
mod processor;

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use callers::{CONNECTIONS, Calling, Key, closed_loop, connect, keys, run};
use contextd::pb::{self, session_service_client::SessionServiceClient};
use place::Served;
use processor::{Processor, Used};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code, Status,
    service::Routes,
    transport::{Endpoint, Server},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

/// Each turn produces a short text immediately.
const SCRIPT: &str = r#"{ "steps": [{ "say": [{ "text": "one two three four five six" }] }] }"#;
/// Numbers of concurrent clients that are tried to find the peak.
const CLIENTS: [usize; 3] = [8, 16, 32];
/// The rate of turns under overload, relative to the peak.
const OVERLOAD: f64 = 3.0;
/// Rounds of each measurement: a peak and an overload, or runs with and without the burst, alternating.
const ROUNDS: usize = 5;
/// Turns per second of the calm tenant.
const CALM: f64 = 40.0;
/// Requests per second that the busy tenant may send, and that it sends.
const LIMIT: u32 = 50;
const BURST: f64 = 1_000.0;
/// The argument that makes this program the bare server.
const BARE: &str = "--bare-server";

/// The duration of each measurement.
#[derive(Clone, Copy)]
struct Lengths {
    search: Duration,
    peak: Duration,
    overload: Duration,
    run: Duration,
}

#[tokio::main]
async fn main() {
    if std::env::args().any(|arg| arg == BARE) {
        return refuse_everything().await;
    }
    // `cargo bench` passes `--bench`; `cargo test` only checks that the benchmark runs.
    let seconds = Duration::from_secs;
    let lengths = if std::env::args().any(|arg| arg == "--bench") {
        Lengths { search: seconds(3), peak: seconds(5), overload: seconds(8), run: seconds(18) }
    } else {
        let short = Duration::from_millis(200);
        Lengths { search: short, peak: short, overload: short, run: short }
    };
    let begun = Instant::now();
    overload(lengths).await;
    burst(lengths).await;
    println!("\n{:.0} s in total", begun.elapsed().as_secs_f64());
}

/// Counts of call outcomes.
#[derive(Default)]
struct Outcomes {
    done: AtomicU64,
    refused: AtomicU64,
    failed: Mutex<Vec<String>>,
    took: Mutex<Vec<Duration>>,
}

impl Outcomes {
    fn note(&self, outcome: Result<(), Status>, took: Duration) {
        match outcome {
            Ok(()) => {
                self.done.fetch_add(1, Relaxed);
                self.took.lock().unwrap().push(took);
            }
            Err(status) if is_refusal(&status) => drop(self.refused.fetch_add(1, Relaxed)),
            Err(status) => self.failed.lock().unwrap().push(status.to_string()),
        }
    }

    fn p99(&self) -> f64 {
        let mut took = self.took.lock().unwrap().clone();
        took.sort_unstable();
        let at = took.len() * 99 / 100;
        took.get(at).copied().unwrap_or_default().as_secs_f64() * 1e3
    }
}

/// Whether a call was refused. The bare server has no methods, so it returns another status.
fn is_refusal(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::ResourceExhausted | Code::Unimplemented)
}

/// Starts calls at a fixed rate, regardless of their duration, and waits for the last of them.
async fn open_loop<F: Future<Output = Result<(), Status>> + Send + 'static>(
    per_second: f64,
    length: Duration,
    outcomes: &Arc<Outcomes>,
    call: impl Fn(usize) -> F,
) {
    let begun = Instant::now();
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut tasks = JoinSet::new();
    let mut calls = 0;
    while begun.elapsed() < length {
        ticks.tick().await;
        while f64::from(calls) < begun.elapsed().as_secs_f64() * per_second {
            let call = call(calls as usize);
            let outcomes = Arc::clone(outcomes);
            calls += 1;
            tasks.spawn(async move {
                let begun = Instant::now();
                let outcome = call.await;
                outcomes.note(outcome, begun.elapsed());
            });
        }
    }
    tasks.join_all().await;
}

/// A port that is free.
async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

async fn scrape(port: u16) -> String {
    let answer = reqwest::get(format!("http://127.0.0.1:{port}/metrics")).await;
    answer.unwrap().text().await.unwrap()
}

/// Histogram buckets of the server's refusals of a method: cumulative counts up to each bound in seconds.
fn refusals(scrape: &str) -> Vec<(f64, f64)> {
    let mut buckets: Vec<(f64, f64)> = Vec::new();
    let series = scrape.lines().filter(|line| {
        let of = |word| line.contains(word);
        of("rpc_server_call_duration_seconds_bucket")
            && of("ExecuteTurn")
            && (of("\"UNAVAILABLE\"") || of("\"RESOURCE_EXHAUSTED\""))
    });
    for line in series {
        let (_, bound) = line.split_once("le=\"").unwrap();
        let bound = bound.split('"').next().unwrap().parse().unwrap_or(f64::INFINITY);
        let count: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        match buckets.iter_mut().find(|(known, _)| *known == bound) {
            Some((_, known)) => *known += count,
            None => buckets.push((bound, count)),
        }
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets
}

/// The p99 in ms: the bound of the first bucket that includes 99 % of the values.
fn p99(buckets: &[(f64, f64)]) -> f64 {
    let all = buckets.last().map_or(0.0, |(_, count)| *count);
    let of = buckets.iter().find(|(_, count)| *count >= all * 0.99);
    of.map_or(0.0, |(bound, _)| bound * 1e3)
}

/// Serves no methods, to measure the minimum cost of a refusal with the same framework. Exits with its parent, which
/// holds its standard input.
async fn refuse_everything() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    let parent = tokio::task::spawn_blocking(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    });
    Server::builder()
        .add_routes(Routes::default())
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
            let _ = parent.await;
        })
        .await
        .unwrap();
}

/// The bare server in a separate process.
struct Bare {
    child: Child,
    channels: Vec<Calling>,
}

impl Bare {
    async fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(BARE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut stdout, &mut address).unwrap();
        let endpoint = Endpoint::from_shared(format!("http://{}", address.trim())).unwrap();
        let channels = connect(endpoint, &Key::default()).await;
        Self { child, channels }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait()); // it may have exited already
    }
}

/// The setup of an overload measurement.
struct Overload {
    served: Served,
    admin: u16,
    channels: Vec<Calling>,
    processor: Processor,
    /// Number of concurrent clients at the peak.
    clients: usize,
}

/// The results of one overload.
struct Overloaded {
    goodput: f64,
    /// The p99 of refusals in ms, from the server's histogram.
    refusal: f64,
    used: Used,
    took: f64,
    outcomes: Arc<Outcomes>,
    health: Arc<Outcomes>,
}

impl Overload {
    async fn start(place: &Path, served: Served, admin: u16, length: Duration) -> Self {
        let channels = connect(served.endpoint(), &Key::default()).await;
        closed_loop(&channels, CLIENTS[0], length).await;
        println!("\npeak, by concurrent clients");
        let mut best = (0.0, CLIENTS[0]);
        for clients in CLIENTS {
            let rate = closed_loop(&channels, clients, length).await;
            println!("  {clients:>4} {rate:>10.0} turns/s");
            if rate > best.0 {
                best = (rate, clients);
            }
        }
        let processor = Processor::of(served.child.id(), &place.join("data"));
        Self { served, admin, channels, processor, clients: best.1 }
    }

    async fn peak(&self, length: Duration) -> (f64, Used) {
        let before = self.processor.used();
        let rate = closed_loop(&self.channels, self.clients, length).await;
        (rate, self.processor.used() - before)
    }

    /// Starts turns at a fixed rate, with health checks in parallel.
    async fn at_rate(&self, per_second: f64, length: Duration) -> Overloaded {
        let outcomes = Arc::new(Outcomes::default());
        let health = Arc::new(Outcomes::default());
        let refused_before = refusals(&scrape(self.admin).await);
        let used_before = self.processor.used();
        let begun = Instant::now();
        let calls = open_loop(per_second, length, &outcomes, |n| {
            let channel = self.channels[n % CONNECTIONS].clone();
            async move { run(channel).await.map(drop) }
        });
        let probes = open_loop(20.0, length, &health, |_| {
            let mut health = HealthClient::new(self.channels[0].clone());
            async move {
                let checked = health.check(HealthCheckRequest::default()).await;
                checked.map(drop)
            }
        });
        tokio::join!(calls, probes);
        let took = begun.elapsed().as_secs_f64();
        let used = self.processor.used() - used_before;
        let refused = since(refusals(&scrape(self.admin).await), &refused_before);
        Overloaded {
            goodput: outcomes.done.load(Relaxed) as f64 / took,
            refusal: p99(&refused),
            used,
            took,
            outcomes,
            health,
        }
    }

    /// Turns that clients complete as at the peak while the bare server refuses the surplus.
    async fn floor(&self, bare: &Bare, surplus: f64, length: Duration) -> (f64, Used) {
        let refused = Arc::new(Outcomes::default());
        let before = self.processor.used();
        let surplus = open_loop(surplus, length, &refused, |n| {
            let channel = bare.channels[n % CONNECTIONS].clone();
            async move { run(channel).await.map(drop) }
        });
        let turns = closed_loop(&self.channels, self.clients, length);
        let (rate, ()) = tokio::join!(turns, surplus);
        (rate, self.processor.used() - before)
    }
}

/// The difference to earlier counts. A series that did not exist before counts from zero.
fn since(mut now: Vec<(f64, f64)>, before: &[(f64, f64)]) -> Vec<(f64, f64)> {
    for bucket in &mut now {
        let earlier = before.iter().find(|(bound, _)| *bound == bucket.0);
        bucket.1 -= earlier.map_or(0.0, |(_, count)| *count);
    }
    now
}

async fn overload(lengths: Lengths) {
    let place = place::directory();
    let postgres = place::start_postgres(&place).await;
    let admin = free_port().await;
    let settings = format!("[server]\nadmin_listen = '127.0.0.1:{admin}'\n");
    let served = Served::start(&place, &postgres, SCRIPT, &settings);
    let overload = Overload::start(place.path(), served, admin, lengths.search).await;
    let bare = Bare::start().await;
    let [mut ratios, mut floors, mut refusals, mut turns, mut health] = [const { Vec::new() }; 5];
    println!("\n{OVERLOAD} times the peak, {ROUNDS} rounds; seconds of processor time: server, PostgreSQL, clients");
    for _ in 0..ROUNDS {
        let (peak, used) = overload.peak(lengths.peak).await;
        println!("  peak {peak:>5.0} turns/s                              {used}");
        let over = overload.at_rate(peak * OVERLOAD, lengths.overload).await;
        let failed = over.outcomes.failed.lock().unwrap().clone();
        let unanswered = over.health.failed.lock().unwrap().len() as u64 + over.health.refused.load(Relaxed);
        println!(
            "    overload {:>5.0} turns/s finished, {} refused, {:.1} s {}",
            over.goodput,
            over.outcomes.refused.load(Relaxed),
            over.took,
            over.used
        );
        println!(
            "      p99: refusal {:.0} ms, turn {:.0} ms, health {:.0} ms; {unanswered} health checks without a response, {} failed otherwise {:?}",
            over.refusal,
            over.outcomes.p99(),
            over.health.p99(),
            failed.len(),
            failed.first()
        );
        let surplus = peak * (OVERLOAD - 1.0);
        let (floor, used) = overload.floor(&bare, surplus, lengths.peak).await;
        println!("    a bare server refuses the surplus {floor:>5.0} turns/s {used}");
        ratios.push(over.goodput / peak);
        floors.push(floor / peak);
        refusals.push(over.refusal);
        turns.push(over.outcomes.p99());
        health.push(over.health.p99());
    }
    println!("medians");
    println!("  goodput / peak             {:>8.2}  (aim 0.9)", median(ratios));
    println!("  with a bare server, / peak {:>8.2}", median(floors));
    println!("  p99 of a refusal, server   {:>5.0} ms  (aim 5)", median(refusals));
    println!("  p99 of a turn              {:>5.0} ms", median(turns));
    println!("  p99 of health              {:>5.0} ms", median(health));
    drop(overload.served);
    postgres.stop().await.unwrap();
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The p99 of the calm tenant's turns, with and without a busy tenant.
async fn calm_tenant(calm: &[Calling], busy: Option<&[Calling]>, length: Duration) -> (f64, u64) {
    let outcomes = Arc::new(Outcomes::default());
    let others = Arc::new(Outcomes::default());
    let calls = open_loop(CALM, length, &outcomes, |n| {
        let channel = calm[n % CONNECTIONS].clone();
        async move { run(channel).await.map(drop) }
    });
    let burst = async {
        let Some(busy) = busy else { return };
        open_loop(BURST, length, &others, |n| {
            let mut sessions = SessionServiceClient::new(busy[n % CONNECTIONS].clone());
            async move {
                let list = sessions.list_sessions(pb::ListSessionsRequest::default());
                list.await.map(drop)
            }
        })
        .await;
    };
    tokio::join!(calls, burst);
    assert!(outcomes.failed.lock().unwrap().is_empty());
    (outcomes.p99(), others.refused.load(Relaxed))
}

async fn burst(lengths: Lengths) {
    let place = place::directory();
    let postgres = place::start_postgres(&place).await;
    let (file, [calm, busy]) = keys(&place, ["calm", "busy"]);
    let settings =
        format!("[auth]\nrequired = true\nkeys_file = '{}'\n[limits]\nrequests_per_second = {LIMIT}\n", file.display());
    let served = Served::start(&place, &postgres, SCRIPT, &settings);
    let calm = connect(served.endpoint(), &calm).await;
    let busy = connect(served.endpoint(), &busy).await;
    calm_tenant(&calm, Some(&busy), lengths.run / 4).await;
    let mut ratios = Vec::new();
    println!("\na burst of {BURST} requests/s by a tenant with a limit of {LIMIT}");
    for _ in 0..ROUNDS {
        let (without, _) = calm_tenant(&calm, None, lengths.run).await;
        sleep(lengths.run / 36).await;
        let (with, refused) = calm_tenant(&calm, Some(&busy), lengths.run).await;
        sleep(lengths.run / 36).await;
        println!(
            "  p99 of the other tenant's turns {without:>6.1} ms, with the burst {with:>6.1} ms ({refused} refused)"
        );
        ratios.push(with / without);
    }
    println!("  with / without, median     {:>8.2}  (aim 1.25)", median(ratios));
    drop(served);
    postgres.stop().await.unwrap();
}
