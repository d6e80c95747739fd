//! Compares contextd with other systems on the same turn, in one run with one model service and one PostgreSQL.
//! `docs/benchmarks.md` explains the results. The peers need a Python with `benches/peers/requirements.txt`, given by
//! `BENCH_PYTHON`; without it they are skipped.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

#[path = "place/callers.rs"]
mod callers;
#[path = "peers/contender.rs"]
mod contender;
mod place;
#[path = "place/processor.rs"]
mod processor;
#[path = "peers/upstream.rs"]
mod upstream;

use std::time::Duration;

use contender::Contender;

/// Turns with one client, and seconds of turns with `CLIENTS` clients, per round.
const ROUNDS: usize = 5;
const TURNS: usize = 40;
const LENGTH: Duration = Duration::from_secs(4);
/// Number of concurrent clients.
const CLIENTS: usize = 16;

/// The measurements of one system, one value per round.
#[derive(Default)]
struct Samples {
    first: Vec<f64>,
    rate: Vec<f64>,
    program: Vec<f64>,
    postgres: Vec<f64>,
}

#[tokio::main]
async fn main() {
    // `cargo bench` passes `--bench`; `cargo test` only checks that the benchmark runs.
    let (rounds, turns, length) = if std::env::args().any(|arg| arg == "--bench") {
        (ROUNDS, TURNS, LENGTH)
    } else {
        (1, 2, Duration::from_millis(100))
    };
    let place = place::directory();
    let postgres = place::start_postgres(&place).await;
    let upstream = format!("http://{}/v1", upstream::start().await);
    let mut contenders = contender::all(&place, &postgres, &upstream).await;
    let mut samples: Vec<Samples> = contenders.iter().map(|_| Samples::default()).collect();
    for contender in &mut contenders {
        contender.load(CLIENTS, length / 4).await; // warm-up
    }
    for _ in 0..rounds {
        for (contender, samples) in contenders.iter_mut().zip(&mut samples) {
            measure(contender, samples, turns, length).await;
        }
    }
    print(&contenders, samples);
    drop(contenders);
    postgres.stop().await.unwrap();
}

async fn measure(contender: &mut Contender, samples: &mut Samples, turns: usize, length: Duration) {
    samples.first.push(median(contender.first(turns).await));
    let before = contender.processor.used();
    let load = contender.load(CLIENTS, length).await;
    let used = contender.processor.used() - before;
    samples.rate.push(load.turns / load.seconds);
    samples.program.push(used.server * 1e3 / load.turns);
    samples.postgres.push(used.postgres * 1e3 / load.turns);
}

fn print(contenders: &[Contender], samples: Vec<Samples>) {
    println!("\n{:<42} {:>9} {:>9} {:>9} {:>9}  durable", "", "first ms", "turns/s", "program", "postgres");
    for (contender, samples) in contenders.iter().zip(samples) {
        let Samples { first, rate, program, postgres } = samples;
        println!(
            "{:<42} {:>9.2} {:>9.0} {:>9.2} {:>9.2}  {}",
            contender.name,
            median(first),
            median(rate),
            median(program),
            median(postgres),
            contender.durable
        );
    }
    println!(
        "first text at 1 client, its median; turns/s and ms of processor time per turn at {CLIENTS} clients; medians of all rounds"
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
