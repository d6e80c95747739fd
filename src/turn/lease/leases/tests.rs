//! Tests of the leases and of uncertain grants.

use super::*;
use crate::model::{SessionId, TenantId};

fn key(session: &str) -> SessionKey {
    SessionKey::new(TenantId::new("t"), SessionId::new(session))
}

fn turn() -> TurnId {
    TurnId::new("turn")
}

#[test]
fn a_lease_is_lost_if_neither_granted_nor_kept_by_a_heartbeat_in_time() {
    let ttl = Duration::from_secs(10);
    let begun = Instant::now();
    let at = |seconds| begun + Duration::from_secs(seconds);
    let table: [(&str, Option<u64>, u64, bool); 6] = [
        ("young", None, 14, false),
        ("old", None, 15, true),
        ("kept", Some(9), 18, false),
        ("not kept any more", Some(9), 19, true),
        ("kept too late", Some(15), 15, true),
        ("a heartbeat that was sent before the grant", Some(4), 14, false),
    ];
    for (what, beaten, now, lost) in table {
        let leases = Leases::default();
        let lease = leases.hold(&key("s"), &turn(), 1, at(5));
        if let Some(sent) = beaten {
            leases.confirm_heartbeat(at(sent), ttl, at(sent));
            leases.confirm_heartbeat(at(1), ttl, at(sent));
        }
        leases.expire(ttl, at(now));
        assert_eq!(lease.lost().is_cancelled(), lost, "{what}");
    }
}

#[test]
fn an_older_lease_that_ends_does_not_affect_a_newer_one() {
    let leases = Leases::default();
    let old = leases.hold(&key("s"), &turn(), 1, Instant::now());
    let new = leases.hold(&key("s"), &turn(), 2, Instant::now());
    assert!(old.lost().is_cancelled(), "two owners on one replica");
    leases.lose(&key("s"), 1);
    assert!(!new.lost().is_cancelled());
    leases.forget(&key("s"), &old);
    assert!(leases.holds(&key("s"), &turn(), 2));
}

#[test]
fn a_newer_lease_of_the_session_ends_the_older_one() {
    for (first, second) in [(1, 2), (2, 1), (1, 1)] {
        let leases = Leases::default();
        let key = key("s");
        let a = leases.hold(&key, &turn(), first, Instant::now());
        let b = leases.hold(&key, &turn(), second, Instant::now());
        let lost = (a.lost().is_cancelled(), b.lost().is_cancelled());
        assert_eq!(lost, (first <= second, first > second), "{first} then {second}");
        assert!(leases.holds(&key, &turn(), first.max(second)));
        leases.forget(&key, if first <= second { &a } else { &b });
        assert_eq!(leases.count(), 1, "what is lost takes nothing with it");
    }
}

#[test]
fn what_begins_no_turn_does_not_count_as_running_and_compactions_do() {
    let leases = Arc::new(Leases::default());
    let one = |all: usize, own: usize| match (all, own) {
        (0, 0) => Ok(()),
        counted => Err(counted),
    };
    let tenant = &key("s").tenant;
    let queueing = leases.request(&key("queue"));
    let starting = leases.request_start(&key("s"), one).expect("there is room");
    let refused = leases.request_start(&key("other"), one).map(drop);
    assert_eq!(refused, Err((1, 1)));
    drop(queueing);
    let lease = leases.hold(&key("s"), &turn(), 1, starting.sent());
    assert_eq!(leases.running(tenant), (1, 1), "counted once");
    drop(starting);
    assert_eq!(leases.compact(tenant, one).map(drop), Err((1, 1)));
    leases.forget(&key("s"), &lease);
    let compacting = leases.compact(tenant, one).expect("there is room");
    assert_eq!(leases.running(tenant), (1, 1));
    assert_eq!(leases.running_by_tenant().get(tenant), Some(&1));
    drop(compacting);
    assert_eq!(leases.running(tenant), (0, 0));
    assert!(leases.running_by_tenant().is_empty());
}

