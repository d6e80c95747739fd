//! Random schedules of a turn's ownership and of its owner's writes: replicas decide by what they saw,
//! which may be long ago; a commit takes a change in if nobody wrote the session since.

use std::time::Duration;

use jiff::Timestamp;
use proptest::{collection::vec, prelude::*};

use super::{
    CancelRequest, Session, SessionState, append,
    cancel::{self, Before, Cancel},
    change::{Change, Event},
    cost::StepCost,
    new_calls::{Batch, CallFate, NewCall},
    ownership::{self, Heir},
    rows::Rows,
    samples::{answer_rows, at, running, waiting},
    steps::{self, NewStep, Owner, Standing},
};
use crate::model::{
    CallId, CancelCause, MessageId, ToolExecutor, TurnFence, TurnId, event::WaitsFor,
};

const REPLICAS: [&str; 3] = ["one", "two", "three"];
const LEASE: i64 = 15;

/// What a replica does.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// Time passes.
    Wait(u8),
    /// It reads the session. All that it decides goes by that.
    Look(usize),
    /// Its heartbeat renews the lease that it has.
    Beat(usize),
    /// It takes the turn over.
    TakeOver(usize),
    /// A client cancels there, perhaps with the messages, perhaps as it did before.
    Cancel(usize, bool, bool),
    /// It gives the turn back.
    HandOver(usize),
    /// The same, wherever the turn stands.
    Release(usize),
    /// It finds a turn that it runs without knowing it.
    Adopt(usize),
    /// As the owner it begins a step, perhaps one that is made for another revision.
    Begin(usize, bool),
    /// As the owner it begins another attempt.
    Retry(usize),
    /// As the owner it appends an answer, perhaps with a call.
    Append(usize, bool),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let replica = 0..REPLICAS.len();
    let deed = prop_oneof![
        (0..20_u8).prop_map(Deed::Wait),
        replica.clone().prop_map(Deed::Look),
        replica.clone().prop_map(Deed::Look),
        replica.clone().prop_map(Deed::Beat),
        replica.clone().prop_map(Deed::TakeOver),
        (replica.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(who, rollback, again)| Deed::Cancel(who, rollback, again)),
        replica.clone().prop_map(Deed::HandOver),
        replica.clone().prop_map(Deed::Release),
        replica.clone().prop_map(Deed::Adopt),
        (replica.clone(), any::<bool>()).prop_map(|(who, current)| Deed::Begin(who, current)),
        replica.clone().prop_map(Deed::Retry),
        (replica, any::<bool>()).prop_map(|(who, calls)| Deed::Append(who, calls)),
    ];
    vec(deed, 0..60)
}

/// A session as a replica saw it.
#[derive(Debug, Clone)]
struct View {
    version: u64,
    session: Session,
    now: Timestamp,
}

/// A session as a database keeps it.
struct World {
    version: u64,
    session: Session,
    now: i64,
    lease_until: i64,
    views: [View; REPLICAS.len()],
    /// The turn that the first cancel reached.
    reached: Option<TurnId>,
}

impl World {
    fn new(session: Session) -> Self {
        let lease_until = if session.owner.is_some() { LEASE } else { -1 };
        let view = View {
            version: 0,
            session: session.clone(),
            now: at(0),
        };
        Self {
            version: 0,
            session,
            now: 0,
            lease_until,
            views: [view.clone(), view.clone(), view],
            reached: None,
        }
    }

