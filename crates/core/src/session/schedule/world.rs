//! Simulation of a session in a database, and of replicas that read it from time to time.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use super::{
    super::{
        CancelRequest, QueuedMessage, Session, SessionState,
        answers::{self, AnswerSnapshot, Answers, NextStep, OpenCall},
        append,
        cancel::{self, Cancel, EarlierCancel},
        change::{Answer, AnswerKind, Change, SyntheticResult},
        compaction::AppliedCompaction,
        compaction_rows::RunningCompaction,
        cost::StepCost,
        deletion::{self, Deletion},
        ending::{self, OpenWork, TurnEnd},
        new_calls::{Batch, CallHandling, NewCall},
        ownership::{self, NewOwner},
        queue::{self, MessageSelection},
        queue_rows::{NewQueuedMessage, Withdrawal},
        rows::Rows,
        samples::{answer_rows, at},
        start::{self, NewTurn, StartFrom},
        steps::{self, NewStep, Owner, OwnerStatus},
        take::{self, Advance, TakeSelection, TakenMessage},
    },
    guards::{Guard, in_finish, in_start, in_take},
    rules::{Act, violation},
    stored::{LEASE, MAX_QUEUED, Stored, lease},
};
use crate::{
    model::{
        CallId, CancelCause, CancelOutcome, CompactionId, CompletionReason, Content, Delivery, Ending, MessageId, Part,
        ToolExecutor, TurnFence, TurnId, TurnResult,
        command::TurnRequest,
        event::{CallCancelReason, WaitsFor},
    },
    session::change::TurnRow,
};

pub(super) const REPLICAS: [&str; 3] = ["one", "two", "three"];

/// An action at a replica. The first number is the replica.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    /// Time passes.
    Wait(u8),
    /// The replica reads the session. Its decisions are based on this state.
    Look(usize),
    /// Its heartbeat renews its lease.
    Beat(usize),
    /// It takes over the turn, under the epoch of the previous read.
    TakeOver(usize),
    /// A client cancels, with or without a rollback, and possibly as a repeated request.
    Cancel(usize, bool, bool),
    /// It hands over the turn.
    HandOver(usize),
    /// It releases the turn, whatever its position.
    Release(usize),
    /// It finds a turn that it owns without knowing it.
    Adopt(usize),
    /// As the owner it begins a step, possibly one for another revision.
    Begin(usize, bool),
    /// As the owner it begins another attempt.
    Retry(usize),
    /// As the owner it appends a response, possibly with a call.
    Append(usize, bool),
    /// A host answers the first call, or all.
    Answer(usize, bool),
    /// As the owner it finishes the turn.
    Finish(usize),
    /// As the owner it stops the turn, as completed or as failed.
    Stop(usize, bool),
    /// A client enqueues a message, which may start a turn.
    Enqueue(usize, Delivery, bool),
    /// A client withdraws all messages that the replica read.
    Withdraw(usize),
    /// As the owner it takes the messages of the previous read, possibly into a new step.
    Take(usize, bool),
    /// It takes the messages that are queued in an idle session.
    TakeIdle(usize),
    /// A client deletes the session in the state that was read.
    Delete(usize),
    /// It takes the turn from its owner, for a session that is to be deleted.
    Seize(usize),
    /// It starts a turn, for the newest message or with its own input.
    Start(usize, bool),
    /// A client changes the configuration, possibly based on an outdated one.
    Update(usize, bool),
    /// It starts a compaction.
    Compact(usize),
    /// It reads, and applies the compaction that it started last, whatever its state.
    Swap(usize),
    /// It reads, and a client reverts the newest compaction, or the oldest.
    Revert(usize, bool),
    /// Old results are pruned.
    Prune(usize),
    /// A host appends messages, possibly with a call, after the context of the previous read.
    Import(usize, bool),
}

/// A session as read by a replica.
#[derive(Debug, Clone)]
pub(super) struct View {
    version: u64,
    pub(super) session: Session,
    open: Vec<OpenCall>,
    now: Timestamp,
    /// The session of the previous read.
    pub(super) before: Session,
    /// The applied compactions.
    pub(super) in_force: Vec<AppliedCompaction>,
}

