//! The data of turns that a replica caches equals what it would read from the database.

use contextd::{
    session::{marks::Marking, steps::NewStep},
    store::{event_page::EventPageLimits, written::ConditionalWriteOutcome},
};

use super::*;
use crate::harness::remembered::{remembers, remembers_calls};

/// A cost of zero.
fn free() -> StepCost<'static> {
    StepCost::default()
}

#[tokio::test]
async fn what_a_replica_remembers_of_a_turn_is_what_is_read_of_it() {
    let world = World::new().await;
    let store = &world.store;
    let (key, grant) = world.running("s").await;
    let mut right = grant.turn_fence();
    assert!(remembers(store, &key, right).await, "a new session");

    let rows = says("a1", Role::Assistant, 5, Category::Assistant);
    applied(store.append(&key, right, &rows, &free(), None).await.unwrap());
    right = right.next();
    assert!(remembers(store, &key, right).await, "an answer");

    let other = TurnRequest { model: Some("test/other".to_owned()), ..TurnRequest::default() };
    let (rows, free_call) = (Rows::new(ESTIMATOR, 0), free());
    let retried = store.retry(&key, right, &rows, &free_call, Some(&other));
    applied(retried.await.unwrap());
    right = right.next();
    assert!(remembers(store, &key, right).await, "another model");

    enqueue(store, &key, "q1").await;
    assert!(remembers(store, &key, right).await, "a message that waits");
    let seen = store.head(&key, None).await.unwrap().unwrap().last_seq;
    take(store, &key, right, seen, &["q1"], true).await;
    right = right.next();
    assert!(remembers(store, &key, right).await, "a message was taken");

    let step = NewStep { revision: 1, in_any_case: true, started: b"", size_offset: 10 };
    let begun = store.begin_step(&key, right, &step).await.unwrap();
    assert!(matches!(begun, ConditionalWriteOutcome::Applied(_)));
    right = right.next();
    assert!(remembers(store, &key, right).await, "a step");

    applied(finish(store, &key, right, says("a2", Role::Assistant, 5, Category::Assistant)).await);
    assert!(!remembers(store, &key, right).await, "nobody owns it");
    assert!(store.cached_idle(&key).is_some());
    let next = admit(store, &key, "t2").await.unwrap();
    assert!(remembers(store, &key, next.turn_fence()).await, "the next turn");
}

/// Submits the results of a turn's calls in these submissions, each to one replica.
async fn answered_by(world: &World, session: &str, submissions: &[(&Store, &[&str])]) -> bool {
    let submitted = submissions.iter().flat_map(|(_, calls)| *calls);
    let mut calls: Vec<&str> = submitted.copied().collect();
    calls.sort_unstable();
    let (key, _) = world.waiting(session, &calls).await;
    let mut submitted = SubmissionOutcome::default();
    let mut last = &world.store;
    assert!(remembers_calls(last, &key, &calls).await, "{session}");
    for (store, calls) in submissions {
        submitted = submit(store, &key, calls, &unremembered()).await;
        last = *store;
    }
    remembers(last, &key, submitted.grant.unwrap().turn_fence()).await
}

#[tokio::test]
async fn results_are_remembered_where_all_of_them_came_to_the_replica_that_made_the_calls() {
    let world = World::new().await;
    let (one, two) = (&world.store, &world.replica("two"));
    assert!(answered_by(&world, "at-once", &[(one, &["c1", "c2"])]).await);
    assert!(answered_by(&world, "one-by-one", &[(one, &["c2"]), (one, &["c1"])]).await);
    assert!(!answered_by(&world, "elsewhere", &[(two, &["c1"])]).await);
    assert!(!answered_by(&world, "half-elsewhere", &[(two, &["c1"]), (one, &["c2"])]).await);
}

#[tokio::test]
async fn calls_are_remembered_as_they_are_handed_out_and_closed() {
    let world = World::new().await;
    let store = &world.store;
    let (key, _) = world.waiting("s", &["c1", "c2", ">c3", "?c4"]).await;
    let check = async |calls: &[&str], expected: bool| {
        let is_known = remembers_calls(store, &key, calls).await;
        assert_eq!(is_known, expected, "{calls:?}");
    };
    check(&["c1", "c2"], true).await;
    check(&["c3"], false).await;
    check(&["c4"], false).await;
    check(&["c5"], false).await;
    submit(store, &key, &["c1"], &unremembered()).await;
    check(&["c2"], true).await;
    check(&["c1", "c2"], false).await;
    decide(store, &key, "c4", true).await;
    check(&["c2", "c4"], true).await;
    submit(store, &key, &["c2", "c4"], &unremembered()).await;
    check(&["c3"], true).await;
    let enough = submit(store, &key, &["c3"], &unremembered()).await;
    assert!(remembers(store, &key, enough.grant.unwrap().turn_fence()).await);
}

