//! A session in a database, and replicas that see it now and then.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use super::{
    super::{
        CancelRequest, Session, SessionState, Waiting,
        answers::{self, Answers, NextStep, OpenCall, Seen},
        append,
        cancel::{self, Before, Cancel},
        change::{Answer, AnswerKind, Change, Synthetic},
        compaction::{self, Applied, Beginning},
        compaction_rows::{Cost, Replacement, Running},
        config_rows::NewConfig,
        cost::StepCost,
        counters::Shift,
        deletion::{self, Deletion},
        ending::{self, End, Open},
        marks::{self, Marking},
        new_calls::{Batch, CallFate, NewCall},
        ownership::{self, Heir},
        queue::{self, Which},
        queue_rows::{Joining, Withdrawal},
        revision::{self, NewRevision},
        rows::Rows,
        samples::{answer_rows, at, compaction as sample},
        start::{self, NewTurn, Opening},
        steps::{self, NewStep, Owner, Standing},
        take::{self, Advance, Taken, Taking},
    },
    guards::{Guard, in_finish, in_start, in_take},
    rules::{Act, violation},
    stored::{LEASE, MOST_WAITING, Stored, lease},
};
use crate::{
    model::{
        CallId, CancelCause, CancelOutcome, CompactionId, CompletionReason, Content, Delivery,
        Ending, MessageId, Part, Payload, PruneReport, Seq, SessionConfig, ToolExecutor, TurnFence,
        TurnId, TurnResult,
        command::TurnRequest,
        event::{CallCancelReason, WaitsFor},
    },
    session::change::TurnRow,
};

pub(super) const REPLICAS: [&str; 3] = ["one", "two", "three"];

/// What somebody does at a replica.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    /// Time passes.
    Wait(u8),
    /// It reads the session. All that it decides goes by that.
    Look(usize),
    /// Its heartbeat renews the lease that it has.
    Beat(usize),
    /// It takes the turn over, under the epoch that it saw before it looked last.
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
    /// A host answers the first call there, or all.
    Answer(usize, bool),
    /// As the owner it ends the turn as the model wants.
    Finish(usize),
    /// As the owner it ends the turn in any case: as completed, or as failed.
    Stop(usize, bool),
    /// A client queues a message there, which may start a turn.
    Enqueue(usize, Delivery, bool),
    /// A client withdraws all messages that it was told of.
    Withdraw(usize),
    /// As the owner it takes what it saw waiting when it looked before the last time, perhaps into a
    /// further step.
    Take(usize, bool),
    /// It takes what waits in an idle session.
    TakeIdle(usize),
    /// A client deletes the session there, as it was seen.
    Delete(usize),
    /// It takes the turn from its owner, for a session that is to be deleted.
    Seize(usize),
    /// It begins a turn, for the newest message or its own input.
    Start(usize, bool),
    /// A client changes the configuration there, perhaps by another one than is in force.
    Update(usize, bool),
    /// It begins a compaction.
    Compact(usize),
    /// It looks, and puts the compaction in force that it began last, however that stands.
    Swap(usize),
    /// It looks, and a client takes the newest compaction back there, or the oldest.
    Revert(usize, bool),
    /// Old results are cleared there.
    Prune(usize),
}

/// A session as a replica saw it.
#[derive(Debug, Clone)]
struct View {
    version: u64,
    session: Session,
    open: Vec<OpenCall>,
    now: Timestamp,
    /// What waited when it looked before that, and the epoch then.
    before: (Vec<Waiting>, i64),
    /// The compactions in force.
    in_force: Vec<Applied>,
}

/// A session, and whoever changes it.
pub(super) struct World {
    version: u64,
    stored: Stored,
    views: [View; REPLICAS.len()],
    /// The turn that the first cancel reached.
    reached: Option<TurnId>,
    /// The message that was queued last.
    newest: Option<Waiting>,
    /// The compaction that each replica began last, and how often the context had been rewritten then.
    making: [Option<(CompactionId, u64)>; REPLICAS.len()],
    /// How many ids were made.
    ids: u32,
    /// How many changes were taken in.
    pub(super) changes: u64,
    pub(super) violations: Vec<String>,
}

fn owner(who: usize) -> Owner<'static> {
    Owner {
        replica: REPLICAS[who],
        lease: lease(),
    }
}

