//! The complete protocol at once: replicas admit, own, answer, enqueue, cancel, compact, import, fork and take over at
//! random on one PostgreSQL, while they crash, pause and miss responses. A checker that is independent of the code
//! compares what is stored with what was acknowledged. It checks the invariants in `harness/invariants` and the rules
//! in `checker` that only this test can check. It must find no violation with all guards, and at least one with any
//! single guard disabled.
//!
//! A failed run names its seed. With this seed in `CONTEXTD_TEST_SEED`, every replica makes the same choices; the order
//! of transactions still depends on the database.

mod actors;
mod checker;
pub(crate) mod guards;
mod history;
mod owner;
mod visitor;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use contextd::store::Store;
use futures_util::future::join_all;

use crate::harness::{
    TestDatabase,
    dice::{Dice, SEED, seed},
};
use actors::{Actor, Habits, Scene};
use guards::Guard;
use owner::Own;
use visitor::Visit;

/// Number of replicas per round.
const REPLICAS: u32 = 7;
/// Number of rounds that must be clean, and the maximum number of rounds until every kind of response has occurred.
const ROUNDS: (usize, usize) = (12, 60);
/// The kinds of responses that a run must contain.
const HAPPENS: [&str; 10] =
    ["Granted", "Wrote", "Admitted", "Queued", "Withdrew", "Accepted", "Cancelled", "Updated", "Imported", "Forked"];
/// Number of rounds in which the checker must notice a disabled guard.
const ROUNDS_WITHOUT: usize = 60;

/// A mix of all operations.
fn habits() -> Habits {
    Habits {
        own: vec![
            (Own::Say, 12),
            (Own::Note, 6),
            (Own::Call, 14),
            (Own::Retry, 4),
            (Own::Begin, 4),
            (Own::Take, 14),
            (Own::Finish, 14),
            (Own::Stop, 4),
            (Own::HandOver, 3),
            (Own::Beat, 3),
            (Own::Crash, 3),
        ],
        visit: vec![
            (Visit::Execute, 20),
            (Visit::Enqueue, 24),
            (Visit::Unqueue, 6),
            (Visit::Answer, 24),
            (Visit::Cancel, 2),
            (Visit::Wait, 4),
            (Visit::TakeOver, 8),
            (Visit::Compact, 3),
            (Visit::Revert, 2),
            (Visit::Update, 2),
            (Visit::Import, 14),
            (Visit::Fork, 2),
            (Visit::Delete, 1),
            (Visit::Kill, 1),
        ],
        missed: 6,
        deeds: 22,
    }
}

/// Like [`habits`], with more of the operations that a guard is for.
fn habits_without(guard: Guard) -> Habits {
    let more = |own: &[(Own, usize)], visit: &[(Visit, usize)], missed| {
        let own = own.iter().copied().chain([(Own::Say, 6), (Own::Finish, 6), (Own::Call, 2)]).collect();
        let visit = visit.iter().copied().chain([(Visit::Execute, 12), (Visit::TakeOver, 3)]).collect();
        Habits { own, visit, missed, deeds: 22 }
    };
    match guard {
        Guard::Version => more(&[(Own::Call, 40)], &[(Visit::Answer, 60), (Visit::TakeOver, 10)], 0),
        Guard::VersionOfEnqueue => {
            more(&[(Own::Finish, 40), (Own::Take, 30)], &[(Visit::Enqueue, 25), (Visit::Execute, 10)], 0)
        }
        Guard::FallbackInRetry => more(&[(Own::Retry, 20)], &[], 0),
        Guard::IdempotencyRow => more(&[(Own::Take, 10)], &[(Visit::Enqueue, 30), (Visit::Execute, 20)], 15),
    }
}

/// Fails unless everything that is stored satisfies the rules.
pub(crate) async fn assert_sound(client: &tokio_postgres::Client) {
    let found = checker::violations(&history::stored(client).await, &[]);
    assert!(found.is_empty(), "{found:#?}");
}

/// The replicas of one database.
struct World {
    database: TestDatabase,
    stores: Vec<Store>,
    seed: u64,
    /// Whether all guards are enabled.
    is_whole: bool,
}