    fn does(&mut self, deed: Deed) {
        match deed {
            Deed::Wait(seconds) => self.now += i64::from(seconds),
            Deed::Look(who) => {
                let lease_is_over = self.lease_until < self.now;
                self.views[who] = View {
                    version: self.version,
                    session: Session {
                        lease_is_over,
                        ..self.session.clone()
                    },
                    now: at(self.now),
                };
            }
            Deed::Beat(who) => {
                if self.session.is_owned_by(REPLICAS[who]) {
                    self.lease_until = self.now + LEASE;
                    self.version += 1;
                }
            }
            Deed::TakeOver(who) => {
                let View { session, now, .. } = self.views[who].clone();
                let change = ownership::take_over(&session, session.fence.epoch, heir(who), now);
                self.commit(who, change);
            }
            Deed::Cancel(who, rollback, again) => self.cancels(who, rollback, again),
            Deed::HandOver(who) => {
                let session = self.views[who].session.clone();
                let turn = session.turn.clone().unwrap();
                let right = TurnFence {
                    turn: &turn,
                    fence: session.fence,
                };
                let change = ownership::hand_over(&session, right, REPLICAS[who]);
                self.commit(who, change);
            }
            Deed::Release(who) => {
                let session = self.views[who].session.clone();
                let turn = session.turn.clone().unwrap();
                let epoch = session.fence.epoch;
                let change = ownership::release(&session, &turn, epoch, REPLICAS[who]);
                self.commit(who, change);
            }
            Deed::Adopt(who) => {
                let session = self.views[who].session.clone();
                let turn = session.turn.clone().unwrap();
                let change = ownership::adopt(&session, &turn, session.fence.epoch, heir(who));
                self.commit(who, change);
            }
            Deed::Begin(who, current) => {
                let step = NewStep {
                    revision: self.session.revision + i64::from(!current),
                    in_any_case: false,
                    started: b"",
                    size_offset: 0,
                };
                self.writes(who, |session| steps::begin(session, &step, owner(who)));
            }
            Deed::Retry(who) => {
                let rows = Rows::default();
                let cost = StepCost::default();
                self.writes(who, |session| {
                    Some(steps::retry(session, &rows, &cost, None, owner(who)))
                });
            }
            Deed::Append(who, calls) => {
                let rows = answer_rows(20);
                let cost = StepCost::default();
                let batch = calls.then(one_call);
                self.writes(who, |session| {
                    let batch = batch.as_ref();
                    Some(append::apply(session, &rows, &cost, batch, owner(who)))
                });
            }
        }
    }

