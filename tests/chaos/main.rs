//! Chaos test: three replicas of the built program on one PostgreSQL are killed with kill -9 and disconnected at every
//! link, while clients run turns, disconnect and reconnect, submit results twice and cancel, and others enqueue
//! messages, interrupt, roll back, prune and compact. Then an independent checker reads the final state.
//!
//! `script/chaos --kills 1000 --cuts 1000` makes a long run, `cargo test` a short one. docs/reliability.md defines what
//! is counted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a program for people at a terminal")]
#![allow(clippy::wildcard_enum_match_arm, reason = "it names the variants it looks for")]
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

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    kills: usize,
    cuts: usize,
    clients: usize,
    seed: u64,
}

/// The run of `cargo test`.
const SHORT: Plan = Plan { kills: 8, cuts: 16, clients: 8, seed: 1 };

/// Options of the standard test runner that take a value.
const WITH_VALUE: [&str; 5] = ["--test-threads", "--skip", "--color", "--format", "--logfile"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(plan) = plan(&arguments) else {
        return ExitCode::SUCCESS;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(run(plan))
}

/// The plan from the arguments. Returns `None` if they select a test with another name.
fn plan(arguments: &[String]) -> Option<Plan> {
    let mut plan = SHORT;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|value| value.parse().ok()).expect("a number");
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

/// Prints what is stored of a session, for the search of a cause.
async fn print_history(client: &tokio_postgres::Client, session: &str) {
    const HISTORY: &str = "
        select 'event ' || concat_ws(' ', seq, epoch, turn_id, step, attempt, kind, refs) as line, seq, 0 as n from events where session_id = $1
        union all
        select 'message ' || concat_ws(' ', seq, message_id, turn_id, role, step, 'voided', voided_at_seq), seq, 1 from messages where session_id = $1
        union all
        select 'run ' || row_to_json(r), 1 << 30, 2 from session_run r where session_id = $1
         order by seq, n";
    println!("\n{session}:");
    for row in client.query(HISTORY, &[&session]).await.unwrap() {
        println!("  {}", row.get::<_, &str>(0));
    }
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
    let client = database.client().await;
    let sessions = violations.iter().filter_map(|it| Some(it.split_once(':')?.0));
    for session in std::collections::BTreeSet::from_iter(sessions).into_iter().take(5) {
        print_history(&client, session).await;
    }
    println!("violations: {}", violations.len());
    if violations.is_empty() && tally.is_whole(&plan) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