impl World {
    async fn new(off: Option<Guard>) -> Self {
        let database = TestDatabase::new().await;
        if let Some(guard) = off {
            let otherwise = |commit: &str| guard.off(commit);
            database.replace_commit_function(otherwise).await;
        }
        let store = |n| {
            let pool = database.pool_among(REPLICAS);
            Store::new(pool, format!("replica {n}"), Duration::from_secs(30)).with_session_memory(32 << 20)
        };
        let stores = (0..REPLICAS).map(store).collect();
        Self { database, stores, seed: seed(), is_whole: off.is_none() }
    }

    /// Runs a round. Returns the violations, and the number of responses per kind.
    async fn round(&self, round: usize, habits: Habits) -> (Vec<String>, BTreeMap<String, usize>) {
        let scene = Scene::new(round);
        let habits = Arc::new(habits);
        // Shared, because PostgreSQL may have room for few connections besides those of the stores.
        let client = Arc::new(self.database.client().await);
        let mut actors = Vec::new();
        for (lane, store) in (1..).zip(&self.stores) {
            actors.push(Actor {
                scene: Arc::clone(&scene),
                store: store.clone(),
                client: Arc::clone(&client),
                dice: Dice::new(self.seed, u64::try_from(round).unwrap() * 100 + lane),
                habits: Arc::clone(&habits),
                held: BTreeMap::new(),
                known: BTreeSet::new(),
                compares_memory: self.is_whole,
            });
        }
        join_all(actors.iter_mut().map(Actor::run)).await;
        let mut last = actors.pop().unwrap();
        last.habits = Arc::new(Habits { missed: 0, ..Habits::clone(&habits) });
        last.rest().await;
        let told = scene.history.all();
        let mut stored = history::stored(&last.client).await;
        stored.retain(|session, _| {
            session.starts_with(&format!("r{round}a")) || session.starts_with(&format!("r{round}b"))
        });
        let mut tally: BTreeMap<String, usize> = BTreeMap::new();
        for told in &told {
            let name = format!("{told:?}");
            *tally.entry(name.split([' ', '(']).next().unwrap_or_default().to_owned()).or_default() += 1;
        }
        *tally.entry("Events".to_owned()).or_default() += stored.values().map(|it| it.events.len()).sum::<usize>();
        (checker::violations(&stored, &told), tally)
    }
}

/// Rows I1, I2, I3, I4 and I9
#[tokio::test]
async fn concurrent_replicas_violate_no_invariant() {
    let world = World::new(None).await;
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..ROUNDS.1 {
        if round >= ROUNDS.0 && HAPPENS.iter().all(|what| tally.contains_key(*what)) {
            return;
        }
        let (found, told) = Box::pin(world.round(round, habits())).await;
        assert!(found.is_empty(), "round {round} of {SEED}={}: {found:#?}", world.seed);
        told.into_iter().for_each(|(what, times)| *tally.entry(what).or_default() += times);
    }
    panic!("{HAPPENS:?}, not all of it: {tally:?}");
}

/// Fails unless the checker notices that a guard is disabled.
async fn missed(guard: Guard) {
    let world = World::new(Some(guard)).await;
    for round in 0..ROUNDS_WITHOUT {
        let (found, _) = Box::pin(world.round(round, habits_without(guard))).await;
        // Violations that another guard or a constraint of the database is responsible for do not count.
        let its = |found: &String| guard.missed().iter().any(|begins| found.starts_with(begins));
        let found: Vec<String> = found.into_iter().filter(its).collect();
        if !found.is_empty() {
            eprintln!("found in round {round}");
            return;
        }
    }
    panic!("{SEED}={}: without {guard:?} nothing is found in {ROUNDS_WITHOUT} rounds", world.seed);
}

#[tokio::test]
async fn without_the_version_in_a_commit_the_checker_finds_duplicate_results() {
    missed(Guard::Version).await;
}

#[tokio::test]
async fn without_the_version_in_an_enqueue_the_checker_finds_a_message_out_of_its_turn() {
    missed(Guard::VersionOfEnqueue).await;
}

#[tokio::test]
async fn without_the_idempotency_row_the_checker_finds_a_repeated_request_act_twice() {
    missed(Guard::IdempotencyRow).await;
}

#[tokio::test]
async fn without_the_model_in_a_retry_the_checker_finds_a_turn_that_calls_another_one() {
    missed(Guard::FallbackInRetry).await;
}
