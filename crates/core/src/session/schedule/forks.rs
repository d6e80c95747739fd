//! Schedules of a fork: calls claim its id, copy its messages and open it, and a purge removes a fork whose call did
//! nothing for longer than its lease. If any one of the guards is switched off, a violation must be found.

use proptest::{collection::vec, prelude::*, strategy::ValueTree as _, test_runner::TestRunner};

use super::{
    super::{
        Session, SessionState,
        config_rows::NewConfig,
        counters::TokenCounters,
        creation::NewSession,
        fork::{self, CopyRange, ForkCopy},
    },
    stored::{LEASE, lease},
};
use crate::model::{Seq, SessionConfig, SessionId, TurnId};

/// Calls that compete for the same id.
const CALLS: [&str; 2] = ["fork:one", "fork:two"];
/// The last message of the source.
const LAST: i64 = 40;
/// Number of messages copied at once.
const PIECE: i64 = 15;
/// Maximum number of schedules to find a violation without a guard.
const MAX_SCHEDULES: u32 = 20_000;

#[derive(Debug, Clone, Copy)]
enum Action {
    Wait(u8),
    /// A call reads the row.
    Look(usize),
    /// It claims the id, if it is free.
    Claim(usize),
    /// It copies the next messages, and opens the fork after the last.
    Copy(usize),
    GiveUp(usize),
    /// The purge reads the row, gives up an abandoned fork, and removes one that was given up.
    PurgeLooks,
    Abandon,
    Remove,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    /// A commit compares the version of the row with the one read.
    Version,
    /// A call copies only the fork that it has claimed.
    Claim,
    /// A call whose lease has expired copies nothing.
    LeaseOfCopy,
    /// A fork is given up only after its lease has expired.
    LeaseOfPurge,
}

impl Guard {
    const ALL: [Self; 4] = [Self::Version, Self::Claim, Self::LeaseOfCopy, Self::LeaseOfPurge];
}

/// The row of the fork.
#[derive(Debug, Clone)]
struct Stored {
    session: Session,
    version: u64,
    lease_until: i64,
    /// Messages up to this seq are copied.
    copied: i64,
    /// The purge has started to remove its rows, one table after the other.
    is_going: bool,
}

#[derive(Debug, Default)]
struct World {
    now: i64,
    writes: u64,
    stored: Option<Stored>,
    seen: [Option<Stored>; CALLS.len()],
    purge: Option<Stored>,
    opened: u32,
    violations: Vec<String>,
}

impl World {
    fn does(&mut self, deed: Action, guard: Option<Guard>) {
        match deed {
            Action::Wait(seconds) => self.now += i64::from(seconds),
            Action::Look(call) => self.seen[call] = self.read(),
            Action::Claim(call) => self.claims(call),
            Action::Copy(call) => self.copies(call, guard),
            Action::GiveUp(call) => {
                let Some(seen) = self.seen[call].clone() else {
                    return;
                };
                let change = fork::give_up(&seen.session, &TurnId::new(CALLS[call]));
                if let Some(change) = change.filter(|_| self.is_current(&seen, guard)) {
                    self.write(change.session, seen.copied, true);
                }
            }
            Action::PurgeLooks => self.purge = self.read(),
            Action::Abandon => self.abandons(guard),
            Action::Remove => {
                let is_free = |it: &Stored| it.is_going && it.lease_until < self.now;
                if self.stored.as_ref().is_some_and(is_free) {
                    self.stored = None;
                }
            }
        }
    }

    fn read(&self) -> Option<Stored> {
        let mut stored = self.stored.clone()?;
        stored.session.lease_is_over = stored.lease_until < self.now;
        Some(stored)
    }

    fn is_current(&self, seen: &Stored, guard: Option<Guard>) -> bool {
        let stored = self.stored.as_ref();
        stored.is_some_and(|it| it.version == seen.version || guard == Some(Guard::Version))
    }

    /// An expired lease stays expired; a valid one is renewed.
    fn write(&mut self, session: Session, copied: i64, is_going: bool) {
        self.writes += 1;
        let lease_until = match session.lease_is_over {
            true => self.now - 1,
            false => self.now + LEASE,
        };
        self.stored = Some(Stored { session, version: self.writes, lease_until, copied, is_going });
    }

    fn claims(&mut self, call: usize) {
        if self.stored.is_some() {
            return;
        }
        let (claim, source) = (TurnId::new(CALLS[call]), SessionId::new("source"));
        let config = SessionConfig::default();
        let new =
            NewSession { config: NewConfig { config: &config, tools_tokens: 0, estimator: "test" }, last_epoch: 0 };
        let change = fork::claim(&new, &forking(&source, &claim), 0, &piece(0));
        self.write(change.session, PIECE, false);
        self.seen[call] = self.read();
    }

