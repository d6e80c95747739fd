//! Tests of answers to calls: which are accepted, and what they change.

use std::{collections::BTreeSet, sync::LazyLock};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::{
    model::{CancelCause, Content, Fence, Part, Seq, ToolOutcome, ToolResult},
    session::{
        CancelRequest,
        change::ClosedBy,
        samples::{TURN_ENDS, asap, at, event_summaries, running, waiting},
    },
};

const LEASE: Duration = Duration::from_secs(15);
const OVERHEAD: u32 = 4;
const MCP_FROM: u32 = 3;

fn call(position: u32, waits_for: WaitsFor, deadline: Option<i64>) -> OpenCall {
    OpenCall {
        id: CallId::new(format!("c{position}")),
        tool: "look".to_owned(),
        step: 2,
        position,
        results: MessageId::new("results"),
        waits_for,
        deadline: deadline.map(at),
        timeout: Duration::from_secs(60 + u64::from(position)),
        request: deadline.is_none().then(|| vec![u8::try_from(position).unwrap()]),
        executor: if position < MCP_FROM { ToolExecutor::Host } else { ToolExecutor::Mcp },
    }
}

fn requested(position: u32) -> OpenCall {
    call(position, WaitsFor::Result { edited: false }, Some(100))
}

fn later(position: u32) -> OpenCall {
    call(position, WaitsFor::Result { edited: false }, None)
}

fn to_approve(position: u32) -> OpenCall {
    call(position, WaitsFor::Approval, Some(100))
}

fn seen(open: Vec<OpenCall>) -> AnswerSnapshot {
    AnswerSnapshot { session: waiting(u32::try_from(open.len()).unwrap()), open, now: at(50) }
}

fn answer(call: &str, kind: AnswerKind) -> Answer {
    let result = ToolResult {
        call: CallId::new(call),
        name: "look".to_owned(),
        parts: Vec::new(),
        outcome: ToolOutcome::Success,
        truncation: None,
        display_text: String::new(),
    };
    Answer {
        call: CallId::new(call),
        kind,
        part: Part::new(Content::ToolResult(result)),
        tokens: 10,
        hash: "hash".to_owned(),
        blobs: Vec::new(),
    }
}

fn result(call: &str) -> Answer {
    answer(call, AnswerKind::Result { edited: false })
}

fn approval(call: &str) -> Approval {
    Approval { call: CallId::new(call), edited: None, request: b"request".to_vec() }
}

fn next() -> NextStep {
    NextStep { started: Some(b"started".to_vec()), size_offset: 300, revision: 7 }
}

/// The outcome of answers with the usual next step.
fn decide<'a>(seen: &AnswerSnapshot, closing: &'a [Answer], approvals: &'a [Approval]) -> AnswersOutcome<'a> {
    static NEXT: LazyLock<NextStep> = LazyLock::new(next);
    decide_with(seen, closing, approvals, &NEXT)
}

fn decide_with<'a>(
    seen: &AnswerSnapshot,
    closing: &'a [Answer],
    approvals: &'a [Approval],
    next: &'a NextStep,
) -> AnswersOutcome<'a> {
    let answers = Answers { closing, approvals, overhead: OVERHEAD, next, replica: "here", lease: LEASE };
    apply(seen, &answers)
}

fn tokens(closed: &ClosedCall<'_>) -> u32 {
    match closed.closed_by {
        ClosedBy::Answer(answer) => answer.tokens,
        ClosedBy::Synthetic(synthetic) => synthetic.tokens,
    }
}

fn names(calls: &[CallId]) -> Vec<&str> {
    calls.iter().map(CallId::as_str).collect()
}

/// The events in short form.
fn events(decided: &AnswersOutcome<'_>) -> Vec<String> {
    event_summaries(&decided.change.as_ref().expect("a change").events)
}