    /// A write of the owner's, if it takes itself for the owner.
    fn writes<'a>(&mut self, who: usize, decide: impl Fn(&Session) -> Option<Change<'a>>) {
        let session = self.views[who].session.clone();
        let turn = session.turn.clone().unwrap();
        let right = TurnFence {
            turn: &turn,
            fence: session.fence,
        };
        let is_owner = steps::standing(&session, right, REPLICAS[who]) == Standing::Owner;
        let change = decide(&session).filter(|_| is_owner);
        self.commit(who, change);
    }

    fn cancels(&mut self, who: usize, rollback: bool, again: bool) {
        let request = CancelRequest {
            cause: CancelCause::Requested,
            reason: REPLICAS[who].to_owned(),
            rollback,
        };
        let cancel = Cancel {
            turn: None,
            request: &request,
            replica: REPLICAS[who],
            lease: lease(),
        };
        let before = again.then(|| Before::Reached(self.reached.clone()));
        let change = cancel::apply(&self.views[who].session, &cancel, before.as_ref());
        let reached = change
            .as_ref()
            .and_then(|change| change.session.turn.clone());
        if self.commit(who, change) {
            self.reached = reached;
        }
    }

    /// Whether it was taken in.
    fn commit(&mut self, who: usize, change: Option<Change<'_>>) -> bool {
        let Some(change) = change.filter(|_| self.views[who].version == self.version) else {
            return false;
        };
        self.check(REPLICAS[who], &change);
        if let Some(lease) = change.lease {
            self.lease_until = self.now + i64::try_from(lease.as_secs()).unwrap();
        }
        let asked_until = change.wake_within.map(|within| at(self.now) + within);
        self.session = change.session;
        self.session.wake_at = [self.session.wake_at, asked_until]
            .into_iter()
            .flatten()
            .min();
        self.version += 1;
        true
    }

    /// What holds of every change.
    fn check(&self, who: &str, change: &Change<'_>) {
        let (before, after) = (&self.session, &change.session);
        let new_epoch = after.fence.epoch != before.fence.epoch;
        assert_eq!(after.fence.epoch, before.fence.epoch + i64::from(new_epoch));
        assert!(after.fence.op >= before.fence.op);
        if new_epoch {
            assert!(after.is_owned_by(who), "another replica is made the owner");
            assert_eq!(change.lease, Some(lease()));
            let was_own = before.owner.as_deref() == Some(who);
            let is_free = before.state == SessionState::AwaitingTools
                || before.owner.is_none()
                || self.lease_until < self.now;
            assert!(was_own || is_free, "a lease in force is lost: {before:?}");
        } else {
            let is_own = before.owner.as_deref() == Some(who);
            let given_back = after.owner.is_none() && is_own;
            assert!(
                given_back || after.owner == before.owner,
                "an owner without an epoch"
            );
            assert!(
                is_own || change.lease.is_none(),
                "another's lease is renewed"
            );
        }
        assert_eq!(after.next_seq.0, before.next_seq.0 + change.count());
        // Only its owner takes a turn further, each time by one operation.
        let progress = after.step > before.step || after.takeovers < before.takeovers;
        let written = after.fence.op == before.fence.op + 1 && before.is_owned_by(who);
        assert!(written || after.fence.op == before.fence.op);
        assert!(written || !progress && after.open_calls == before.open_calls);
        assert!(after.takeovers <= before.takeovers + 1);
        let failed = |(_, event): &(_, Event)| {
            matches!(
                event,
                Event::TurnRecovered {
                    handed_over: false,
                    ..
                }
            )
        };
        let more = after.takeovers.saturating_sub(before.takeovers);
        let counted = usize::try_from(more).unwrap();
        assert_eq!(
            change.events.iter().filter(|it| failed(it)).count(),
            counted
        );
        if let Some(first) = &before.cancel {
            let now = after.cancel.as_ref().expect("a cancel is forgotten");
            assert_eq!((now.cause, &now.reason), (first.cause, &first.reason));
            assert!(now.rollback || !first.rollback);
        }
        assert_eq!(after.turn, before.turn);
        assert!(after.step == before.step || after.step == before.step + 1);
        match after.state {
            SessionState::Running => {}
            SessionState::AwaitingTools => {
                assert!(after.open_calls > 0, "a turn waits for nothing");
                assert!(after.cancel.is_none(), "a turn waits that is to end");
                assert_eq!(after.owner, None);
            }
            SessionState::Idle | SessionState::Deleted => panic!("a turn ends: {after:?}"),
        }
    }
}

fn lease() -> Duration {
    Duration::from_secs(LEASE.unsigned_abs())
}

fn owner(who: usize) -> Owner<'static> {
    Owner {
        replica: REPLICAS[who],
        lease: lease(),
    }
}

fn one_call() -> Batch {
    Batch {
        message: MessageId::new("answer"),
        results: MessageId::new("results"),
        calls: vec![NewCall {
            id: CallId::new("c"),
            name: "look".to_owned(),
            part: 0,
            fate: CallFate::Asked(WaitsFor::Result { edited: false }),
            timeout: Duration::from_secs(10),
            executor: ToolExecutor::Host,
        }],
    }
}

fn heir(who: usize) -> Heir<'static> {
    Heir {
        replica: REPLICAS[who],
        lease: lease(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever replicas saw, and however late they act.
    #[test]
    fn a_lease_in_force_is_lost_to_nobody_and_each_owner_has_an_epoch_of_its_own(
        runs in any::<bool>(),
        deeds in deeds(),
    ) {
        let session = if runs {
            Session { owner: Some("one".to_owned()), ..running() }
        } else {
            waiting(2)
        };
        let mut world = World::new(session);
        for deed in deeds {
            world.does(deed);
        }
    }
}