#[tokio::test]
async fn answers_that_what_is_remembered_does_not_take_are_decided_by_what_is_read() {
    let world = World::new().await;
    let (one, two) = (&world.store, &world.replica("two"));
    let (key, _) = world.waiting("s", &["c1", "c2"]).await;
    let id = request("r");
    let first = submit(two, &key, &["c1"], &id).await;
    assert_eq!(first.accepted.len(), 1);
    // It still has both calls as open in its cache.
    assert!(one.cached_waiting_turn(&key, &[CallId::new("c1")]).is_some());
    let again = submit(one, &key, &["c1", "c2"], &id).await;
    assert_eq!(again.first.unwrap().accepted, first.accepted);
    assert_eq!(again.accepted, [CallId::new("c2")].into());
    let third = submit(one, &key, &["c1"], &id).await;
    assert_eq!((third.accepted.len(), third.grant), (0, None));
}

#[tokio::test]
async fn what_was_read_is_remembered_from_then_on() {
    let world = World::new().await;
    let two = &world.replica("two");
    let (key, _) = world.waiting("s", &["c1"]).await;
    let grant = submit(two, &key, &["c1"], &unremembered()).await.grant.unwrap();
    assert!(!remembers(two, &key, grant.turn_fence()).await);
    let read = two.owned_with_transcript(&key, &grant.turn, grant.fence.epoch, usize::MAX);
    let (_, seen) = read.await.unwrap();
    assert_eq!(seen.messages.len(), 3);
    assert!(remembers(two, &key, grant.turn_fence()).await);
    let known = two.cached_turn(&key, grant.turn_fence(), seen.bytes);
    assert!(known.is_none(), "it comes to as many bytes");
}

#[tokio::test]
async fn a_transcript_that_was_pruned_is_read_again() {
    let world = World::new().await;
    let store = &world.store;
    let (key, _) = world.waiting("s", &["c1"]).await;
    let grant = submit(store, &key, &["c1"], &unremembered()).await.grant.unwrap();
    let right = grant.turn_fence();
    assert!(remembers(store, &key, right).await);
    let marking =
        Marking { seen: 0, places: &[(MessageId::new("s-results"), 0)], tokens: 2, event: &payloads::pruned() };
    let nobody = unremembered();
    let pruned = store.prune(&key, &marking, 1, (&nobody, ""));
    pruned.await.unwrap().unwrap();
    assert!(!remembers(store, &key, right).await);
}

/// Content outside of the transcript counts too.
#[tokio::test]
async fn a_large_request_of_a_turn_is_not_remembered_beyond_what_one_session_may_take() {
    let world = World::new().await;
    let check = async |session: &str, bytes: usize, expected: bool| {
        let store = world.replica("one").with_session_memory(8 * (64 << 10));
        let key = key(session);
        let grant = admit_new(&store, &key).await.unwrap();
        let asks = TurnRequest { model: Some("x".repeat(bytes)), ..TurnRequest::default() };
        let (rows, cost) = (Rows::new(ESTIMATOR, 0), free());
        let retried = store.retry(&key, grant.turn_fence(), &rows, &cost, Some(&asks));
        applied(retried.await.unwrap());
        let is_known = remembers(&store, &key, grant.turn_fence().next()).await;
        assert_eq!(is_known, expected, "{bytes} bytes");
    };
    check("small", 32 << 10, true).await;
    check("large", 64 << 10, false).await;
}

#[tokio::test]
async fn a_replica_remembers_no_more_than_it_may() {
    let world = World::new().await;
    let check = async |session: &str, bytes: usize, expected: bool| {
        let store = world.replica("one").with_session_memory(bytes);
        let key = key(session);
        let grant = admit_new(&store, &key).await.unwrap();
        let is_known = remembers(&store, &key, grant.turn_fence()).await;
        assert_eq!(is_known, expected, "{bytes} bytes");
    };
    check("none", 0, false).await;
    check("one-eighth-is-too-little", 8 << 10, false).await;
    check("enough", 64 << 10, true).await;
}

#[tokio::test]
async fn completed_calls_and_their_message_reach_readers_as_they_are_read() {
    let world = World::new().await;
    let (store, two) = (&world.store, &world.replica("two"));
    let most = EventPageLimits { events: 100, bytes: 1 << 20, overhead: 0, at_least_one: false };
    let (key, _) = world.waiting("s", &["c1", "c2", "c3"]).await;
    let check = async |after: Seq, is_known: bool| {
        let read = two.follow(&key, after, most).await.unwrap();
        let known = store.recent_events(&key, after, most);
        assert_eq!(known.is_some(), is_known, "after {after:?}");
        if let Some(known) = known {
            assert_eq!(known.events, read.events);
            assert_eq!(known.content, read.content);
        }
        read.events.last().map_or(after, |event| event.seq)
    };
    let before = check(Seq(0), true).await;
    submit(store, &key, &["c2"], &unremembered()).await;
    let before = check(before, true).await;
    submit(store, &key, &["c1", "c3"], &unremembered()).await;
    let after = check(before, false).await;
    assert_eq!(after.0, before.0 + 4, "the message holds a result of before");

    let (key, _) = world.waiting("t", &["d1", "d2"]).await;
    let head = store.head(&key, None).await.unwrap().unwrap().last_seq;
    submit(store, &key, &["d1", "d2"], &unremembered()).await;
    let read = two.follow(&key, head, most).await.unwrap();
    let known = store.recent_events(&key, head, most).unwrap();
    assert_eq!(known.events, read.events);
    assert_eq!(known.content, read.content);
    assert_eq!((known.content.results.len(), known.content.messages.len()), (2, 1));
}