    fn copies(&mut self, call: usize, guard: Option<Guard>) {
        let Some(seen) = self.seen[call].clone() else {
            return;
        };
        let (claim, source) = (TurnId::new(CALLS[call]), SessionId::new("source"));
        let forking = forking(&source, &claim);
        let mut session = seen.session.clone();
        if guard == Some(Guard::Claim) && session.state == SessionState::Deleted {
            session.turn = Some(claim.clone());
        }
        if guard == Some(Guard::LeaseOfCopy) {
            session.lease_is_over = false;
        }
        let opens = seen.copied >= LAST;
        let change = match opens {
            true => fork::open(&session, &forking),
            false => fork::copy(&session, &forking, &piece(seen.copied)),
        };
        let Some(change) = change.filter(|_| self.is_current(&seen, guard)) else {
            return;
        };
        self.check_copy(&claim, &seen, opens);
        self.opened += u32::from(opens);
        self.write(change.session, seen.copied + PIECE, false);
        self.seen[call] = self.read();
    }

    /// Checks the invariants of each write by a call.
    fn check_copy(&mut self, claim: &TurnId, seen: &Stored, opens: bool) {
        let Some(stored) = &self.stored else { return };
        let wrong = if stored.session.turn.as_ref() != Some(claim) {
            Some("a call writes what another one has claimed")
        } else if stored.is_going {
            Some("a fork is copied that is being removed")
        } else if stored.copied != seen.copied {
            Some("messages are copied twice, or left out")
        } else if opens && stored.copied < LAST {
            Some("a fork is opened before its last message")
        } else {
            None
        };
        self.violations.extend(wrong.map(str::to_owned));
    }

    fn abandons(&mut self, guard: Option<Guard>) {
        let Some(seen) = self.purge.clone() else {
            return;
        };
        let mut session = seen.session.clone();
        if guard == Some(Guard::LeaseOfPurge) {
            session.lease_is_over = true;
        }
        let change = fork::abandon(&session);
        if let Some(change) = change.filter(|_| self.is_current(&seen, guard)) {
            let stored = self.stored.as_ref();
            if stored.is_some_and(|it| it.lease_until >= self.now) {
                let wrong = "a fork is removed whose call goes on";
                self.violations.push(wrong.to_owned());
            }
            self.write(change.session, seen.copied, true);
        }
    }
}

fn forking<'a>(source: &'a SessionId, claim: &'a TurnId) -> ForkCopy<'a> {
    ForkCopy { source, at: Seq(LAST), claim, lease: lease() }
}

fn piece(after: i64) -> CopyRange {
    let mut shift = TokenCounters::default();
    shift.messages(1, 4);
    CopyRange { seqs: Some((Seq(after), Seq(after + PIECE))), shift }
}

fn deeds() -> impl Strategy<Value = Vec<Action>> {
    let call = || 0..CALLS.len();
    let deed = prop_oneof![
        3 => (0..20_u8).prop_map(Action::Wait),
        3 => call().prop_map(Action::Look),
        2 => call().prop_map(Action::Claim),
        6 => call().prop_map(Action::Copy),
        1 => call().prop_map(Action::GiveUp),
        3 => Just(Action::PurgeLooks),
        3 => Just(Action::Abandon),
        2 => Just(Action::Remove),
    ];
    vec(deed, 0..60)
}

fn play(guard: Option<Guard>, deeds: &[Action]) -> World {
    let mut world = World::default();
    for deed in deeds {
        world.does(*deed, guard);
    }
    world
}

#[test]
fn no_schedule_of_calls_and_purges_copies_twice_or_removes_what_a_call_goes_on_with() {
    let mut runner = TestRunner::default();
    let mut opened = 0;
    for _ in 0..MAX_SCHEDULES {
        let deeds = deeds().new_tree(&mut runner).unwrap().current();
        let world = play(None, &deeds);
        assert_eq!(world.violations, Vec::<String>::new(), "{deeds:?}");
        opened += world.opened;
    }
    assert!(opened > MAX_SCHEDULES / 100, "hardly any fork was opened: {opened}");
}

#[test]
fn each_guard_of_a_fork_that_is_switched_off_is_found() {
    for guard in Guard::ALL {
        let mut runner = TestRunner::deterministic();
        let found = (0..MAX_SCHEDULES).find_map(|_| {
            let deeds = deeds().new_tree(&mut runner).unwrap().current();
            play(Some(guard), &deeds).violations.into_iter().next()
        });
        let found = found.unwrap_or_else(|| panic!("without {guard:?} nothing is found"));
        let expected: &[&str] = match guard {
            Guard::Version => &["a ", "messages"],
            Guard::Claim => &["a call writes what another one has claimed"],
            Guard::LeaseOfCopy => &["a fork is copied that is being removed"],
            Guard::LeaseOfPurge => &["a fork is removed whose call goes on"],
        };
        assert!(expected.iter().any(|begins| found.starts_with(begins)), "{guard:?}: {found}");
    }
}
