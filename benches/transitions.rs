//! The end of a turn and the admission of a new session in two forms: as one statement of many
//! CTEs, and as plain statements of one transaction, which the store sends. First both must do the
//! same; then they are measured. `docs/benchmarks.md` says how to read it.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for people at a terminal"
)]
#![allow(clippy::too_many_lines, reason = "values of a statement are one list")]

#[path = "transitions/database.rs"]
mod database;
#[path = "transitions/equal.rs"]
mod equal;
#[path = "transitions/forms.rs"]
mod forms;
mod place;
#[path = "place/slow.rs"]
mod slow;
#[path = "transitions/values.rs"]
mod values;

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use contextd::postgres::Postgres;
use forms::{Answer, Form, Transition, Writer};
use futures_util::future::join_all;
use tempfile::TempDir;
use tokio_postgres::Client;
use values::{admission, ending};

/// Rounds of each comparison, and those before them that are not measured.
const ROUNDS: usize = 20;
const WARM_UP: usize = 2;
/// Clients at a time, and sessions that each creates in a round.
const CLIENTS: [(usize, usize); 2] = [(1, 150), (16, 25)];
const DATABASE: &str = "measured";
const BINDIR: &str = "select setting from pg_config where name = 'BINDIR'";

#[tokio::main]
async fn main() {
    // `cargo bench` says so; `cargo test` only wants to see that it runs, and that both forms do
    // the same.
    let whole = std::env::args().any(|arg| arg == "--bench");
    let place = place::directory();
    let programs = measure("native", &place, None, whole).await;
    match slow::slow_programs(&place, &programs).filter(|_| whole) {
        Some(slow) => drop(
            measure(
                "slow commits: each flush takes 1 ms more",
                &place,
                Some(slow),
                whole,
            )
            .await,
        ),
        None => println!("\nslow commits: skipped"),
    }
}

/// Measures over one cluster. Gives the directory of its programs.
async fn measure(
    profile: &str,
    place: &TempDir,
    programs: Option<PathBuf>,
    whole: bool,
) -> PathBuf {
    let first = programs.is_none();
    let postgres = place::start_postgres_of(place, programs).await;
    if first {
        equal::check(&postgres).await;
        database::create(&postgres, DATABASE).await;
    }
    println!("\n{profile}");
    for (clients, sessions) in CLIENTS {
        let (rounds, sessions) = if whole { (ROUNDS, sessions) } else { (1, 2) };
        let bench = Bench::new(&postgres, &format!("{first}-{clients}"), clients, sessions).await;
        bench.compare(rounds, if whole { WARM_UP } else { 0 }).await;
    }
    let admin = database::connect(&postgres, DATABASE).await;
    let programs: String = admin.query_one(BINDIR, &[]).await.unwrap().get(0);
    drop(admin);
    postgres.stop().await.unwrap();
    PathBuf::from(programs)
}

/// Connections for each form, and how much each of them writes in a round.
struct Bench {
    name: String,
    sides: [Side; 2],
    sessions: usize,
    admin: Client,
}

/// The connections of one form.
struct Side {
    form: Form,
    writers: Vec<Arc<Writer>>,
    backends: Vec<i32>,
}

/// What one phase of a round took: a transition, in one form.
#[derive(Default, Clone)]
struct Phase {
    /// Of each transition, from sending it to its answer.
    latencies: Vec<Duration>,
    /// Processor time of the backends, all transitions together.
    work: Duration,
}

impl Side {
    async fn new(postgres: &Postgres, form: Form, clients: usize) -> Self {
        let connected =
            |_| async { Writer::new(database::connect(postgres, DATABASE).await, form).await };
        let writers: Vec<_> = join_all((0..clients).map(connected))
            .await
            .into_iter()
            .map(Arc::new)
            .collect();
        let backends = writers.iter().map(|writer| writer.backend).collect();
        Self {
            form,
            writers,
            backends,
        }
    }

    /// Writes a transition for all sessions of a round.
    async fn write(&self, transition: Transition, round: &str, sessions: usize) -> Phase {
        let before = work_of(&self.backends);
        let writing = self.writers.iter().enumerate().map(|(n, writer)| {
            let sessions = (0..sessions)
                .map(|session| format!("{round}-{n}-{session}"))
                .collect();
            tokio::spawn(write_each(Arc::clone(writer), transition, sessions))
        });
        let writing: Vec<_> = writing.collect();
        let latencies: Vec<Duration> = join_all(writing)
            .await
            .into_iter()
            .flat_map(Result::unwrap)
            .collect();
        Phase {
            latencies,
            work: work_of(&self.backends).saturating_sub(before),
        }
    }
}