#[test]
fn the_last_answer_commits_the_message_takes_the_turn_and_begins_the_next_step() {
    let seen = seen(vec![requested(0), requested(1)]);
    let answers = [result("c1"), result("c0")];
    let decided = decide(&seen, &answers, &[]);
    assert_eq!(
        events(&decided),
        ["completed c1 at 2.3", "completed c0 at 2.3", "committed results at 2.3", "step of 1324 at 3.1",]
    );
    let change = decided.change.unwrap();
    let expected = Session {
        state: SessionState::Running,
        fence: Fence { epoch: 6, op: 9 },
        owner: Some("here".to_owned()),
        lease_is_over: false,
        takeovers: 0,
        step: 3,
        attempt: 1,
        open_calls: 0,
        wake_at: None,
        next_seq: Seq(44),
        counters: seen.session.counters + change.counter_change,
        ..seen.session
    };
    assert_eq!(change.session, expected);
    assert_eq!((change.counter_change.messages, change.counter_change.size()), (1, 24));
    assert_eq!((change.lease, change.wake_within), (Some(LEASE), None));
    assert_eq!(change.message.unwrap().0, 2);
    assert_eq!(names(&decided.accepted), ["c1", "c0"]);
    assert!(decided.resumes && decided.pending.is_empty());
}

#[test]
fn the_last_answer_leaves_the_step_to_the_owner_where_it_cannot_tell_it() {
    let check = |what: &str, change: &dyn Fn(&mut AnswerSnapshot, &mut NextStep)| {
        let (mut seen, mut next) = (seen(vec![requested(0)]), next());
        change(&mut seen, &mut next);
        let answers = [result("c0")];
        let decided = decide_with(&seen, &answers, &[], &next);
        let session = decided.change.unwrap().session;
        assert_eq!((session.step, session.attempt), (2, 3), "{what}");
        assert!(decided.resumes, "{what}");
    };
    check("no further step", &|_, next| next.started = None);
    check("another revision", &|seen, _| seen.session.revision = 8);
    check("messages wait", &|seen, _| {
        seen.session.queue.push(asap("m"));
    });
}

#[test]
fn the_last_answer_of_a_turn_that_runs_leaves_it_to_its_owner() {
    let mut seen = seen(vec![requested(0)]);
    seen.session = Session { open_calls: 1, ..running() };
    let answers = [result("c0")];
    let decided = decide(&seen, &answers, &[]);
    assert_eq!(events(&decided), ["completed c0 at 2.3", "committed results at 2.3"]);
    let change = decided.change.unwrap();
    assert_eq!(change.session.owner.as_deref(), Some("there"));
    assert_eq!((change.session.fence.epoch, change.lease), (5, None));
    assert!(!decided.resumes);
}

#[test]
fn an_answer_counts_only_where_the_call_waits_for_it() {
    let check = |what: &str, open: OpenCall, answer: Answer, counts: bool| {
        let answers = [answer];
        let decided = decide(&seen(vec![open, requested(9)]), &answers, &[]);
        assert_eq!(decided.accepted.len(), usize::from(counts), "{what}");
        assert_eq!(decided.change.is_some(), counts, "{what}");
    };
    let edited = AnswerKind::Result { edited: true };
    let overdue = |second| call(0, WaitsFor::Result { edited: false }, Some(second));
    let late = answer("c0", AnswerKind::Overdue);
    check("a result", requested(0), result("c0"), true);
    check("of another call", requested(0), result("c5"), false);
    check("nobody was asked", later(0), result("c0"), false);
    check("to be approved", to_approve(0), result("c0"), false);
    check("other arguments", requested(0), answer("c0", edited), false);
    check("a denial", to_approve(0), answer("c0", AnswerKind::Denial), true);
    check("of a request", requested(0), answer("c0", AnswerKind::Denial), false);
    check("overdue", overdue(49), late.clone(), true);
    check("in time", overdue(50), late.clone(), false);
    let mut turn_is_over = seen(vec![overdue(90)]);
    turn_is_over.session.turn_deadline = Some(at(49));
    assert_eq!(decide(&turn_is_over, &[late], &[]).accepted.len(), 1);
}