#[test]
fn a_grant_is_uncertain_from_its_lost_answer_until_it_was_looked_for_after_a_lease() {
    let leases = Arc::new(Leases::default());
    let begun = Instant::now();
    let ttl = Duration::from_secs(10);
    let answered = |key, answer: Result<(), store::Error>| drop(leases.request(&key).answered(answer));
    answered(key("answered"), Ok(()));
    answered(key("refused"), Err(store::Error::Conflict(String::new())));
    assert_eq!(leases.uncertain(), []);
    answered(key("lost"), Err(store::Error::Unavailable(String::new())));
    drop(leases.request(&key("left")));
    let settle = |session, after| {
        let asked = begun + Duration::from_secs(after);
        leases.clear_uncertain(&key(session), ttl, asked);
    };
    settle("lost", 9);
    settle("left", 9);
    assert_eq!(leases.uncertain(), [key("left"), key("lost")]);
    settle("lost", 11);
    assert_eq!(leases.uncertain(), [key("left")], "nobody asked for it");
}

#[test]
fn there_is_doubt_where_more_grants_are_uncertain_than_are_noted() {
    let leases = Arc::new(Leases::default());
    let ttl = Duration::from_secs(10);
    let noted = |n: usize| leases.abandon(&key(&n.to_string()), 1, Instant::now());
    (0..MAX_UNCERTAIN).for_each(noted);
    noted(0);
    assert_eq!(leases.unknown_grants_until(), None);
    noted(MAX_UNCERTAIN);
    let since = leases.unknown_grants_until().expect("one was not noted");
    leases.clear_unknown_grants(ttl, since + ttl / 2);
    assert_eq!(leases.unknown_grants_until(), Some(since), "it may not be found yet");
    leases.clear_unknown_grants(ttl, since + ttl);
    assert_eq!(leases.unknown_grants_until(), None);
}

#[test]
fn a_turn_with_a_lost_grant_is_adopted_unless_it_runs_or_ran_here() {
    let leases = Arc::new(Leases::default());
    let claim = |epoch| leases.claim(&key("s"), &turn(), epoch);
    drop(leases.request(&key("s")));
    assert_eq!(claim(1), Claim::Adopt);
    let request = leases.request(&key("s"));
    assert_eq!(claim(1), Claim::Leave, "the answer to this request may say so");
    let lease = leases.hold(&key("s"), &turn(), 1, request.sent());
    drop(request);
    assert_eq!(claim(1), Claim::Leave, "it runs");
    leases.forget(&key("s"), &lease);
    assert_eq!(claim(1), Claim::Release, "it ran");
    assert_eq!(claim(2), Claim::Adopt, "another grant");
    leases.abandon(&key("s"), 2, Instant::now());
    assert_eq!(claim(2), Claim::Release);
    leases.failed(&key("s"), 2, Instant::now());
    assert_eq!(claim(2), Claim::Repeat);
    assert_eq!(claim(3), Claim::Adopt, "another grant");
    let unknown = leases.claim(&key("unknown"), &turn(), 1);
    assert_eq!(unknown, Claim::Release, "it may have run here");
}

#[test]
fn the_same_epoch_of_another_turn_is_another_lease() {
    let leases = Leases::default();
    let old = leases.hold(&key("s"), &TurnId::new("lost"), 1, Instant::now());
    let new = leases.hold(&key("s"), &turn(), 1, Instant::now());
    assert!(old.lost().is_cancelled() && !leases.holds(&key("s"), &TurnId::new("lost"), 1));
    leases.cancel(&key("s"), &TurnId::new("lost"), 1);
    assert!(!new.lost().is_cancelled() && !new.cancelled().is_cancelled());
}

#[test]
fn a_cancel_reaches_only_the_epoch_it_was_meant_for() {
    let leases = Leases::default();
    let lease = leases.hold(&key("s"), &turn(), 2, Instant::now());
    leases.cancel(&key("s"), &turn(), 1);
    assert!(!lease.cancelled().is_cancelled());
    leases.cancel(&key("s"), &turn(), 2);
    assert!(lease.cancelled().is_cancelled());
}

#[test]
fn a_lease_that_is_no_longer_in_force_is_lost_and_a_newer_one_is_not() {
    let leases = Leases::default();
    let lease = leases.hold(&key("s"), &turn(), 2, Instant::now());
    leases.lose(&key("s"), 1);
    assert!(!lease.lost().is_cancelled());
    leases.lose(&key("s"), 2);
    assert!(lease.lost().is_cancelled());
}