/// Writes a transition for one session after the other. Gives the time that each took.
async fn write_each(
    writer: Arc<Writer>,
    transition: Transition,
    sessions: Vec<String>,
) -> Vec<Duration> {
    let mut latencies = Vec::with_capacity(sessions.len());
    for session in sessions {
        let turn = format!("turn-of-{session}");
        let values = match transition {
            Transition::AdmitNew => admission(&session, &turn),
            Transition::Finish => ending(&session, &turn),
        };
        let begun = Instant::now();
        let answer = writer.write(transition, &values).await;
        latencies.push(begun.elapsed());
        assert!(matches!(answer, Answer::Row(_)), "{answer}");
    }
    latencies
}

impl Bench {
    async fn new(postgres: &Postgres, name: &str, clients: usize, sessions: usize) -> Self {
        let sides = [
            Side::new(postgres, Form::Cte, clients).await,
            Side::new(postgres, Form::Plain, clients).await,
        ];
        Self {
            name: name.to_owned(),
            sides,
            sessions,
            admin: database::connect(postgres, DATABASE).await,
        }
    }

    /// Writes both transitions in both forms in each round, in changing order, so that whatever
    /// else the machine does hits both alike.
    async fn compare(&self, rounds: usize, warm_up: usize) {
        let mut phases = vec![Vec::new(); 4];
        for round in 0..rounds + warm_up {
            if round == warm_up {
                self.admin.batch_execute("vacuum analyze").await.unwrap();
            }
            let mut measured: [Phase; 4] = Default::default();
            for turn in 0..2 {
                let at = (turn + round) % 2;
                let side = &self.sides[at];
                let name = format!("{}-{round}-{:?}", self.name, side.form);
                measured[at] = side.write(Transition::AdmitNew, &name, self.sessions).await;
                measured[2 + at] = side.write(Transition::Finish, &name, self.sessions).await;
            }
            if round >= warm_up {
                for (all, phase) in phases.iter_mut().zip(measured) {
                    all.push(phase);
                }
            }
        }
        println!(
            "  {} clients, {rounds} rounds of {} sessions",
            self.sides[0].writers.len(),
            self.sessions * self.sides[0].writers.len()
        );
        println!(
            "    {:<28} {:>9} {:>9} {:>12}   ratio of processor time, middle half of rounds",
            "", "p50", "p99", "processor"
        );
        let both: Vec<Vec<Phase>> = [[0, 2], [1, 3]]
            .into_iter()
            .map(|of| joined(&phases, of))
            .collect();
        report("admit_new", &phases[0], &phases[1]);
        report("finish", &phases[2], &phases[3]);
        report("turn: both", &both[0], &both[1]);
    }
}

/// Two phases of each round as one.
fn joined(phases: &[Vec<Phase>], [one, other]: [usize; 2]) -> Vec<Phase> {
    let joined = |(one, other): (&Phase, &Phase)| {
        let latencies = one
            .latencies
            .iter()
            .zip(&other.latencies)
            .map(|(one, other)| *one + *other)
            .collect();
        Phase {
            latencies,
            work: one.work + other.work,
        }
    };
    phases[one].iter().zip(&phases[other]).map(joined).collect()
}

fn report(name: &str, cte: &[Phase], plain: &[Phase]) {
    for (form, rounds) in [("CTEs", cte), ("plain", plain)] {
        let mut latencies: Vec<Duration> = rounds
            .iter()
            .flat_map(|phase| phase.latencies.clone())
            .collect();
        latencies.sort_unstable();
        let work = share(&sorted(rounds.iter().map(work_each).collect()), 50);
        let name = format!("{name}, {form}");
        let [p50, p99] = [50, 99].map(|percent| {
            millis(latencies[(latencies.len() * percent / 100).min(latencies.len() - 1)])
        });
        print!("    {name:<28} {p50:>6.3} ms {p99:>6.3} ms {work:>9.3} ms");
        if form == "plain" {
            let ratios = sorted(
                cte.iter()
                    .zip(plain)
                    .map(|(cte, plain)| work_each(plain) / work_each(cte))
                    .collect(),
            );
            let [low, ratio, high] = [25, 50, 75].map(|percent| share(&ratios, percent));
            print!("   {ratio:.2} ({low:.2} to {high:.2})");
        }
        println!();
    }
}

/// Processor time of each transition, in milliseconds.
fn work_each(phase: &Phase) -> f64 {
    millis(phase.work) / phase.latencies.len() as f64
}

fn sorted(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers
}

fn share(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// The time for which these processes had a processor so far; nothing where there is no /proc.
fn work_of(processes: &[i32]) -> Duration {
    let work = |process: &i32| {
        let line = fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
        Some(Duration::from_nanos(
            line.split_whitespace().next()?.parse().ok()?,
        ))
    };
    processes.iter().filter_map(work).sum()
}
