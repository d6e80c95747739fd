//! Answers to tool calls: results, approvals, denials, and timeouts. The replica that answers the last open call of a
//! turn without an owner becomes its owner.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;

use super::{
    Session, SessionState,
    change::{Answer, AnswerKind, Change, ClosedBy, ClosedCall, Event, RequestedCall, ResultMessage},
};
use crate::model::{CallId, MessageId, ToolExecutor, event::WaitsFor};

#[cfg(test)]
mod tests;

/// A user's approval of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    pub call: CallId,
    /// Arguments that replace the model's.
    pub edited: Option<String>,
    /// The encoded event that requests the result.
    pub request: Vec<u8>,
}

/// The step that follows the last answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextStep {
    /// The encoded `step_started`. `None` means the turn takes no further step.
    pub started: Option<Vec<u8>>,
    /// Size of its prompt in addition to the transcript, in tokens.
    pub size_offset: i64,
    /// The revision that `started` and `size_offset` were computed for. If another revision is current, the owner
    /// begins the step instead.
    pub revision: i64,
}

/// A call of the live turn that has no result yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCall {
    pub id: CallId,
    /// Name of the tool.
    pub tool: String,
    /// The step that made the call.
    pub step: u32,
    /// Index of the call in the step, and of its result in the message.
    pub position: u32,
    /// The message that will contain its result.
    pub results: MessageId,
    pub waits_for: WaitsFor,
    /// When the call times out. `None` means that it was not handed out yet because other calls precede it.
    pub deadline: Option<Timestamp>,
    /// The timeout, which starts when the call is handed out.
    pub timeout: Duration,
    /// The encoded event that hands out the call, if that has not happened yet.
    pub request: Option<Vec<u8>>,
    pub executor: ToolExecutor,
}

/// The state that a decision about answers is based on.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerSnapshot {
    pub session: Session,
    /// The open calls of its live turn, in the model's order.
    pub open: Vec<OpenCall>,
    /// The database's time.
    pub now: Timestamp,
}

/// Submitted answers.
#[derive(Debug, Clone, Copy)]
pub struct Answers<'a> {
    /// Answers that close a call.
    pub closing: &'a [Answer],
    pub approvals: &'a [Approval],
    /// Tokens of a message in addition to its parts.
    pub overhead: u32,
    /// The step that follows the last answer.
    pub next: &'a NextStep,
    /// The replica that handles the request; it may become the turn's owner.
    pub replica: &'a str,
    /// Duration of the owner's lease.
    pub lease: Duration,
}

/// The outcome of answers.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswersOutcome<'a> {
    /// The change to commit. `None` means no answer was accepted.
    pub change: Option<Change<'a>>,
    /// The calls whose answers were accepted, in the order of the answers.
    pub accepted: Vec<CallId>,
    /// Calls to be run on MCP servers from now on.
    pub to_run: BTreeSet<CallId>,
    /// This replica is now the owner of the turn.
    pub resumes: bool,
    /// The calls that are handed out from now on, in the model's order.
    pub pending: Vec<CallId>,
}

