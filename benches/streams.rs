//! Measures the memory of a server: when idle, per reader (of an idle stream, and one that does not read), and per turn
//! whose model is silent. `docs/benchmarks.md` explains the results.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

mod place;

use std::{fs, time::Duration};

use contextd::pb::{self, event::Payload, turn_service_client::TurnServiceClient};
use place::{Served, turn, watch};
use tonic::{Streaming, transport::Channel};

/// Readers of each kind; a few under `cargo test`, which only checks that the benchmark runs.
const READERS: usize = 2000;
const FEW: usize = 20;
/// Streams per connection.
const PER_CONNECTION: usize = 250;
/// Turns that run while the readers do not read.
const TURNS: usize = 20;
/// Maximum bytes per reader: one that waits for events, and one that does not read.
const IDLE: f64 = 32.0 * 1024.0;
const STALLED: f64 = 128.0 * 1024.0;
/// Number of concurrent turns.
const RUNNING: usize = 400;
/// Bytes of their context.
const CONTEXTS: [usize; 2] = [1_000, 200_000];
/// Each turn produces 20 kB, or a word and then nothing.
const SCRIPT: &str = r#"{ "context_window": 200000, "steps": [
    { "when": { "user_contains": "silence" }, "say": [{ "text": "Hm." }, { "stall": true }] },
    { "say": [{ "repeat": { "text": "word ", "times": 4000 } }] }
] }"#;
/// Long enough for all started work to settle.
const REST: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() {
    let readers = if std::env::args().any(|arg| arg == "--bench") { READERS } else { FEW };
    let place = place::directory();
    let postgres = place::start_postgres(&place).await;
    let served = Served::start(&place, &postgres, SCRIPT, "");
    tokio::time::sleep(REST).await;
    let Some(at_rest) = resident(&served) else {
        println!("skipped: no /proc");
        return postgres.stop().await.unwrap();
    };
    let mut turns = TurnServiceClient::connect(served.url()).await.unwrap();
    // Use every session once, so that pools, caches and statements already exist when memory is measured.
    for n in 0..readers {
        run(&mut turns, &format!("idle-{n}")).await;
    }
    let idle = measure(&served, readers, |n| watch(&format!("idle-{n}"), 0), async || {}).await;
    // A separate process: memory freed by the first one would hide the growth.
    drop(served);
    let mut served = Served::start(&place, &postgres, SCRIPT, "");
    let mut turns = TurnServiceClient::connect(served.url()).await.unwrap();
    run(&mut turns, "busy").await;
    let stalled = measure(
        &served,
        readers,
        |_| watch("busy", 0),
        async || {
            for _ in 0..TURNS {
                run(&mut turns.clone(), "busy").await;
            }
        },
    )
    .await;
    let mut running = Vec::new();
    for bytes in CONTEXTS {
        drop(std::mem::replace(&mut served, Served::start(&place, &postgres, SCRIPT, "")));
        running.push((bytes, silent_turns(&served, readers.min(RUNNING), bytes).await));
    }
    println!("\n{:.0} MB when idle", at_rest as f64 / 1e6);
    for (context, bytes) in running {
        println!("{bytes:>9.0} bytes for a turn whose model is silent, with a context of {context} bytes");
    }
    println!("{readers} readers of each kind");
    println!("  {:<52} {:>9}  {:>8}", "", "bytes", "of aim");
    for (name, bytes, aim) in [("an idle stream", idle, IDLE), ("a reader that does not read", stalled, STALLED)] {
        println!("  {name:<52} {bytes:>9.0}  {:>8.2}", bytes / aim);
    }
    drop(served);
    postgres.stop().await.unwrap();
}

async fn run(turns: &mut TurnServiceClient<Channel>, session: &str) {
    let mut stream = turns.execute_turn(turn(session)).await.unwrap().into_inner();
    while stream.message().await.unwrap().is_some() {}
}

/// Bytes by which the server grows per turn that has started its response and stalls.
async fn silent_turns(served: &Served, turns: usize, context: usize) -> f64 {
    let mut client = narrow(served).await;
    run(&mut client, &format!("warm-{context}")).await;
    tokio::time::sleep(REST).await;
    let before = resident(served).unwrap();
    let text = "silence ".repeat(context / 8);
    let mut open = Vec::with_capacity(turns);
    for n in 0..turns {
        if n % PER_CONNECTION == 0 {
            client = narrow(served).await;
        }
        let mut request = turn(&format!("silent-{context}-{n}"));
        let part = &mut request.input.as_mut().unwrap().parts[0];
        part.content = Some(pb::part::Content::Text(text.clone()));
        let mut stream = client.execute_turn(request).await.unwrap().into_inner();
        while let Some(message) = stream.message().await.unwrap() {
            let event = message.event.and_then(|event| event.payload);
            if matches!(event, Some(Payload::TextDelta(_))) {
                break;
            }
        }
        open.push(stream);
    }
    tokio::time::sleep(REST).await;
    resident(served).unwrap().saturating_sub(before) as f64 / turns as f64
}

/// Bytes by which the server grows per opened reader, after `happens` has run.
async fn measure(
    served: &Served,
    readers: usize,
    request: impl Fn(usize) -> pb::WatchEventsRequest,
    happens: impl AsyncFn(),
) -> f64 {
    tokio::time::sleep(REST).await;
    let before = resident(served).unwrap();
    let mut open = Vec::with_capacity(readers);
    let mut connection = narrow(served).await;
    for n in 0..readers {
        if n % PER_CONNECTION == 0 {
            connection = narrow(served).await;
        }
        let mut stream = connection.watch_events(request(n)).await.unwrap().into_inner();
        until_sync(&mut stream).await;
        open.push(stream);
    }
    happens().await;
    tokio::time::sleep(REST).await;
    let grown = resident(served).unwrap().saturating_sub(before);
    drop(open);
    grown as f64 / readers as f64
}

/// A connection whose streams buffer very little unread data.
async fn narrow(served: &Served) -> TurnServiceClient<Channel> {
    let endpoint = Channel::from_shared(served.url()).unwrap().initial_stream_window_size(4096);
    TurnServiceClient::new(endpoint.connect().await.unwrap())
}

async fn until_sync(stream: &mut Streaming<pb::WatchEventsResponse>) {
    while let Some(message) = stream.message().await.unwrap() {
        if matches!(message.event.and_then(|event| event.payload), Some(Payload::Sync(_))) {
            return;
        }
    }
}

/// The resident memory of a process in bytes.
fn resident(served: &Served) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", served.child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
