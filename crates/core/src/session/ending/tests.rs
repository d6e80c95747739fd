//! Tests of the end of a turn: what prevents it, what it closes, and what is left for the next turn.

use super::*;
use crate::{
    model::{
        CallId, CancelCause, CancelOutcome, CompletionReason, Delivery, Failure, FailureReason, MessageId, Seq,
        ToolExecutor,
        event::{CallCancelReason, WaitsFor},
    },
    session::{
        CancelRequest, QueuedMessage,
        change::AnchorTime,
        counters::{Counter, TokenCounters},
        samples::{answer_rows, asap, event_summaries, measured, running, waiting, when_idle},
    },
};

const OWNER: Owner<'static> = Owner { replica: "there", lease: Duration::from_secs(15) };

const SYNTHETIC: SyntheticResult<'static> =
    SyntheticResult { text: "closed", tokens: 7, overhead: 4, reason: CallCancelReason::TurnEnded };

fn end<'a>(ending: &'a Ending, result: &'a TurnResult) -> TurnEnd<'a> {
    TurnEnd { ending, result, synthetic: SYNTHETIC }
}

fn completed() -> Ending {
    Ending::Completed(CompletionReason::Stop)
}

fn failed() -> Ending {
    Ending::Failed(Failure::local(FailureReason::Internal, String::new(), true))
}

fn cancelled() -> Ending {
    Ending::Cancelled {
        cause: CancelCause::Requested,
        outcome: CancelOutcome::None,
        reason: String::new(),
        undone: None,
    }
}

fn requested() -> Option<CancelRequest> {
    Some(CancelRequest { cause: CancelCause::Requested, reason: String::new(), rollback: false })
}

fn closing(calls: &[OpenCall]) -> OpenWork<'_> {
    OpenWork { calls, rollback: None }
}

fn open_call(n: u32) -> OpenCall {
    OpenCall {
        id: CallId::new(format!("c{n}")),
        tool: "look".to_owned(),
        step: 1,
        position: n,
        results: MessageId::new("results"),
        waits_for: WaitsFor::Result { edited: false },
        deadline: None,
        timeout: Duration::from_secs(60),
        request: None,
        executor: ToolExecutor::Host,
    }
}

/// The session after a finish, with the event of the end if there is one.
fn finished(session: &Session) -> Option<(Session, Option<Event>)> {
    let ending = completed();
    let result = TurnResult { elapsed: ONE_USE, ..TurnResult::default() };
    let rows = answer_rows(20);
    let cost = StepCost::default();
    let mut change = finish(session, &rows, &cost, &end(&ending, &result), OWNER)?;
    assert_eq!(change.rows, Some(&rows), "its words stay in any case");
    assert!(change.drops_partial);
    let last = change.events.pop().map(|(_, event)| event);
    assert_eq!(last.is_some(), change.turn.end.is_some());
    assert_eq!(last.is_some(), change.is_use);
    Some((change.session, last))
}

#[test]
fn the_end_of_a_turn_is_a_use_of_its_session_if_it_comes_ten_seconds_after_the_start() {
    let check = |seconds: u64, session: &Session, is_use: bool| {
        let result = TurnResult { elapsed: Duration::from_secs(seconds), ..TurnResult::default() };
        let (ending, rows, cost) = (completed(), answer_rows(20), StepCost::default());
        let change = finish(session, &rows, &cost, &end(&ending, &result), OWNER);
        assert_eq!(change.unwrap().is_use, is_use, "after {seconds} s");
    };
    check(9, &running(), false);
    check(10, &running(), true);
    let waited_for = Session { queue: vec![asap("a")], ..running() };
    check(10, &waited_for, false);
}

#[test]
fn a_turn_ends_unless_a_message_waits_for_it_or_a_cancel_was_requested() {
    let check = |what: &str, session: &Session, ends: bool, listed: &[&str]| {
        let (becoming, event) = finished(session).expect("no call is open");
        let state = if ends { SessionState::Idle } else { SessionState::Running };
        assert_eq!(becoming.state, state, "{what}");
        assert_eq!(becoming.owner.is_none(), ends, "{what}");
        assert_eq!(becoming.fence, session.fence.next(), "{what}");
        assert_eq!(becoming.takeovers, 0, "{what}");
        let seqs = answer_rows(20).count() + i64::from(ends);
        assert_eq!(becoming.next_seq, Seq(session.next_seq.0 + seqs), "{what}");
        assert_eq!(event.is_some(), ends, "{what}");
        if let Some(Event::TurnEnded { waiting, .. }) = event {
            let ids: Vec<&str> = waiting.iter().map(MessageId::as_str).collect();
            assert_eq!(ids, listed, "{what}");
        }
    };
    let with = |queue| Session { queue, ..running() };
    check("nothing waits", &running(), true, &[]);
    check("for its end", &with(vec![when_idle("m")]), true, &["m"]);
    check("for the turn", &with(vec![asap("m")]), false, &[]);
    let to_end = Session { cancel: requested(), ..running() };
    check("a cancel", &to_end, false, &[]);
}

#[test]
fn a_turn_with_an_open_call_does_not_finish() {
    let session = Session { open_calls: 1, ..running() };
    assert_eq!(finished(&session), None);
}

