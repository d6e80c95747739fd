//! Chaos: three replicas of the built program over one PostgreSQL, killed with kill -9 and cut off
//! at every link, while clients run turns, come and go, answer twice and cancel, and others queue
//! messages, interrupt, roll back, prune and compact. Then an independent checker reads what is
//! left.
//!
//! `script/chaos --kills 1000 --cuts 1000` makes a long run; `cargo test` a short one.
//! docs/reliability.md says what is counted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program for people at a terminal"
)]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "it names the variants it looks for"
)]
#![allow(clippy::too_many_lines, reason = "a check reads as one list")]

mod accounts;
mod checker;
mod client;
mod compactor;
mod faults;
mod fleet;
mod meddler;
mod model;
mod overlays;
mod policy;
mod random;
mod reader;
mod visit;

#[path = "../it/harness/mod.rs"]
mod harness;

use std::{process::ExitCode, sync::Arc, time::Instant};

use harness::TestDatabase;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{client::Clients, faults::Tally, fleet::Fleet, model::Service};

/// What a run is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    kills: usize,
    cuts: usize,
    clients: usize,
    seed: u64,
}

/// What `cargo test` runs.
const SHORT: Plan = Plan {
    kills: 8,
    cuts: 16,
    clients: 8,
    seed: 1,
};

/// Options of the usual test runner that come with a value.
const WITH_VALUE: [&str; 5] = [
    "--test-threads",
    "--skip",
    "--color",
    "--format",
    "--logfile",
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(plan) = plan(&arguments) else {
        return ExitCode::SUCCESS;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run(plan))
}

/// The plan that arguments ask for; none: a test is asked for by a name that is not ours.
fn plan(arguments: &[String]) -> Option<Plan> {
    let mut plan = SHORT;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut number = || {
            arguments
                .next()
                .and_then(|value| value.parse().ok())
                .expect("a number")
        };
        match argument.as_str() {
            "--kills" => plan.kills = number(),
            "--cuts" => plan.cuts = number(),
            "--clients" => plan.clients = number(),
            "--seed" => plan.seed = u64::try_from(number()).unwrap(),
            "--list" => return None,
            option if WITH_VALUE.contains(&option) => drop(arguments.next()),
            option if option.starts_with('-') => {}
            name if "chaos".contains(name) => {}
            _ => return None,
        }
    }
    Some(plan)
}

async fn run(plan: Plan) -> ExitCode {
    println!("chaos: {plan:?}");
    let begun = Instant::now();
    let database = Arc::new(TestDatabase::new().await);
    let service = Service::start(plan.seed).await;
    let fleet = Arc::new(Fleet::start(&database, &service).await);
    let clients = Clients::new(&fleet, &service, plan.seed);
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    for number in 0..plan.clients {
        tasks.spawn(client::live(clients.clone(), number, stop.clone()));
    }
    let mut tally = Tally::default();
    faults::kill(&fleet, &clients, &database, &plan, &mut tally).await;
    faults::cut(&fleet, &plan, &mut tally).await;
    fleet.heal().await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    println!("{tally}");
    let violations = checker::check(&database, &fleet, &clients, &service, &plan).await;
    println!("took {:?}", begun.elapsed());
    for violation in violations.iter().take(50) {
        println!("VIOLATION: {violation}");
    }
    println!("violations: {}", violations.len());
    if violations.is_empty() && tally.is_whole(&plan) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