#[test]
fn nothing_counts_in_a_turn_that_is_cancelled_or_over() {
    let check = |change: &dyn Fn(&mut Session)| {
        let mut seen = seen(vec![requested(0), to_approve(1)]);
        change(&mut seen.session);
        let (answers, approvals) = ([result("c0")], [approval("c1")]);
        assert_eq!(decide(&seen, &answers, &approvals).change, None);
    };
    check(&|session| {
        session.cancel = Some(CancelRequest { cause: CancelCause::Requested, reason: String::new(), rollback: false });
    });
    check(&|session| session.state = SessionState::Idle);
    check(&|session| session.state = SessionState::Deleted);
}

#[test]
fn a_call_is_closed_once_however_often_it_is_named() {
    let seen = seen(vec![requested(0), requested(1)]);
    let answers = [result("c0"), result("c0")];
    let decided = decide(&seen, &answers, &[]);
    assert_eq!(names(&decided.accepted), ["c0"]);
    assert_eq!(decided.change.unwrap().session.open_calls, 1);
}

#[test]
fn an_approved_call_is_requested_and_listed_before_those_to_decide_about() {
    let seen = seen(vec![to_approve(0), to_approve(1), requested(2)]);
    let approvals = [approval("c1"), approval("c1")];
    let decided = decide(&seen, &[], &approvals);
    assert_eq!(events(&decided), ["requested c1 at 2.3", "action 2 of c1 c2 c0 at 2.3"]);
    assert_eq!(names(&decided.pending), ["c0", "c1", "c2"]);
    let change = decided.change.unwrap();
    assert_eq!(change.session.wake_at, Some(at(100)));
    assert_eq!(change.wake_within, Some(Duration::from_secs(61)));
}

#[test]
fn a_call_that_is_denied_and_approved_at_once_is_denied() {
    let seen = seen(vec![to_approve(0), requested(1)]);
    let (answers, approvals) = ([answer("c0", AnswerKind::Denial)], [approval("c0")]);
    let decided = decide(&seen, &answers, &approvals);
    assert_eq!(events(&decided), ["completed c0 at 2.3"]);
}

#[test]
fn the_next_call_in_order_is_asked_about_once_no_other_waits() {
    let mut second = later(3);
    second.waits_for = WaitsFor::Approval;
    let seen = seen(vec![requested(0), later(1), second]);
    let answers = [result("c0")];
    let decided = decide(&seen, &answers, &[]);
    assert_eq!(events(&decided), ["completed c0 at 2.3", "requested c1 at 2.3", "action 1 of c1 at 2.3"]);
    let change = decided.change.unwrap();
    let Some(Event::CallRequested { request, .. }) = change.events.get(1).map(|(_, event)| event) else {
        panic!("{:?}", change.events)
    };
    assert_eq!(request, &[1]);
    assert_eq!(change.session.wake_at, Some(at(TURN_ENDS)));
    assert_eq!(change.wake_within, Some(Duration::from_secs(61)));
}

#[test]
fn no_call_is_asked_about_while_another_one_waits() {
    let seen = seen(vec![requested(0), requested(1), later(2)]);
    let answers = [result("c0")];
    let decided = decide(&seen, &answers, &[]);
    assert_eq!(events(&decided), ["completed c0 at 2.3"]);
    assert_eq!(names(&decided.pending), ["c1"]);
}

#[test]
fn calls_of_mcp_servers_are_run_by_who_hands_them_out() {
    let check = |seen: &AnswerSnapshot, closing: &[Answer], approvals: &[Approval], expected: &[&str]| {
        let to_run = decide(seen, closing, approvals).to_run;
        let expected = expected.iter().map(|it| CallId::new(*it));
        assert_eq!(to_run, expected.collect::<BTreeSet<_>>());
    };
    let approved = [approval("c3"), approval("c0")];
    check(&seen(vec![to_approve(0), to_approve(3)]), &[], &approved, &["c3"]);
    let answered = [result("c0")];
    check(&seen(vec![requested(0), later(3)]), &answered, &[], &["c3"]);
    let mut asked = later(3);
    asked.waits_for = WaitsFor::Approval;
    check(&seen(vec![requested(0), asked]), &answered, &[], &[]);
}

/// A session that is changed by answers and by time, as a store would keep it.
struct World {
    seen: AnswerSnapshot,
    closed: Vec<CallId>,
    owners: usize,
}