#[test]
fn the_lease_ends_with_the_turn_and_goes_on_with_it() {
    let (ending, result) = (completed(), TurnResult::default());
    let rows = answer_rows(20);
    let lease = |session: &Session| {
        let cost = StepCost::default();
        let change = finish(session, &rows, &cost, &end(&ending, &result), OWNER);
        change.expect("no call is open").lease
    };
    assert_eq!(lease(&running()), Some(Duration::ZERO));
    let goes_on = Session { queue: vec![asap("m")], ..running() };
    assert_eq!(lease(&goes_on), Some(OWNER.lease));
}

#[test]
fn a_stop_ends_the_turn_whatever_waits_and_closes_what_is_open() {
    let (ending, result) = (failed(), TurnResult::default());
    let rows = answer_rows(20);
    let open = [open_call(0), open_call(1)];
    let session = Session { open_calls: 2, queue: vec![asap("m")], cancel: requested(), ..running() };
    let cost = StepCost::default();
    let change = stop(&session, closing(&open), &rows, &cost, &end(&ending, &result), OWNER);
    let becoming = &change.session;
    assert_eq!(becoming.state, SessionState::Idle);
    assert_eq!((becoming.open_calls, &becoming.owner), (0, &None));
    let expected =
        ["closed c0 of look at 2.3", "closed c1 of look at 2.3", "committed results at 2.3", "end, 1 wait at 2.3"];
    assert_eq!(event_summaries(&change.events), expected);
    let message = ResultMessage { id: MessageId::new("results"), step: 1, overhead: 4 };
    assert_eq!(change.message, Some((2, message)));
    let closed: Vec<u32> = change.closed.iter().map(|it| it.position).collect();
    assert_eq!(closed, [0, 1]);
    let mut shift: TokenCounters = rows.shift();
    shift.count(Counter::ToolResults, 2, 14);
    shift.messages(1, 4);
    assert_eq!(change.counter_change, shift);
    assert_eq!(becoming.context_tokens(), 1_000 + shift.size());
    let seqs = rows.count() + 4;
    assert_eq!(becoming.next_seq, Seq(session.next_seq.0 + seqs));
}

#[test]
fn without_an_open_call_a_stop_writes_no_message_of_results() {
    let (ending, result) = (failed(), TurnResult::default());
    let rows = Rows::default();
    let cost = StepCost::default();
    let change = stop(&running(), OpenWork::default(), &rows, &cost, &end(&ending, &result), OWNER);
    assert_eq!((change.message, change.closed.len()), (None, 0));
    assert_eq!(change.events.len(), 1, "the end");
    assert_eq!(change.counter_change, TokenCounters::default());
}

#[test]
fn after_an_end_that_is_no_completion_only_some_messages_start_a_turn() {
    let starts = |message: &str| QueuedMessage { starts_turn: true, ..asap(message) };
    let queue = vec![
        starts("user"),
        QueuedMessage { of_execute: true, ..starts("execute") },
        QueuedMessage { delivery: Delivery::Interrupt, ..starts("interrupt") },
        asap("quiet"),
    ];
    let session = Session { queue, ..running() };
    let check = |ending: Ending, calmed: &[&str], starting: &[&str]| {
        let (rows, result) = (Rows::default(), TurnResult::default());
        let cost = StepCost::default();
        let end = end(&ending, &result);
        let change = stop(&session, OpenWork::default(), &rows, &cost, &end, OWNER);
        let ids: Vec<&str> = change.queue.cleared_turn_starts.iter().map(MessageId::as_str).collect();
        assert_eq!(ids, calmed, "{ending:?}");
        let starts = change.session.queue.iter().filter(|it| it.starts_turn);
        let ids: Vec<&str> = starts.map(|it| it.message.as_str()).collect();
        assert_eq!(ids, starting, "{ending:?}");
    };
    let some = ["execute", "interrupt"];
    check(completed(), &[], &["user", "execute", "interrupt"]);
    check(failed(), &["user"], &some);
    check(cancelled(), &["user"], &some);
}

#[test]
fn the_end_of_a_turn_measures_as_a_step_does() {
    let (ending, result) = (completed(), TurnResult::default());
    let rows = Rows::default();
    let cost = StepCost { measured: Some(measured("model", 3, 140)), ..StepCost::default() };
    let session = Session { anchor: Some(measured("model", 3, 100)), ..running() };
    let change = finish(&session, &rows, &cost, &end(&ending, &result), OWNER);
    let change = change.expect("no call is open");
    assert_eq!(change.anchor_time, AnchorTime::Now);
    assert_eq!(change.session.anchor, cost.measured);
    assert_eq!(change.session.growth, Some(40.0));
}

#[test]
fn a_turn_that_waits_is_stopped_by_whoever_took_it_for_that() {
    let (ending, result) = (cancelled(), TurnResult::default());
    let rows = Rows::default();
    let cost = StepCost::default();
    let mut session = waiting(1);
    session.give_to("there");
    let open = [open_call(0)];
    let change = stop(&session, closing(&open), &rows, &cost, &end(&ending, &result), OWNER);
    assert_eq!(change.session.state, SessionState::Idle);
    assert_eq!(change.session.fence, session.fence.next());
}