fn heir(who: usize) -> Heir<'static> {
    Heir {
        replica: REPLICAS[who],
        lease: lease(),
    }
}

/// Calls that the host was asked for.
pub(super) fn open_calls(positions: std::ops::Range<u32>) -> Vec<OpenCall> {
    positions
        .map(|position| open_call(position, position))
        .collect()
}

fn open_call(id: u32, position: u32) -> OpenCall {
    OpenCall {
        id: CallId::new(format!("c{id}")),
        tool: "look".to_owned(),
        step: 2,
        position,
        results: MessageId::new("results"),
        waits_for: WaitsFor::Result { edited: false },
        deadline: Some(at(100)),
        timeout: Duration::from_secs(60),
        request: None,
        executor: ToolExecutor::Host,
    }
}

impl World {
    pub(super) fn new(session: Session, open: Vec<OpenCall>) -> Self {
        let lease_until = if session.owner.is_some() { LEASE } else { -1 };
        let view = View {
            version: 0,
            session: session.clone(),
            open: open.clone(),
            now: at(0),
            before: (Vec::new(), session.fence.epoch),
            in_force: Vec::new(),
        };
        Self {
            version: 0,
            stored: Stored {
                session,
                open,
                now: 0,
                lease_until,
                making_until: -1,
                in_force: Vec::new(),
                rewritten: 0,
                ended: BTreeSet::new(),
            },
            views: [view.clone(), view.clone(), view],
            reached: None,
            newest: None,
            making: Default::default(),
            ids: 10,
            changes: 0,
            violations: Vec::new(),
        }
    }

    fn next_id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    pub(super) fn does(&mut self, deed: Deed, guard: Option<Guard>) {
        match deed {
            Deed::Wait(seconds) => self.stored.now += i64::from(seconds),
            Deed::Look(who) => self.looks(who),
            Deed::Beat(who) => {
                if self.stored.session.is_owned_by(REPLICAS[who]) {
                    self.stored.lease_until = self.stored.now + LEASE;
                    self.version += 1;
                }
            }
            Deed::TakeOver(who) => self.takes_over(who, guard),
            Deed::Cancel(who, rollback, again) => self.cancels(who, rollback, again, guard),
            Deed::HandOver(who) => {
                self.as_owner(who, Act::GiveBack, guard, |session, right| {
                    ownership::hand_over(session, right, REPLICAS[who])
                });
            }
            Deed::Release(who) => {
                self.as_owner(who, Act::GiveBack, guard, |session, right| {
                    ownership::release(session, right.turn, right.fence.epoch, REPLICAS[who])
                });
            }
            Deed::Adopt(who) => {
                self.as_owner(who, Act::Adopt, guard, |session, right| {
                    ownership::adopt(session, right.turn, right.fence.epoch, heir(who))
                });
            }
            Deed::Begin(who, current) => self.begins(who, current, guard),
            Deed::Retry(who) => {
                let rows = Rows::default();
                let cost = StepCost::default();
                self.writes(who, Act::Step, guard, |session| {
                    Some(steps::retry(session, &rows, &cost, None, owner(who)))
                });
            }
            Deed::Append(who, calls) => self.appends(who, calls, guard),
            Deed::Answer(who, all) => self.answers(who, all, guard),
            Deed::Finish(who) => self.finishes(who, guard),
            Deed::Stop(who, completed) => self.stops(who, completed, guard),
            Deed::Enqueue(who, delivery, starts) => self.enqueues(who, delivery, starts, guard),
            Deed::Withdraw(who) => self.withdraws(who, guard),
            Deed::Take(who, advance) => self.takes(who, advance, guard),
            Deed::TakeIdle(who) => self.takes_idle(who, guard),
            Deed::Delete(who) => self.deletes(who, guard),
            Deed::Seize(who) => {
                let session = self.views[who].session.clone();
                let change = deletion::seize(&session, None, heir(who));
                self.commit(who, Act::Seize, change, guard);
            }
            Deed::Start(who, for_message) => self.starts(who, for_message, guard),
            Deed::Update(who, current) => self.updates(who, current, guard),
            Deed::Compact(who) => self.compacts(who, guard),
            Deed::Swap(who) => self.swaps(who, guard),
            Deed::Revert(who, newest) => self.reverts(who, newest, guard),
            Deed::Prune(who) => self.prunes(who, guard),
        }
    }