impl World {
    fn new(kinds: &[u8]) -> Self {
        let open = (0..).zip(kinds).map(|(position, kind)| match kind % 4 {
            0 => requested(position),
            1 => to_approve(position),
            2 => later(position),
            _ => call(position, WaitsFor::Approval, None),
        });
        let mut open: Vec<_> = open.collect();
        // At least one of them is handed out.
        open[0].deadline = Some(at(100));
        Self { seen: seen(open), closed: Vec::new(), owners: 0 }
    }

    /// Applies a change as the database would.
    fn commit(&mut self, change: &Change<'_>, resumes: bool) {
        for closed in &change.closed {
            self.closed.push(closed.call.clone());
        }
        let closed = &self.closed;
        self.seen.open.retain(|call| !closed.contains(&call.id));
        for asked in &change.requested_calls {
            let open = self.seen.open.iter_mut();
            let call = open.into_iter().find(|it| it.id == asked.call).unwrap();
            call.waits_for = asked.waits_for;
            call.deadline = Some(self.seen.now + call.timeout);
        }
        self.seen.session = change.session.clone();
        self.owners += usize::from(resumes);
    }

    /// Checks the invariants that hold after every change.
    fn check(&self, before: &AnswerSnapshot, decided: &AnswersOutcome<'_>) {
        let (session, change) = (&self.seen.session, decided.change.as_ref().unwrap());
        assert_eq!(session.open_calls as usize, self.seen.open.len());
        let written = i64::try_from(change.events.len()).unwrap();
        assert_eq!(session.next_seq.0, before.session.next_seq.0 + written);
        let unique: BTreeSet<_> = self.closed.iter().collect();
        assert_eq!(unique.len(), self.closed.len(), "closed twice");
        let asked = self.seen.open.iter().filter(|call| call.deadline.is_some());
        let asked: Vec<_> = asked.map(|call| call.id.clone()).collect();
        assert_eq!(asked, decided.pending);
        assert!(self.seen.open.is_empty() || !asked.is_empty(), "nobody is asked");
        assert_eq!(change.message.is_some(), self.seen.open.is_empty());
        assert_eq!(session.wake_at.is_some(), !self.seen.open.is_empty());
        let gained: u32 = change.closed.iter().map(tokens).sum();
        let overhead = if change.message.is_some() { OVERHEAD } else { 0 };
        assert_eq!(session.context_tokens() - before.session.context_tokens(), i64::from(gained + overhead));
    }
}

proptest! {
    /// Answers in any order, repeated, and from concurrent clients: every call is closed once, at least one open call
    /// is always handed out, and the turn gets one owner.
    #[test]
    fn every_call_is_closed_once_and_the_turn_goes_on_once(
        kinds in vec(any::<u8>(), 1..7),
        deeds in vec((any::<u8>(), vec(any::<Index>(), 1..4)), 0..40),
    ) {
        let mut world = World::new(&kinds);
        let all: Vec<_> = world.seen.open.iter().map(|call| call.id.to_string()).collect();
        for (deed, calls) in deeds {
            let named: Vec<&String> = calls.iter().map(|call| call.get(&all)).collect();
            let kind = match deed % 4 {
                0 => AnswerKind::Result { edited: false },
                1 => AnswerKind::Denial,
                2 => AnswerKind::Overdue,
                _ => AnswerKind::Result { edited: true },
            };
            if deed % 16 == 2 {
                world.seen.now = at(200);
            }
            let approve = deed % 5 == 0;
            let closing: Vec<_> = named.iter().map(|call| answer(call, kind)).collect();
            let approvals: Vec<_> = named.iter().map(|call| approval(call)).collect();
            let closing = if approve { &[][..] } else { &closing };
            let approvals = if approve { &approvals[..] } else { &[] };
            let before = world.seen.clone();
            let decided = decide(&before, closing, approvals);
            if let Some(change) = &decided.change {
                world.commit(change, decided.resumes);
                world.check(&before, &decided);
            }
        }
        let over = world.seen.open.is_empty();
        prop_assert_eq!(world.owners, usize::from(over));
    }
}
