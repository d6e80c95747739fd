//! Property test with random schedules of a session: replicas decide by the state that they read last, which may be
//! outdated, and a commit applies a change if the session was not written since. The invariants must hold at each
//! change. If any one of the guards is switched off, a violation must be found.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread::{self, available_parallelism},
};

use proptest::{collection::vec, prelude::*, strategy::ValueTree as _, test_runner::TestRunner};

use super::{
    Session, SessionState,
    samples::{running, waiting},
};
use crate::model::Delivery;

mod context;
mod forks;
mod guards;
mod rules;
mod stored;
mod world;

use guards::Guard;
use world::{Action, REPLICAS, World, open_calls};

/// Upper bound of the number of actions of a schedule.
const MAX_ACTIONS: usize = 80;

/// Maximum number of schedules to find a violation without a guard.
const MAX_SCHEDULES: u32 = 20_000;

fn deed() -> impl Strategy<Value = Action> {
    let replica = 0..REPLICAS.len();
    let some = |deed: fn(usize) -> Action| (0..REPLICAS.len()).prop_map(deed);
    let flagged = |deed: fn(usize, bool) -> Action| {
        (0..REPLICAS.len(), any::<bool>()).prop_map(move |(who, flag)| deed(who, flag))
    };
    let ownership = prop_oneof![
        some(Action::Beat),
        some(Action::TakeOver),
        (replica.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(who, rollback, again)| Action::Cancel(who, rollback, again)),
        some(Action::HandOver),
        some(Action::Release),
        some(Action::Adopt),
    ];
    let steps = prop_oneof![
        flagged(Action::Begin),
        some(Action::Retry),
        flagged(Action::Append),
        flagged(Action::Answer),
        some(Action::Finish),
        flagged(Action::Stop),
    ];
    let delivery = prop_oneof![Just(Delivery::Asap), Just(Delivery::WhenIdle), Just(Delivery::Interrupt),];
    let queue = prop_oneof![
        2 => (replica, delivery, any::<bool>())
            .prop_map(|(who, delivery, starts)| Action::Enqueue(who, delivery, starts)),
        1 => some(Action::Withdraw),
        2 => flagged(Action::Take),
        1 => some(Action::TakeIdle),
        2 => flagged(Action::Start),
    ];
    let context = prop_oneof![
        1 => flagged(Action::Update),
        4 => some(Action::Compact),
        6 => some(Action::Swap),
        2 => flagged(Action::Revert),
        1 => some(Action::Prune),
        2 => flagged(Action::Import),
    ];
    prop_oneof![
        12 => context,
        1 => prop_oneof![9 => some(Action::Seize), 1 => some(Action::Delete)],
        4 => (0..40_u8).prop_map(Action::Wait),
        24 => some(Action::Look),
        8 => ownership,
        16 => steps,
        16 => queue,
    ]
}

fn deeds() -> impl Strategy<Value = Vec<Action>> {
    vec(deed(), 0..MAX_ACTIONS)
}

/// The initial state of a schedule.
#[derive(Debug, Clone, Copy)]
enum First {
    /// A turn that a replica runs.
    Runs,
    /// A turn that waits for its calls.
    Waits,
    /// A turn that a replica runs although its calls are open, for example after a call timed out.
    RunsWithCalls,
}

fn first() -> impl Strategy<Value = First> {
    prop_oneof![Just(First::Runs), Just(First::Waits), Just(First::RunsWithCalls),]
}

impl First {
    fn world(self) -> World {
        let owned = |session| Session {
            state: SessionState::Running,
            owner: Some(REPLICAS[0].to_owned()),
            lease_is_over: false,
            ..session
        };
        match self {
            Self::Runs => World::new(owned(running()), Vec::new()),
            Self::Waits => World::new(waiting(2), open_calls(0..2)),
            Self::RunsWithCalls => World::new(owned(waiting(2)), open_calls(0..2)),
        }
    }
}

fn play(guard: Option<Guard>, first: First, deeds: &[Action]) -> Vec<String> {
    let mut world = first.world();
    for deed in deeds {
        world.does(*deed, guard);
        if !world.violations.is_empty() {
            break;
        }
    }
    world.violations
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Holds for any outdated state that replicas decide by.
    #[test]
    fn no_schedule_of_replicas_hosts_and_clients_violates_an_invariant(
        first in first(),
        deeds in deeds(),
    ) {
        prop_assert_eq!(play(None, first, &deeds), Vec::<String>::new());
    }
}

/// Runs different schedules on all cores until this many changes were committed.
#[test]
#[ignore = "ten million changes take minutes"]
fn ten_million_changes_violate_no_invariant() {
    let changes = AtomicU64::new(0);
    let run = || {
        let mut runner = TestRunner::default();
        let mut random = runner.new_rng();
        // Generating each action anew takes most of the time.
        let pool = vec(deed(), 100_000).new_tree(&mut runner).unwrap().current();
        while changes.load(Relaxed) < 10_000_000 {
            let first = first().new_tree(&mut runner).unwrap().current();
            let length = random.random_range(0..MAX_ACTIONS);
            let deeds: Vec<Action> = (0..length).map(|_| pool[random.random_range(0..pool.len())]).collect();
            let mut world = first.world();
            for deed in &deeds {
                world.does(*deed, None);
            }
            assert_eq!(world.violations, Vec::<String>::new(), "{first:?} {deeds:?}");
            changes.fetch_add(world.changes, Relaxed);
        }
    };
    let cores = available_parallelism().unwrap().get();
    thread::scope(|threads| {
        for _ in 0..cores {
            threads.spawn(run);
        }
    });
}

/// The prefix of a violation that is found without the guard.
fn found_without(guard: Guard) -> String {
    let mut runner = TestRunner::deterministic();
    let strategy = (first(), deeds());
    for _ in 0..MAX_SCHEDULES {
        let (first, deeds) = strategy.new_tree(&mut runner).unwrap().current();
        if let Some(found) = play(Some(guard), first, &deeds).first() {
            return found.clone();
        }
    }
    panic!("without {guard:?} nothing is found in {MAX_SCHEDULES} schedules");
}

#[test]
fn each_guard_that_is_switched_off_is_found() {
    for guard in Guard::ALL {
        let found = found_without(guard);
        let expected = guard.found();
        assert!(expected.iter().any(|begins| found.starts_with(begins)), "{guard:?}: {found}");
    }
}