/// Decides about answers. Accepted are only calls of the live turn that were handed out, each at most once, and none if
/// a cancel of the turn was requested.
pub fn apply<'a>(seen: &AnswerSnapshot, answers: &Answers<'a>) -> AnswersOutcome<'a> {
    let Batch { closed, approved, left } = Batch::new(seen, answers);
    let asked_before = |call: &&OpenCall| call.deadline.is_some();
    // In sequential execution, the next call is handed out after the result of the previous one.
    let due = match closed.is_empty() || left.iter().any(asked_before) {
        true => None,
        false => left.first().copied(),
    };
    let is_due = |call: &OpenCall| due.is_some_and(|due| due.id == call.id);
    let pending: Vec<&OpenCall> = left.iter().copied().filter(|call| call.deadline.is_some() || is_due(call)).collect();
    if closed.is_empty() && approved.is_empty() {
        return AnswersOutcome {
            change: None,
            accepted: Vec::new(),
            to_run: BTreeSet::new(),
            resumes: false,
            pending: ids(&pending),
        };
    }
    let closes = left.is_empty();
    let resumes = closes && seen.session.state == SessionState::AwaitingTools;
    let mut writing = Writing::new(seen, answers);
    for (call, answer) in &closed {
        writing.close(call, answer);
    }
    for (call, approval) in &approved {
        writing.approve(call, approval);
    }
    if let Some(call) = due {
        writing.ask(call);
    }
    if !approved.is_empty() || due.is_some() {
        let runs =
            |call: &&OpenCall| call.waits_for != WaitsFor::Approval || approved.iter().any(|(it, _)| it.id == call.id);
        let (to_run, to_decide): (Vec<&OpenCall>, Vec<&OpenCall>) = pending.iter().copied().partition(runs);
        writing.action_required(&to_run, &to_decide);
    }
    if let Some((first, _)) = closed.first().filter(|_| closes) {
        writing.complete_batch(first, resumes);
    } else {
        let asked_now = |call: &OpenCall| is_due(call) || approved.iter().any(|(it, _)| it.id == call.id);
        writing.wait_for(&pending, asked_now);
    }
    let mut to_run: BTreeSet<CallId> = approved.iter().map(|(call, _)| *call).filter(by_mcp).map(id).collect();
    let requested = due.filter(|call| call.waits_for != WaitsFor::Approval);
    to_run.extend(requested.filter(by_mcp).map(id));
    AnswersOutcome {
        accepted: closed.iter().map(|(call, _)| id(call)).chain(approved.iter().map(|(call, _)| id(call))).collect(),
        change: Some(writing.change),
        to_run,
        resumes,
        pending: ids(&pending),
    }
}

fn by_mcp(call: &&OpenCall) -> bool {
    call.executor == ToolExecutor::Mcp
}

fn id(call: &OpenCall) -> CallId {
    call.id.clone()
}

fn ids(calls: &[&OpenCall]) -> Vec<CallId> {
    calls.iter().map(|call| id(call)).collect()
}

/// The open calls, grouped by the effect of the answers.
struct Batch<'s, 'a> {
    /// Closed calls, in the order of the answers.
    closed: Vec<(&'s OpenCall, &'a Answer)>,
    /// Approved calls, in the order of the approvals.
    approved: Vec<(&'s OpenCall, &'a Approval)>,
    /// Calls that stay open, in the model's order.
    left: Vec<&'s OpenCall>,
}

impl<'s, 'a> Batch<'s, 'a> {
    fn new(seen: &'s AnswerSnapshot, answers: &Answers<'a>) -> Self {
        let session = &seen.session;
        let counts = session.state.is_live() && session.cancel.is_none();
        let open: BTreeMap<&CallId, &OpenCall> =
            seen.open.iter().filter(|_| counts).map(|call| (&call.id, call)).collect();
        let mut named = BTreeSet::new();
        let first = answers.closing.iter().filter(|it| named.insert(&it.call));
        let closed: Vec<_> = first
            .filter_map(|answer| Some((*open.get(&answer.call)?, answer)))
            .filter(|(call, answer)| seen.accepts(call, answer.kind))
            .collect();
        let is_closed = |call: &CallId| closed.iter().any(|(it, _)| it.id == *call);
        let mut named = BTreeSet::new();
        let first = answers.approvals.iter().filter(|it| named.insert(&it.call));
        let approved = first
            .filter_map(|approval| Some((*open.get(&approval.call)?, approval)))
            .filter(|(call, _)| call.awaits_approval() && !is_closed(&call.id))
            .collect();
        let left = seen.open.iter().filter(|it| !is_closed(&it.id)).collect();
        Self { closed, approved, left }
    }
}

impl OpenCall {
    fn awaits_approval(&self) -> bool {
        self.waits_for == WaitsFor::Approval && self.deadline.is_some()
    }
}

impl AnswerSnapshot {
    /// Whether a call accepts an answer of this kind.
    fn accepts(&self, call: &OpenCall, kind: AnswerKind) -> bool {
        let Some(deadline) = call.deadline else {
            return false;
        };
        match kind {
            AnswerKind::Result { edited } => call.waits_for == WaitsFor::Result { edited },
            AnswerKind::Denial => call.waits_for == WaitsFor::Approval,
            AnswerKind::Overdue => {
                let end = self.session.turn_deadline;
                end.map_or(deadline, |end| end.min(deadline)) < self.now
            }
        }
    }
}

