//! What a server does with more than it can do: three times as many turns as it finishes at its peak, and a
//! tenant that asks for far more than its limit beside one that does not. `docs/benchmarks.md` says how to
//! read it.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for people at a terminal"
)]

#[path = "place/callers.rs"]
mod callers;
mod place;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use callers::{CONNECTIONS, Calling, Key, closed_loop, connect, keys, run};
use contextd::pb::{self, session_service_client::SessionServiceClient};
use place::Served;
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tonic::{Code, Status};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

/// Each turn says a few words at once.
const SCRIPT: &str = r#"{ "steps": [{ "say": [{ "text": "one two three four five six" }] }] }"#;
/// Clients at once that are tried for the peak.
const CLIENTS: [usize; 3] = [8, 16, 32];
/// Times more turns than at the peak.
const OVERLOAD: f64 = 3.0;
/// Runs with and without the burst, in turn.
const RUNS: usize = 5;
/// What the busy tenant may ask per second, and what it asks.
const LIMIT: u32 = 50;
const BURST: f64 = 1_000.0;

/// How long things are measured.
#[derive(Clone, Copy)]
struct Lengths {
    peak: Duration,
    overload: Duration,
    run: Duration,
}

#[tokio::main]
async fn main() {
    // `cargo bench` says so; `cargo test` only wants to see that it runs.
    let seconds = Duration::from_secs;
    let lengths = if std::env::args().any(|arg| arg == "--bench") {
        Lengths {
            peak: seconds(5),
            overload: seconds(15),
            run: seconds(4),
        }
    } else {
        let short = Duration::from_millis(200);
        Lengths {
            peak: short,
            overload: short,
            run: short,
        }
    };
    overload(lengths).await;
    burst(lengths).await;
}

/// What came of calls.
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

fn is_refusal(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::ResourceExhausted)
}

/// Begins calls at a rate, however long they take; waits for the last of them.
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

/// Buckets of a method's refusals in the server's own histogram: counts up to each bound, in seconds.
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
        let bound = bound
            .split('"')
            .next()
            .unwrap()
            .parse()
            .unwrap_or(f64::INFINITY);
        let count: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        match buckets.iter_mut().find(|(known, _)| *known == bound) {
            Some((_, known)) => *known += count,
            None => buckets.push((bound, count)),
        }
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets
}

/// The bound below which 99 % are.
fn p99(buckets: &[(f64, f64)]) -> f64 {
    let all = buckets.last().map_or(0.0, |(_, count)| *count);
    let of = buckets.iter().find(|(_, count)| *count >= all * 0.99);
    of.map_or(0.0, |(bound, _)| bound * 1e3)
}

async fn overload(lengths: Lengths) {
    let place = place::directory();
    let postgres = place::start_postgres(&place).await;
    let admin = free_port().await;
    let settings = format!("[server]\nadmin_listen = '127.0.0.1:{admin}'\n");
    let served = Served::start(&place, &postgres, SCRIPT, &settings);
    let channels = connect(served.endpoint(), &Key::default()).await;
    closed_loop(&channels, 8, lengths.peak).await;
    let mut peak = 0.0_f64;
    println!("\npeak, by clients at once");
    for clients in CLIENTS {
        let rate = closed_loop(&channels, clients, lengths.peak).await;
        println!("  {clients:>4} {rate:>10.0} turns/s");
        peak = peak.max(rate);
    }
    let outcomes = Arc::new(Outcomes::default());
    let health = Arc::new(Outcomes::default());
    let begun = Instant::now();
    let before = refusals(&scrape(admin).await);
    let calls = open_loop(peak * OVERLOAD, lengths.overload, &outcomes, |n| {
        let channel = channels[n % CONNECTIONS].clone();
        async move { run(channel).await.map(drop) }
    });
    let probes = open_loop(20.0, lengths.overload, &health, |_| {
        let mut health = HealthClient::new(channels[0].clone());
        async move {
            let checked = health.check(HealthCheckRequest::default()).await;
            checked.map(drop)
        }
    });
    tokio::join!(calls, probes);
    let took = begun.elapsed().as_secs_f64();
    let mut refused = refusals(&scrape(admin).await);
    for (bucket, before) in refused.iter_mut().zip(before) {
        bucket.1 -= before.1;
    }
    let goodput = outcomes.done.load(Relaxed) as f64 / took;
    let failed = outcomes.failed.lock().unwrap().clone();
    println!(
        "overload: {:.0} turns/s asked, {took:.1} s",
        peak * OVERLOAD
    );
    println!(
        "  goodput / peak             {:>8.2}  (aim 0.9)",
        goodput / peak
    );
    println!(
        "  refused                    {:>8}",
        outcomes.refused.load(Relaxed)
    );
    println!(
        "  failed otherwise           {:>8}  {:?}",
        failed.len(),
        failed.first()
    );
    println!(
        "  p99 of a refusal, server   {:>5.0} ms  (aim 5)",
        p99(&refused)
    );
    println!("  p99 of a turn              {:>5.0} ms", outcomes.p99());
    println!(
        "  p99 of health              {:>5.0} ms, {} answered, {} not",
        health.p99(),
        health.done.load(Relaxed),
        health.failed.lock().unwrap().len() as u64 + health.refused.load(Relaxed)
    );
    drop(served);
    postgres.stop().await.unwrap();
}

/// The p99 of a tenant's turns, while another one asks too much or nothing.
async fn calm_tenant(calm: &[Calling], busy: Option<&[Calling]>, length: Duration) -> (f64, u64) {
    let outcomes = Arc::new(Outcomes::default());
    let others = Arc::new(Outcomes::default());
    let calls = open_loop(40.0, length, &outcomes, |n| {
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
    let settings = format!(
        "[auth]\nrequired = true\nkeys_file = '{}'\n[limits]\nrequests_per_second = {LIMIT}\n",
        file.display()
    );
    let served = Served::start(&place, &postgres, SCRIPT, &settings);
    let calm = connect(served.endpoint(), &calm).await;
    let busy = connect(served.endpoint(), &busy).await;
    calm_tenant(&calm, Some(&busy), lengths.run).await;
    let mut ratios = Vec::new();
    println!("\na burst of {BURST} requests/s by a tenant that may ask {LIMIT}");
    for _ in 0..RUNS {
        let (without, _) = calm_tenant(&calm, None, lengths.run).await;
        sleep(lengths.run / 8).await;
        let (with, refused) = calm_tenant(&calm, Some(&busy), lengths.run).await;
        sleep(lengths.run / 8).await;
        println!(
            "  p99 of the other tenant's turns {without:>6.1} ms, with the burst {with:>6.1} ms ({refused} refused)"
        );
        ratios.push(with / without);
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "  with / without, median     {:>8.2}  (aim 1.25)",
        ratios[RUNS / 2]
    );
    drop(served);
    postgres.stop().await.unwrap();
}