    fn looks(&mut self, who: usize) {
        let before = &self.views[who].session;
        self.views[who] = View {
            version: self.version,
            before: (before.queue.clone(), before.fence.epoch),
            session: Session {
                lease_is_over: self.stored.lease_until < self.stored.now,
                compaction: self
                    .stored
                    .session
                    .compaction
                    .clone()
                    .map(|running| Running {
                        lease_is_over: self.stored.making_until < self.stored.now,
                        ..running
                    }),
                ..self.stored.session.clone()
            },
            in_force: self.stored.in_force.clone(),
            open: self.stored.open.clone(),
            now: at(self.stored.now),
        };
    }

    fn takes_over(&mut self, who: usize, guard: Option<Guard>) {
        let View {
            mut session,
            now,
            before: (_, seen),
            ..
        } = self.views[who].clone();
        let mut epoch = seen;
        if guard == Some(Guard::LeaseInTakeover) {
            session.lease_is_over = true;
        }
        if guard == Some(Guard::EpochInTakeover) {
            epoch = session.fence.epoch;
        }
        let change = ownership::take_over(&session, epoch, heir(who), now);
        self.commit(who, Act::TakeOver { seen }, change, guard);
    }

    fn cancels(&mut self, who: usize, rollback: bool, again: bool, guard: Option<Guard>) {
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
        let session = self.views[who].session.clone();
        let change = cancel::apply(&session, &cancel, before.as_ref());
        let reached = change.as_ref().and_then(|it| it.session.turn.clone());
        if self.commit(who, Act::Cancel, change, guard) {
            self.reached = reached;
        }
    }

    fn begins(&mut self, who: usize, current: bool, guard: Option<Guard>) {
        let made_for = self.stored.session.revision + i64::from(!current);
        let step = NewStep {
            revision: made_for,
            in_any_case: guard == Some(Guard::RevisionInBegin),
            started: b"",
            size_offset: 0,
        };
        self.writes(who, Act::Begin { made_for }, guard, |session| {
            steps::begin(session, &step, owner(who))
        });
    }

    fn appends(&mut self, who: usize, calls: bool, guard: Option<Guard>) {
        let rows = answer_rows(20);
        let cost = StepCost::default();
        let id = self.next_id();
        let batch = calls.then(|| Batch {
            message: MessageId::new("answer"),
            results: MessageId::new("results"),
            calls: vec![NewCall {
                id: CallId::new(format!("c{id}")),
                name: "look".to_owned(),
                part: 0,
                fate: CallFate::Asked(WaitsFor::Result { edited: false }),
                timeout: Duration::from_secs(10),
                executor: ToolExecutor::Host,
            }],
        });
        let written = self.writes(who, Act::Step, guard, |session| {
            let batch = batch.as_ref();
            Some(append::apply(session, &rows, &cost, batch, owner(who)))
        });
        if written && calls {
            let position = u32::try_from(self.stored.open.len()).unwrap();
            self.stored.open.push(open_call(id, position));
        }
    }

    fn answers(&mut self, who: usize, all: bool, guard: Option<Guard>) {
        let View {
            mut session,
            open,
            now,
            ..
        } = self.views[who].clone();
        let count = if all { open.len() } else { 1 };
        let closing: Vec<Answer> = open.iter().take(count).map(answer).collect();
        if guard == Some(Guard::CancelInAnswers) {
            session.cancel = None;
        }
        let next = NextStep {
            started: None,
            size_offset: 0,
            revision: session.revision,
        };
        let asked = Answers {
            closing: &closing,
            approvals: &[],
            overhead: 4,
            next: &next,
            replica: REPLICAS[who],
            lease: lease(),
        };
        let seen = Seen { session, open, now };
        let change = answers::apply(&seen, &asked).change;
        let closed: BTreeSet<CallId> = change
            .iter()
            .flat_map(|change| change.closed.iter().map(|closed| closed.call.clone()))
            .collect();
        if self.commit(who, Act::Answer, change, guard) {
            self.stored.open.retain(|call| !closed.contains(&call.id));
        }
    }

    fn finishes(&mut self, who: usize, guard: Option<Guard>) {
        let rows = answer_rows(5);
        let cost = StepCost::default();
        let ending = Ending::Completed(CompletionReason::Stop);
        let result = TurnResult::default();
        let end = end(&ending, &result);
        self.writes(who, Act::Finish, guard, |session| {
            let session = in_finish(session, guard);
            ending::finish(&session, &rows, &cost, &end, owner(who))
        });
    }

