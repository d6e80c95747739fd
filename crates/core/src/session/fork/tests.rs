//! Tests of forks, from the claim until they are opened or given up.

use super::*;
use crate::{
    model::{Fence, SessionConfig},
    session::{config_rows::NewConfig, counters::Counter},
};

const LEASE: Duration = Duration::from_secs(20);

fn source() -> SessionId {
    SessionId::new("source")
}

fn forking<'a>(source: &'a SessionId, claim: &'a TurnId) -> ForkCopy<'a> {
    ForkCopy { source, at: Seq(40), claim, lease: LEASE }
}

/// User messages with this many tokens in total.
fn piece(after: i64, up_to: i64, tokens: i64) -> CopyRange {
    let mut shift = TokenCounters::default();
    shift.messages(2, 8);
    shift.count(Counter::User, 2, tokens);
    CopyRange { seqs: Some((Seq(after), Seq(up_to))), shift }
}

/// A fork after its claim, with 108 tokens.
fn claimed(claim_of: &TurnId) -> Session {
    let (source, config) = (source(), SessionConfig::default());
    let new = NewSession { config: NewConfig { config: &config, tools_tokens: 0, estimator: "test" }, last_epoch: 3 };
    let first = piece(0, 20, 100);
    let change = claim(&new, &forking(&source, claim_of), 6, &first);
    let expected = Forked { source: &source, at: Seq(40), copies: Some((Seq(0), Seq(20))), opens: false };
    assert!(change.creates, "its rows are made");
    assert_eq!(change.fork, Some(expected));
    assert_eq!((change.lease, change.counter_change), (Some(LEASE), first.shift));
    change.session
}

#[test]
fn a_claimed_fork_is_a_deleted_session_that_begins_after_the_seq() {
    let id = TurnId::new("fork:a");
    let session = claimed(&id);
    assert_eq!((session.state, session.turn.as_ref()), (SessionState::Deleted, Some(&id)));
    assert_eq!(session.live_turn(), None);
    assert_eq!(session.fence, Fence { epoch: 3, op: 0 });
    assert_eq!((session.next_seq, session.context_version), (Seq(41), 6));
    assert_eq!((session.counters.messages, session.context_tokens()), (2, 108));
}

#[test]
fn only_the_call_that_claimed_a_fork_copies_and_opens_it_and_only_in_time() {
    let (own, other) = (TurnId::new("fork:a"), TurnId::new("fork:b"));
    let source = source();
    let check = |what: &str, session: &Session, expected: bool| {
        let forking = forking(&source, &own);
        let copied = copy(session, &forking, &piece(20, 40, 50));
        assert_eq!(copied.is_some(), expected, "{what}");
        if let Some(copied) = copied {
            let rows = copied.fork.expect("it copies");
            assert_eq!((rows.copies, rows.opens), (Some((Seq(20), Seq(40))), false));
            assert_eq!(copied.session.state, SessionState::Deleted, "still hidden");
            assert_eq!(copied.session.next_seq, Seq(41), "no events");
            let size = (copied.session.counters.messages, copied.session.context_tokens());
            assert_eq!((size, copied.lease), ((4, 166), Some(LEASE)));
        }
        let opened = open(session, &forking);
        assert_eq!(opened.is_some(), expected, "{what}");
        if let Some(opened) = opened {
            let rows = opened.fork.expect("it opens");
            assert_eq!((rows.copies, rows.opens), (None, true));
            assert_eq!(opened.session.state, SessionState::Idle);
            assert_eq!((opened.session.turn, opened.is_use), (None, true));
        }
    };
    let session = claimed(&own);
    check("claimed", &session, true);
    let late = Session { lease_is_over: true, ..session.clone() };
    check("late", &late, false);
    check("another call's", &claimed(&other), false);
    let idle = Session { state: SessionState::Idle, ..session };
    check("open", &idle, false);
}

#[test]
fn a_fork_is_given_up_by_its_call_or_by_anybody_after_its_lease() {
    let (own, other) = (TurnId::new("fork:a"), TurnId::new("fork:b"));
    let session = claimed(&own);
    let given_up = give_up(&session, &own).expect("it is claimed");
    assert_eq!(given_up.lease, Some(Duration::ZERO));
    assert_ne!(given_up.session, session, "its row is written");
    assert_eq!(give_up(&session, &other), None, "another call's");
    assert_eq!(abandon(&session), None, "in time");
    let late = Session { lease_is_over: true, ..session };
    assert_eq!(abandon(&late), give_up(&late, &own));
    let deleted = Session { turn: Some(TurnId::new("a turn")), ..late.clone() };
    assert_eq!(abandon(&deleted), None, "a deleted session");
    let open = Session { state: SessionState::Idle, ..late };
    assert_eq!(abandon(&open), None, "a session");
}
