//! Measures the cost of guards and telemetry: the same turns on a server without and on one with each of them,
//! alternating. `docs/benchmarks.md` explains the results.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

#[path = "place/callers.rs"]
mod callers;
mod place;

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    process::Stdio,
    time::{Duration, Instant},
};

use bytes::Bytes;
use callers::{CONNECTIONS, Calling, Key, closed_loop, connect, keys, run};
use contextd::postgres::Postgres;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use place::Served;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

const SCRIPT: &str = r#"{ "steps": [{ "say": [{ "text": "one two three four five six" }] }] }"#;
/// Turns whose first token is timed, per server.
const TURNS: usize = 300;
/// Rounds of turns per second, per server.
const ROUNDS: usize = 13;
/// Number of concurrent clients.
const CLIENTS: usize = 8;

/// The features that are enabled.
#[derive(Clone, Copy, Default)]
struct On {
    keys: bool,
    tls: bool,
    limits: bool,
    exports: bool,
    log: bool, // the access log and the audit log
    rows: bool,
}

const VARIANTS: [(&str, On); 8] = [
    ("no feature, measured twice", OFF),
    ("API keys", On { keys: true, ..OFF }),
    ("TLS", On { tls: true, ..OFF }),
    ("tenant limits", On { limits: true, ..OFF }),
    ("metrics and traces, exported", On { exports: true, ..OFF }),
    ("access and audit log", On { log: true, ..OFF }),
    ("all of them", ALL),
    ("row security", On { rows: true, ..OFF }), // off by default
];
const OFF: On = On { keys: false, tls: false, limits: false, exports: false, log: false, rows: false };
const ALL: On = On { keys: true, tls: true, limits: true, exports: true, log: true, rows: false };

#[tokio::main]
async fn main() {
    // `cargo bench` passes `--bench`; `cargo test` only checks that the benchmark runs.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let (turns, rounds, length) =
        if is_bench { (TURNS, ROUNDS, Duration::from_millis(1500)) } else { (2, 1, Duration::from_millis(100)) };
    let begun = Instant::now();
    let place = place::directory();
    let postgres = place::start_postgres(&place).await;
    let collector = collector().await;
    let mut rows = Vec::new();
    for (name, on) in VARIANTS {
        let (_off, without) = start(&place, &postgres, collector, OFF).await;
        let (_on, with) = start(&place, &postgres, collector, on).await;
        let first = first_token(&without, &with, turns).await;
        let rate = rates(&without, &with, rounds, length).await;
        rows.push((name, first, rate));
    }
    println!("\n{:<32} {:>26} {:>30}", "on", "first token, p50 without / with", "turns/s without / with");
    for (name, first, rate) in rows {
        println!(
            "{name:<32} {:>7.2} {:>7.2} ms {:>6.3}   {:>7.0} {:>7.0} {:>6.3}",
            first.0,
            first.1,
            first.1 / first.0,
            rate.0,
            rate.1,
            rate.2
        );
    }
    println!("{:.0} s in total", begun.elapsed().as_secs_f64());
    postgres.stop().await.unwrap();
}

/// Medians of the time to the first token in ms, without and with the feature.
async fn first_token(without: &[Calling], with: &[Calling], turns: usize) -> (f64, f64) {
    let mut times = [Vec::new(), Vec::new()];
    for turn in 0..turns + turns / 5 {
        for (side, channels) in [without, with].into_iter().enumerate() {
            let took = run(channels[turn % CONNECTIONS].clone()).await.unwrap();
            if turn >= turns / 5 {
                times[side].push(took.as_secs_f64() * 1e3);
            }
        }
    }
    let [without, with] = times;
    (median(without), median(with))
}

/// Medians of turns per second without and with the feature, and of the ratios per round: other load on the machine
/// affects both sides of a round.
async fn rates(without: &[Calling], with: &[Calling], rounds: usize, length: Duration) -> (f64, f64, f64) {
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let mut sides = [(0, without), (1, with)];
        if round % 2 == 1 {
            sides.reverse();
        }
        for (side, channels) in sides {
            rates[side].push(closed_loop(channels, CLIENTS, length).await);
        }
    }
    let [without, with] = rates;
    let ratios = without.iter().zip(&with).map(|(without, with)| with / without);
    let ratio = median(ratios.collect());
    (median(without), median(with), ratio)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn start(place: &TempDir, postgres: &Postgres, collector: SocketAddr, on: On) -> (Served, Vec<Calling>) {
    let mut settings = String::new();
    let mut key = Key::default();
    if on.keys {
        let (file, [own]) = keys(place, ["tenant"]);
        settings += &format!("[auth]\nrequired = true\nkeys_file = '{}'\n", file.display());
        key = own;
    }
    let mut trusted = None;
    if on.tls {
        let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let [certificate, private] = ["cert.pem", "key.pem"].map(|name| place.path().join(name));
        fs::write(&certificate, pair.cert.pem()).unwrap();
        fs::write(&private, pair.signing_key.serialize_pem()).unwrap();
        settings += &format!("[tls]\ncert_file = '{}'\nkey_file = '{}'\n", certificate.display(), private.display());
        trusted = Some(pair.cert.pem());
    }
    if on.limits {
        settings += "[limits]\nrunning_turns = 1000000\nrequests_per_second = 1000000\n\
                     tokens_per_minute = 1000000000000\nstored_bytes = 1000000000000\n";
    }
    if on.exports {
        settings += &format!("[telemetry.otlp]\nendpoint = 'http://{collector}'\nmetrics_interval = '1s'\n");
    }
    if on.rows {
        settings += "[database]\nrow_security = true\n";
    }
    let levels = if on.log { "info" } else { "error,contextd::audit=off" };
    let mut served = Served::logging(place, postgres, SCRIPT, &settings, levels, Stdio::piped());
    // Read the log as a log collector does: writing to /dev/null would cost less than in production.
    let mut log = served.child.stderr.take().unwrap();
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    let channels = connect(endpoint(&served, trusted), &key).await;
    (served, channels)
}

fn endpoint(served: &Served, trusted: Option<String>) -> Endpoint {
    let Some(pem) = trusted else {
        return served.endpoint();
    };
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)).domain_name("localhost");
    Channel::from_shared(format!("https://{}", served.address)).unwrap().tls_config(tls).unwrap()
}

/// A collector that accepts all requests and discards them.
async fn collector() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(take));
            tokio::spawn(connection);
        }
    });
    address
}

async fn take(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    Ok(Response::new(Empty::new()))
}