    fn stops(&mut self, who: usize, completed: bool, guard: Option<Guard>) {
        let rows = Rows::default();
        let cost = StepCost::default();
        let ending = match completed {
            true => Ending::Completed(CompletionReason::MaxSteps),
            false => Ending::Cancelled {
                cause: CancelCause::Requested,
                outcome: CancelOutcome::None,
                reason: String::new(),
                undone: None,
            },
        };
        let result = TurnResult::default();
        let end = end(&ending, &result);
        let calls = self.views[who].open.clone();
        let open = Open {
            calls: &calls,
            back: None,
        };
        let stopped = self.writes(who, Act::Stop, guard, |session| {
            Some(ending::stop(session, open, &rows, &cost, &end, owner(who)))
        });
        if stopped {
            self.stored.open.clear();
        }
    }

    fn enqueues(&mut self, who: usize, delivery: Delivery, starts: bool, guard: Option<Guard>) {
        let message = MessageId::new(format!("m{}", self.next_id()));
        let joining = Joining {
            message: &message,
            body: b"",
            blobs: &[],
            delivery,
            starts_turn: starts,
            execute: None,
            ttl: None,
            request: None,
        };
        let is_full = guard != Some(Guard::Full);
        let most = if is_full { MOST_WAITING } else { usize::MAX };
        let session = self.views[who].session.clone();
        let change = queue::join(&session, joining, most, heir(who));
        let newest = change
            .as_ref()
            .and_then(|it| it.session.queue.last().cloned());
        if self.commit(who, Act::Enqueue, change, guard) {
            self.newest = newest;
        }
    }

    fn withdraws(&mut self, who: usize, guard: Option<Guard>) {
        let View { session, now, .. } = self.views[who].clone();
        let why = Withdrawal::Cancelled;
        let change = queue::withdraw(&session, Which::All, why, b"", now);
        self.commit(who, Act::Withdraw, change, guard);
    }

    fn takes(&mut self, who: usize, advance: bool, guard: Option<Guard>) {
        let waited = self.views[who].before.0.clone();
        let for_turn = waited.iter().filter(|it| it.is_for_this_turn());
        let ids: Vec<MessageId> = for_turn.map(|it| it.message.clone()).collect();
        if ids.is_empty() {
            return;
        }
        let (rows, into) = (answer_rows(5), MessageId::new("user"));
        let taken = taken(&ids, &into);
        let taking = Taking {
            seen: None,
            rows: &rows,
            taken: &taken,
        };
        let step = match advance {
            true => Advance::MadeFor(self.stored.session.revision),
            false => Advance::Stay,
        };
        self.writes(who, Act::Take, guard, |session| {
            let session = in_take(session, &waited, guard);
            take::take(&session, &taking, step, owner(who))
        });
    }

    fn takes_idle(&mut self, who: usize, guard: Option<Guard>) {
        let mut session = self.views[who].session.clone();
        let for_turn = session.queue.iter().filter(|it| it.is_for_this_turn());
        let ids: Vec<MessageId> = for_turn.map(|it| it.message.clone()).collect();
        if ids.is_empty() {
            return;
        }
        if guard == Some(Guard::StateInTakeIdle) {
            session.state = SessionState::Idle;
        }
        let (rows, into) = (answer_rows(5), MessageId::new("user"));
        let taken = taken(&ids, &into);
        let taking = Taking {
            seen: Some(session.last_seq()),
            rows: &rows,
            taken: &taken,
        };
        let change = take::take_idle(&session, session.fence, session.revision, &taking);
        self.commit(who, Act::TakeIdle, change, guard);
    }

    fn deletes(&mut self, who: usize, guard: Option<Guard>) {
        let View { session, open, .. } = self.views[who].clone();
        let ending = Ending::Cancelled {
            cause: CancelCause::SessionDeleted,
            outcome: CancelOutcome::Unknown,
            reason: String::new(),
            undone: None,
        };
        let result = TurnResult::default();
        let end = end(&ending, &result);
        let wanted = Deletion {
            fence: session.fence,
            turn: session.live_turn().map(|turn| (turn, end)),
            revision: None,
            dropped: b"",
            stay: lease(),
        };
        let change = deletion::delete(&session, &open, &wanted);
        if self.commit(who, Act::Delete, change, guard) {
            self.stored.open.clear();
        }
    }

