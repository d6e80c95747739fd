//! Tests of the end of a step: whether the turn continues or waits, and what is measured.

use proptest::prelude::*;

use super::*;
use crate::{
    model::{Anchor, CallId, CancelCause, Fence, MessageId, Payload, Seq, ToolExecutor, event::WaitsFor},
    session::{
        CancelRequest,
        change::AnchorTime,
        new_calls::{CallHandling, NewCall},
        samples::{TURN_ENDS, answer_rows, at, measured, running},
    },
};

const OWNER: Owner<'static> = Owner { replica: "there", lease: Duration::from_secs(15) };

fn call(n: u64, fate: CallHandling) -> NewCall {
    NewCall {
        id: CallId::new(format!("c{n}")),
        name: "look".to_owned(),
        part: 0,
        handling: fate,
        timeout: Duration::from_secs(60 + n),
        executor: ToolExecutor::Host,
    }
}

fn asked() -> CallHandling {
    CallHandling::Requested(WaitsFor::Result { edited: false })
}

fn later() -> CallHandling {
    CallHandling::Later {
        waits_for: WaitsFor::Approval,
        request: Box::new(Payload::ToolCallCompleted { call: CallId::new("later") }),
    }
}

fn batch(fates: Vec<CallHandling>) -> Batch {
    Batch {
        message: MessageId::new("answer"),
        results: MessageId::new("results"),
        calls: (0..).zip(fates).map(|(n, fate)| call(n, fate)).collect(),
    }
}

fn append(session: &Session, batch: Option<&Batch>) -> (Session, Option<Duration>, Option<Duration>) {
    let rows = answer_rows(20);
    let change = apply(session, &rows, &StepCost::default(), batch, OWNER);
    (change.session, change.lease, change.wake_within)
}

#[test]
fn an_append_is_progress_and_counts_what_it_adds() {
    let rows = answer_rows(20);
    let message = MessageId::new("answer");
    let cost = StepCost { model: "test/model", call: Some(None), message: Some(&message), measured: None };
    let change = apply(&running(), &rows, &cost, None, OWNER);
    let expected = Session {
        fence: Fence { epoch: 5, op: 10 },
        takeovers: 0,
        next_seq: Seq(42),
        counters: running().counters + rows.shift(),
        ..running()
    };
    assert_eq!(change.session, expected);
    assert_eq!(change.lease, Some(OWNER.lease));
    assert_eq!(change.turn.step_count, Some(2));
    assert_eq!(change.turn.final_message, Some(&message));
    assert_eq!((change.counter_change.messages, change.counter_change.overhead), (1, 4));
    assert_eq!(change.counter_change.size(), 24);
    assert_eq!(change.usage.map(|spent| spent.totals.calls), Some(1));
    assert_eq!((change.count(), change.first_seq()), (2, Seq(40)));
    assert!(change.drops_partial);
    assert_eq!(change.anchor_time, AnchorTime::AsBefore);
}

#[test]
fn with_calls_left_open_the_turn_waits_and_has_no_owner() {
    let waits = batch(vec![CallHandling::NotRun, asked(), later()]);
    let (session, lease, wake_within) = append(&running(), Some(&waits));
    assert_eq!(session.state, SessionState::AwaitingTools);
    assert_eq!((session.owner, session.lease_is_over), (None, true));
    assert_eq!(session.open_calls, 2);
    assert_eq!(session.written_by.as_deref(), Some("there"));
    assert_eq!(session.wake_at, Some(at(TURN_ENDS)));
    assert_eq!(wake_within, Some(Duration::from_secs(61)), "of the call that is asked");
    assert_eq!(lease, Some(Duration::ZERO));
}

#[test]
fn with_no_call_left_open_the_turn_goes_on() {
    for batch in [batch(Vec::new()), batch(vec![CallHandling::NotRun])] {
        let (session, lease, wake_within) = append(&running(), Some(&batch));
        assert!(session.is_owned_by("there"));
        assert_eq!((session.open_calls, session.wake_at), (0, None));
        assert_eq!((lease, wake_within), (Some(OWNER.lease), None));
    }
}

#[test]
fn a_turn_that_is_being_cancelled_keeps_its_owner_which_closes_its_calls() {
    let cancel = CancelRequest { cause: CancelCause::Requested, reason: String::new(), rollback: false };
    let session = Session { cancel: Some(cancel), ..running() };
    let (session, lease, _) = append(&session, Some(&batch(vec![asked()])));
    assert!(session.is_owned_by("there"));
    assert_eq!((session.open_calls, lease), (1, Some(OWNER.lease)));
}

#[test]
fn growth_is_smoothed_between_prompts_of_one_model_and_version() {
    let check = |growth: Option<f64>, newest: Anchor, expected: Option<f64>| {
        let session = Session { anchor: Some(measured("a", 1, 1_000)), growth, ..running() };
        let cost = StepCost { measured: Some(newest.clone()), ..StepCost::default() };
        let rows = Rows::default();
        let change = apply(&session, &rows, &cost, None, OWNER);
        assert_eq!(change.session.growth, expected, "{growth:?} {newest:?}");
        assert_eq!(change.session.anchor, Some(newest));
        assert_eq!(change.anchor_time, AnchorTime::Now);
    };
    check(None, measured("a", 1, 1_500), Some(500.0));
    check(Some(100.0), measured("a", 1, 1_500), Some(220.0));
    check(Some(100.0), measured("a", 1, 1_000), Some(70.0));
    check(Some(100.0), measured("a", 1, 999), Some(100.0));
    check(Some(100.0), measured("b", 1, 1_500), Some(100.0));
    check(Some(100.0), measured("a", 2, 1_500), Some(100.0));
    check(None, measured("b", 1, 1_500), None);
}

#[test]
fn what_measured_nothing_leaves_the_anchor() {
    let session = Session { anchor: Some(measured("a", 1, 1_000)), growth: Some(5.0), ..running() };
    let (after, ..) = append(&session, None);
    assert_eq!((after.anchor, after.growth), (session.anchor, session.growth));
}

proptest! {
    /// Holds for any outcome of the calls.
    #[test]
    fn a_turn_waits_exactly_where_a_call_is_open_and_no_cancel_requested(
        fates in proptest::collection::vec(0..3_u8, 0..6),
        cancelled in any::<bool>(),
    ) {
        let fates = fates.into_iter().map(|fate| match fate {
            0 => CallHandling::NotRun,
            1 => later(),
            _ => asked(),
        });
        let batch = batch(fates.collect());
        let cancel = cancelled.then(|| CancelRequest {
            cause: CancelCause::Disconnected,
            reason: String::new(),
            rollback: false,
        });
        let (after, lease, wake_within) = append(&Session { cancel, ..running() }, Some(&batch));
        let open = batch.calls.iter().filter(|call| call.handling.is_open()).count();
        let waits = open > 0 && !cancelled;
        prop_assert_eq!(after.state == SessionState::AwaitingTools, waits);
        prop_assert_eq!(after.owner.is_none(), waits);
        prop_assert_eq!(lease == Some(Duration::ZERO), waits);
        prop_assert_eq!(usize::try_from(after.open_calls).unwrap(), open);
        let asked = batch.calls.iter().any(|call| call.handling.is_requested());
        prop_assert_eq!(wake_within.is_some(), asked);
    }
}