/// A change under construction.
struct Writing<'s, 'a> {
    seen: &'s AnswerSnapshot,
    answers: Answers<'a>,
    change: Change<'a>,
}

impl<'s, 'a> Writing<'s, 'a> {
    fn new(seen: &'s AnswerSnapshot, answers: &Answers<'a>) -> Self {
        Self { seen, answers: *answers, change: Change::of(&seen.session) }
    }

    fn close(&mut self, call: &OpenCall, answer: &'a Answer) {
        self.change.event(call.step, Event::CallCompleted(call.id.clone()));
        let session = &mut self.change.session;
        session.open_calls = session.open_calls.saturating_sub(1);
        self.change.count_result(answer.tokens);
        self.change.closed.push(ClosedCall {
            call: call.id.clone(),
            closed_by: ClosedBy::Answer(answer),
            tool: call.tool.clone(),
            position: call.position,
            message: call.results.clone(),
        });
    }

    fn approve(&mut self, call: &OpenCall, approval: &Approval) {
        let edited = approval.edited.is_some();
        let waits_for = WaitsFor::Result { edited };
        let request = approval.request.clone();
        self.hand_out(call, waits_for, request, approval.edited.clone());
    }

    fn ask(&mut self, call: &OpenCall) {
        let request = call.request.clone().unwrap_or_default();
        self.hand_out(call, call.waits_for, request, None);
    }

    fn hand_out(&mut self, call: &OpenCall, waits_for: WaitsFor, request: Vec<u8>, edited: Option<String>) {
        let step = self.change.session.step;
        let event = Event::CallRequested { call: call.id.clone(), waits_for, request };
        self.change.event(step, event);
        self.change.requested_calls.push(RequestedCall { call: call.id.clone(), waits_for, edited });
    }

    fn action_required(&mut self, to_run: &[&OpenCall], to_decide: &[&OpenCall]) {
        let step = self.change.session.step;
        let event = Event::ActionRequired {
            calls: to_run.iter().chain(to_decide).map(|call| id(call)).collect(),
            to_run: to_run.len(),
        };
        self.change.event(step, event);
    }

    /// All calls have their results: commits the message, and the turn continues.
    fn complete_batch(&mut self, first: &OpenCall, resumes: bool) {
        let overhead = self.answers.overhead;
        let id = first.results.clone();
        let at = self.change.events.len();
        let step = first.step;
        self.change.event(step, Event::MessageCommitted(id.clone()));
        self.change.message = Some((at, ResultMessage { id, step, overhead }));
        self.change.count_message(overhead);
        self.change.session.wake_at = None;
        if resumes {
            self.resume();
        }
    }

    fn resume(&mut self) {
        let Answers { next, replica, lease, .. } = self.answers;
        self.change.lease = Some(lease);
        let session = &mut self.change.session;
        session.give_to(replica);
        session.takeovers = 0;
        let NextStep { started: Some(started), size_offset, revision } = next else {
            return;
        };
        // The owner begins the step if the revision differs or if messages are queued for the turn.
        if *revision != session.revision || session.has_messages_for_turn() {
            return;
        }
        session.step += 1;
        session.attempt = 1;
        let prompt_tokens = session.context_tokens() + size_offset;
        let step = session.step;
        let event = Event::StepStarted { revision: *revision, prompt_tokens, started: started.clone() };
        self.change.event(step, event);
    }

    fn wait_for(&mut self, pending: &[&OpenCall], asked_now: impl Fn(&OpenCall) -> bool) {
        let (now, before): (Vec<&OpenCall>, Vec<&OpenCall>) = pending.iter().copied().partition(|call| asked_now(call));
        let deadlines = before.iter().filter_map(|call| call.deadline);
        self.change.session.wake_at = deadlines.chain(self.seen.session.turn_deadline).min();
        self.change.wake_within = now.iter().map(|call| call.timeout).min();
    }
}