    fn starts(&mut self, who: usize, for_message: bool, guard: Option<Guard>) {
        let mut session = self.views[who].session.clone();
        let made_for = self.stored.session.revision + i64::from(self.ids.is_multiple_of(3));
        let turn = TurnId::new(format!("t{}", self.next_id()));
        let (rows, request) = (Rows::default(), TurnRequest::default());
        let new = NewTurn {
            turn: &turn,
            rows: &rows,
            timeout: Duration::from_secs(600),
            revision: if guard == Some(Guard::RevisionInStart) {
                session.revision
            } else {
                made_for
            },
            row: TurnRow {
                request_id: None,
                request: &request,
                model: "scripted/demo",
            },
        };
        let starter = self.newest.clone().filter(|_| for_message);
        let change = match &starter {
            Some(starter) => {
                session = in_start(&session, starter, guard);
                start::start_for(&session, &starter.message, &new, heir(who))
            }
            None => {
                if guard == Some(Guard::StateInStart) {
                    session.state = SessionState::Idle;
                }
                start::admit(&session, &new, Opening::Input, heir(who))
            }
        };
        let starter = starter.map(|it| it.message);
        self.commit(who, Act::Start { made_for, starter }, change, guard);
    }

    fn updates(&mut self, who: usize, current: bool, guard: Option<Guard>) {
        let mut session = self.views[who].session.clone();
        let made_for = session.revision - i64::from(!current);
        if guard == Some(Guard::RevisionInUpdate) {
            session.revision = made_for;
        }
        let config = SessionConfig::default();
        let revision = NewRevision {
            new: NewConfig {
                config: &config,
                tools_tokens: 0,
                estimator: "test",
            },
            from: made_for,
            events: &[],
        };
        let change = revision::update(&session, &revision);
        self.commit(who, Act::Update { made_for }, change, guard);
    }

    fn compacts(&mut self, who: usize, guard: Option<Guard>) {
        let mut session = self.views[who].session.clone();
        if guard == Some(Guard::RunningInCompact) {
            session.compaction = None;
        }
        let id = CompactionId::new(format!("k{}", self.next_id()));
        let started = Payload::CompactionStarted(Box::new(sample(id.as_str())));
        let beginning = Beginning {
            compaction: &id,
            seen: session.context_version,
            info: b"",
            started: &started,
            lease: lease(),
        };
        let change = compaction::begin(&session, &beginning);
        let rewritten = self.stored.rewritten;
        if self.commit(who, Act::Compact, change, guard) {
            self.stored.making_until = self.stored.now + LEASE;
            self.making[who] = Some((id, rewritten));
        }
    }

    fn swaps(&mut self, who: usize, guard: Option<Guard>) {
        let Some((id, rewritten)) = self.making[who].clone() else {
            return;
        };
        self.looks(who);
        let mut session = self.views[who].session.clone();
        if guard == Some(Guard::RunningInSwap) {
            session.compaction = Some(Running {
                id: id.clone(),
                context_version: session.context_version,
                lease_is_over: false,
            });
        }
        if let Some(running) = &mut session.compaction
            && guard == Some(Guard::ContextInSwap)
        {
            running.context_version = session.context_version;
        }
        let mut shift = Shift::default();
        shift.messages(-1, -4);
        let cost = Cost::default();
        let replacement = Replacement {
            from: Seq(1),
            to: Seq(2),
            kept: &[],
            hides_pinned: false,
            shift,
            rows: &Rows::default(),
            info: b"",
            cost: &cost,
        };
        let in_force = self.views[who].in_force.last().cloned();
        let change = compaction::swap(&session, in_force.as_ref(), &id, &replacement);
        let compaction = id.clone();
        let act = Act::Swap {
            compaction,
            rewritten,
        };
        if self.commit(who, act, change, guard) {
            self.stored.rewritten += 1;
            self.stored.in_force.push(Applied { id, shift });
        }
    }