/// A session, and the replicas that change it.
pub(super) struct World {
    version: u64,
    pub(super) stored: Stored,
    pub(super) views: [View; REPLICAS.len()],
    /// The turn that the first cancel applied to.
    reached: Option<TurnId>,
    /// The message that was enqueued last.
    newest: Option<QueuedMessage>,
    /// The compaction that each replica started last, and the number of rewrites of the context at that time.
    pub(super) making: [Option<(CompactionId, u64)>; REPLICAS.len()],
    /// Number of ids generated.
    ids: u32,
    /// Number of committed changes.
    pub(super) changes: u64,
    pub(super) violations: Vec<String>,
}

fn owner(who: usize) -> Owner<'static> {
    Owner { replica: REPLICAS[who], lease: lease() }
}

fn heir(who: usize) -> NewOwner<'static> {
    NewOwner { replica: REPLICAS[who], lease: lease() }
}

/// Calls that were handed out to the host.
pub(super) fn open_calls(positions: std::ops::Range<u32>) -> Vec<OpenCall> {
    positions.map(|position| open_call(position, position)).collect()
}

pub(super) fn open_call(id: u32, position: u32) -> OpenCall {
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
            before: session.clone(),
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

    pub(super) fn next_id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    /// The current revision, or another one.
    fn made_for(&self) -> i64 {
        self.stored.session.revision + i64::from(self.ids.is_multiple_of(3))
    }

    pub(super) fn does(&mut self, deed: Action, guard: Option<Guard>) {
        match deed {
            Action::Wait(seconds) => self.stored.now += i64::from(seconds),
            Action::Look(who) => self.looks(who),
            Action::Beat(who) => {
                if self.stored.session.is_owned_by(REPLICAS[who]) {
                    self.stored.lease_until = self.stored.now + LEASE;
                    self.version += 1;
                }
            }
            Action::TakeOver(who) => self.takes_over(who, guard),
            Action::Cancel(who, rollback, again) => self.cancels(who, rollback, again, guard),
            Action::HandOver(who) => {
                self.as_owner(who, Act::GiveBack, guard, |session, right| {
                    ownership::hand_over(session, right, REPLICAS[who])
                });
            }
            Action::Release(who) => {
                self.as_owner(who, Act::GiveBack, guard, |session, right| {
                    ownership::release(session, right.turn, right.fence.epoch, REPLICAS[who])
                });
            }
            Action::Adopt(who) => {
                self.as_owner(who, Act::Adopt, guard, |session, right| {
                    ownership::adopt(session, right.turn, right.fence.epoch, heir(who))
                });
            }
            Action::Begin(who, current) => self.begins(who, current, guard),
            Action::Retry(who) => {
                let rows = Rows::default();
                let cost = StepCost::default();
                self.writes(who, Act::Step, guard, |session| {
                    Some(steps::retry(session, &rows, &cost, None, owner(who)))
                });
            }
            Action::Append(who, calls) => self.appends(who, calls, guard),
            Action::Answer(who, all) => self.answers(who, all, guard),
            Action::Finish(who) => self.finishes(who, guard),
            Action::Stop(who, completed) => self.stops(who, completed, guard),
            Action::Enqueue(who, delivery, starts) => self.enqueues(who, delivery, starts, guard),
            Action::Withdraw(who) => self.withdraws(who, guard),
            Action::Take(who, advance) => self.takes(who, advance, guard),
            Action::TakeIdle(who) => self.takes_idle(who, guard),
            Action::Delete(who) => self.deletes(who, guard),
            Action::Seize(who) => {
                let session = self.views[who].session.clone();
                let change = deletion::take_over_for_deletion(&session, None, heir(who));
                self.commit(who, Act::Seize, change, guard);
            }
            Action::Start(who, for_message) => self.starts(who, for_message, guard),
            Action::Update(who, current) => self.updates(who, current, guard),
            Action::Compact(who) => self.compacts(who, guard),
            Action::Swap(who) => self.swaps(who, guard),
            Action::Revert(who, newest) => self.reverts(who, newest, guard),
            Action::Prune(who) => self.prunes(who, guard),
            Action::Import(who, asks) => self.imports(who, asks, guard),
        }
    }

    pub(super) fn looks(&mut self, who: usize) {
        let before = self.views[who].session.clone();
        self.views[who] = View {
            version: self.version,
            before,
            session: Session {
                lease_is_over: self.stored.lease_until < self.stored.now,
                compaction: self.stored.session.compaction.clone().map(|running| RunningCompaction {
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
        let View { mut session, now, before, .. } = self.views[who].clone();
        let seen = before.fence.epoch;
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
        let request = CancelRequest { cause: CancelCause::Requested, reason: REPLICAS[who].to_owned(), rollback };
        let cancel = Cancel { turn: None, request: &request, replica: REPLICAS[who], lease: lease() };
        let before = again.then(|| EarlierCancel::AppliedTo(self.reached.clone()));
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
        self.writes(who, Act::Begin { made_for }, guard, |session| steps::begin(session, &step, owner(who)));
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
                handling: CallHandling::Requested(WaitsFor::Result { edited: false }),
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
        let View { mut session, open, now, .. } = self.views[who].clone();
        let count = if all { open.len() } else { 1 };
        let closing: Vec<Answer> = open.iter().take(count).map(answer).collect();
        if guard == Some(Guard::CancelInAnswers) {
            session.cancel = None;
        }
        let next = NextStep { started: None, size_offset: 0, revision: session.revision };
        let asked = Answers {
            closing: &closing,
            approvals: &[],
            overhead: 4,
            next: &next,
            replica: REPLICAS[who],
            lease: lease(),
        };
        let seen = AnswerSnapshot { session, open, now };
        let change = answers::apply(&seen, &asked).change;
        let closed: BTreeSet<CallId> =
            change.iter().flat_map(|change| change.closed.iter().map(|closed| closed.call.clone())).collect();
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
        let open = OpenWork { calls: &calls, rollback: None };
        let stopped = self
            .writes(who, Act::Stop, guard, |session| Some(ending::stop(session, open, &rows, &cost, &end, owner(who))));
        if stopped {
            self.stored.open.clear();
        }
    }

    fn enqueues(&mut self, who: usize, delivery: Delivery, starts: bool, guard: Option<Guard>) {
        let message = MessageId::new(format!("m{}", self.next_id()));
        let joining = NewQueuedMessage {
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
        let most = if is_full { MAX_QUEUED } else { usize::MAX };
        let session = self.views[who].session.clone();
        let change = queue::enqueue(&session, joining, most, heir(who));
        let newest = change.as_ref().and_then(|it| it.session.queue.last().cloned());
        if self.commit(who, Act::Enqueue, change, guard) {
            self.newest = newest;
        }
    }

    fn withdraws(&mut self, who: usize, guard: Option<Guard>) {
        let View { session, now, .. } = self.views[who].clone();
        let why = Withdrawal::Cancelled;
        let change = queue::withdraw(&session, MessageSelection::All, why, b"", now);
        self.commit(who, Act::Withdraw, change, guard);
    }

    fn takes(&mut self, who: usize, advance: bool, guard: Option<Guard>) {
        let waited = self.views[who].before.queue.clone();
        let for_turn = waited.iter().filter(|it| it.is_for_this_turn());
        let ids: Vec<MessageId> = for_turn.map(|it| it.message.clone()).collect();
        if ids.is_empty() {
            return;
        }
        let (rows, into) = (answer_rows(5), MessageId::new("user"));
        let taken = taken(&ids, &into);
        let taking = TakeSelection { seen: None, rows: &rows, taken: &taken };
        let made_for = advance.then(|| self.made_for());
        let step = match made_for {
            Some(_) if guard == Some(Guard::RevisionInTake) => Advance::AnyRevision,
            Some(revision) => Advance::IfRevision(revision),
            None => Advance::Stay,
        };
        self.writes(who, Act::Take { made_for }, guard, |session| {
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
        if guard == Some(Guard::OpenCallsInTakeIdle) {
            session.open_calls = 0;
        }
        let (rows, into) = (answer_rows(5), MessageId::new("user"));
        let taken = taken(&ids, &into);
        let taking = TakeSelection { seen: Some(session.last_seq()), rows: &rows, taken: &taken };
        let change = take::take_idle(&session, session.fence, session.revision, &taking);
        self.commit(who, Act::TakeIdle, change, guard);
    }

    fn deletes(&mut self, who: usize, guard: Option<Guard>) {
        let View { session, open, before, .. } = self.views[who].clone();
        let seen = match guard {
            Some(Guard::SeenInDelete) => &session,
            Some(_) | None => &before,
        };
        let ending = Ending::Cancelled {
            cause: CancelCause::SessionDeleted,
            outcome: CancelOutcome::Unknown,
            reason: String::new(),
            undone: None,
        };
        let result = TurnResult::default();
        let end = end(&ending, &result);
        let wanted = Deletion {
            fence: seen.fence,
            turn: seen.live_turn().map(|turn| (turn, end)),
            revision: None,
            dropped: b"",
            stay: lease(),
        };
        let change = deletion::delete(&session, &open, &wanted);
        let act = Act::Delete { seen: before.fence };
        if self.commit(who, act, change, guard) {
            self.stored.open.clear();
        }
    }

    fn starts(&mut self, who: usize, for_message: bool, guard: Option<Guard>) {
        let mut session = self.views[who].session.clone();
        let made_for = self.made_for();
        let turn = TurnId::new(format!("t{}", self.next_id()));
        let (rows, request) = (Rows::default(), TurnRequest::default());
        let new = NewTurn {
            turn: &turn,
            rows: &rows,
            timeout: Duration::from_secs(600),
            revision: if guard == Some(Guard::RevisionInStart) { session.revision } else { made_for },
            row: TurnRow { request_id: None, request: &request, model: "scripted/demo" },
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
                if guard == Some(Guard::OpenCallsInStart) {
                    session.open_calls = 0;
                }
                start::admit(&session, &new, StartFrom::Input, heir(who))
            }
        };
        let starter = starter.map(|it| it.message);
        self.commit(who, Act::Start { made_for, starter }, change, guard);
    }

    /// A write as the owner, if the replica takes itself for the owner.
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
        let right = TurnFence { turn: &turn, fence: session.fence };
        let is_owner = steps::owner_status(&session, right, REPLICAS[who]) == OwnerStatus::Owner
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
        let right = TurnFence { turn: &turn, fence: session.fence };
        let change = decide(&session, right);
        self.commit(who, act, change, guard);
    }

    /// Returns whether the change was committed.
    pub(super) fn commit(&mut self, who: usize, act: Act, change: Option<Change<'_>>, guard: Option<Guard>) -> bool {
        let is_current = self.views[who].version == self.version || guard == Some(Guard::Version);
        let Some(change) = change.filter(|_| is_current) else {
            return false;
        };
        self.violations.extend(violation(&self.stored, REPLICAS[who], &act, &change));
        if let Some(lease) = change.lease {
            self.stored.lease_until = self.stored.now + i64::try_from(lease.as_secs()).unwrap();
        }
        let asked_until = change.wake_within.map(|within| at(self.stored.now) + within);
        let left = change.queue.removed.iter().map(|it| it.message.clone());
        self.stored.ended.extend(left);
        self.stored.session = change.session;
        self.stored.session.wake_at = [self.stored.session.wake_at, asked_until].into_iter().flatten().min();
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

fn end<'a>(ending: &'a Ending, result: &'a TurnResult) -> TurnEnd<'a> {
    TurnEnd {
        ending,
        result,
        synthetic: SyntheticResult { text: "closed", tokens: 7, overhead: 4, reason: CallCancelReason::TurnEnded },
    }
}

fn taken<'a>(ids: &'a [MessageId], into: &'a MessageId) -> Vec<TakenMessage<'a>> {
    let taken = |message| TakenMessage { message, end: Ok(into), event: 1 };
    ids.iter().map(taken).collect()
}
