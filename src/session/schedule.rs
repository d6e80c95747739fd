//! Random schedules of a session: replicas decide by what they saw, which may be long ago; a commit takes a
//! change in if nobody wrote the session since. Whatever they do, the invariants hold at each change; and
//! with any one of the guards switched off that is found.

use proptest::{collection::vec, prelude::*, strategy::ValueTree as _, test_runner::TestRunner};

use super::{
    Session,
    samples::{running, waiting},
};
use crate::model::Delivery;

mod guards;
mod rules;
mod stored;
mod world;

use guards::Guard;
use world::{Deed, REPLICAS, World, open_calls};

/// Schedules that are run without a guard until that is found.
const MOST: u32 = 20_000;

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let replica = 0..REPLICAS.len();
    let some = |deed: fn(usize) -> Deed| (0..REPLICAS.len()).prop_map(deed);
    let flagged = |deed: fn(usize, bool) -> Deed| {
        (0..REPLICAS.len(), any::<bool>()).prop_map(move |(who, flag)| deed(who, flag))
    };
    let ownership = prop_oneof![
        some(Deed::Beat),
        some(Deed::TakeOver),
        (replica.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(who, rollback, again)| Deed::Cancel(who, rollback, again)),
        some(Deed::HandOver),
        some(Deed::Release),
        some(Deed::Adopt),
    ];
    let steps = prop_oneof![
        flagged(Deed::Begin),
        some(Deed::Retry),
        flagged(Deed::Append),
        flagged(Deed::Answer),
        some(Deed::Finish),
        flagged(Deed::Stop),
    ];
    let delivery = prop_oneof![
        Just(Delivery::Asap),
        Just(Delivery::WhenIdle),
        Just(Delivery::Interrupt),
    ];
    let queue = prop_oneof![
        2 => (replica, delivery, any::<bool>())
            .prop_map(|(who, delivery, starts)| Deed::Enqueue(who, delivery, starts)),
        1 => some(Deed::Withdraw),
        2 => flagged(Deed::Take),
        1 => some(Deed::TakeIdle),
        2 => flagged(Deed::Start),
    ];
    let context = prop_oneof![
        1 => flagged(Deed::Update),
        2 => some(Deed::Compact),
        4 => some(Deed::Swap),
        1 => flagged(Deed::Revert),
        1 => some(Deed::Prune),
    ];
    let deed = prop_oneof![
        8 => context,
        1 => prop_oneof![9 => some(Deed::Seize), 1 => some(Deed::Delete)],
        4 => (0..40_u8).prop_map(Deed::Wait),
        24 => some(Deed::Look),
        8 => ownership,
        16 => steps,
        16 => queue,
    ];
    vec(deed, 0..80)
}

/// A turn that a replica runs, or one that waits for its calls.
fn first(runs: bool) -> World {
    if runs {
        let session = Session {
            owner: Some(REPLICAS[0].to_owned()),
            ..running()
        };
        World::new(session, Vec::new())
    } else {
        World::new(waiting(2), open_calls(0..2))
    }
}

fn play(guard: Option<Guard>, runs: bool, deeds: &[Deed]) -> Vec<String> {
    let mut world = first(runs);
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

    /// Whatever replicas saw, and however late they act.
    #[test]
    fn no_schedule_of_replicas_hosts_and_clients_violates_an_invariant(
        runs in any::<bool>(),
        deeds in deeds(),
    ) {
        prop_assert_eq!(play(None, runs, &deeds), Vec::<String>::new());
    }
}

/// Schedules of other deeds in each run, until so many changes were taken in.
#[test]
#[ignore = "ten million changes take minutes"]
fn ten_million_changes_violate_no_invariant() {
    let mut runner = TestRunner::default();
    let strategy = (any::<bool>(), deeds());
    let mut changes = 0;
    while changes < 10_000_000 {
        let (runs, deeds) = strategy.new_tree(&mut runner).unwrap().current();
        let mut world = first(runs);
        for deed in &deeds {
            world.does(*deed, None);
        }
        assert_eq!(world.violations, Vec::<String>::new(), "{runs} {deeds:?}");
        changes += world.changes;
    }
}

/// How a violation begins that is found without the guard.
fn found_without(guard: Guard) -> String {
    let mut runner = TestRunner::deterministic();
    let strategy = (any::<bool>(), deeds());
    for _ in 0..MOST {
        let (runs, deeds) = strategy.new_tree(&mut runner).unwrap().current();
        if let Some(found) = play(Some(guard), runs, &deeds).first() {
            return found.clone();
        }
    }
    panic!("without {guard:?} nothing is found in {MOST} schedules");
}

#[test]
fn each_guard_that_is_switched_off_is_found() {
    for guard in Guard::ALL {
        let found = found_without(guard);
        let expected = guard.found();
        assert!(
            expected.iter().any(|begins| found.starts_with(begins)),
            "{guard:?}: {found}"
        );
    }
}