    fn reverts(&mut self, who: usize, newest: bool, guard: Option<Guard>) {
        self.looks(who);
        let View {
            session, in_force, ..
        } = self.views[who].clone();
        let wanted = if newest {
            in_force.last()
        } else {
            in_force.first()
        };
        let Some(wanted) = wanted.cloned() else {
            return;
        };
        let known = match guard {
            Some(Guard::InForceInRevert) => Some(&wanted),
            Some(_) | None => in_force.last(),
        };
        let reverted = Payload::CompactionReverted(Box::new(sample(wanted.id.as_str())));
        let seen = session.context_version;
        let change = compaction::revert(&session, known, &wanted.id, seen, &reverted);
        let act = Act::Revert {
            compaction: wanted.id,
        };
        if self.commit(who, act, change, guard) {
            self.stored.rewritten += 1;
            self.stored.in_force.pop();
        }
    }

    fn prunes(&mut self, who: usize, guard: Option<Guard>) {
        let session = self.views[who].session.clone();
        let event = Payload::ContextPruned {
            report: PruneReport::default(),
        };
        let marking = Marking {
            seen: session.context_version,
            places: &[(MessageId::new("results"), 0)],
            tokens: 1,
            event: &event,
        };
        let change = marks::prune(&session, &marking, 12);
        if self.commit(who, Act::Prune, change, guard) {
            self.stored.rewritten += 1;
        }
    }

    /// A write of the owner's, if it takes itself for the owner.
    fn writes<'a>(
        &mut self,
        who: usize,
        act: Act,
        guard: Option<Guard>,
        decide: impl Fn(&Session) -> Option<Change<'a>>,
    ) -> bool {
        let session = self.views[who].session.clone();
        let Some(turn) = session.turn.clone() else {
            return false;
        };
        let right = TurnFence {
            turn: &turn,
            fence: session.fence,
        };
        let is_owner = steps::standing(&session, right, REPLICAS[who]) == Standing::Owner
            || guard == Some(Guard::Owner) && session.state == SessionState::Running;
        let change = if is_owner { decide(&session) } else { None };
        self.commit(who, act, change, guard)
    }

    fn as_owner(
        &mut self,
        who: usize,
        act: Act,
        guard: Option<Guard>,
        decide: impl Fn(&Session, TurnFence<'_>) -> Option<Change<'static>>,
    ) {
        let session = self.views[who].session.clone();
        let Some(turn) = session.turn.clone() else {
            return;
        };
        let right = TurnFence {
            turn: &turn,
            fence: session.fence,
        };
        let change = decide(&session, right);
        self.commit(who, act, change, guard);
    }

    /// Whether it was taken in.
    fn commit(
        &mut self,
        who: usize,
        act: Act,
        change: Option<Change<'_>>,
        guard: Option<Guard>,
    ) -> bool {
        let is_current = self.views[who].version == self.version || guard == Some(Guard::Version);
        let Some(change) = change.filter(|_| is_current) else {
            return false;
        };
        self.violations
            .extend(violation(&self.stored, REPLICAS[who], &act, &change));
        if let Some(lease) = change.lease {
            self.stored.lease_until = self.stored.now + i64::try_from(lease.as_secs()).unwrap();
        }
        let asked_until = change
            .wake_within
            .map(|within| at(self.stored.now) + within);
        let left = change.queue.leave.iter().map(|it| it.message.clone());
        self.stored.ended.extend(left);
        self.stored.session = change.session;
        self.stored.session.wake_at = [self.stored.session.wake_at, asked_until]
            .into_iter()
            .flatten()
            .min();
        self.version += 1;
        self.changes += 1;
        true
    }
}

fn answer(call: &OpenCall) -> Answer {
    Answer {
        call: call.id.clone(),
        kind: AnswerKind::Result { edited: false },
        part: Part::new(Content::Text("fine".to_owned())),
        tokens: 3,
        hash: String::new(),
        blobs: Vec::new(),
    }
}

fn end<'a>(ending: &'a Ending, result: &'a TurnResult) -> End<'a> {
    End {
        ending,
        result,
        synthetic: Synthetic {
            words: "closed",
            tokens: 7,
            overhead: 4,
            reason: CallCancelReason::TurnEnded,
        },
    }
}

fn taken<'a>(ids: &'a [MessageId], into: &'a MessageId) -> Vec<Taken<'a>> {
    let taken = |message| Taken {
        message,
        end: Ok(into),
        event: 1,
    };
    ids.iter().map(taken).collect()
}
