//! Fences, leases and calls: who may write, and that every write happens once.

use std::collections::BTreeSet;

use contextd::{
    model::{CancelCause, CancelOutcome},
    session::SessionState,
    store::{
        lease::{HeldTurn, Interruption},
        written::WriteOutcome,
    },
};
use futures_util::future::join_all;

use super::*;
use crate::harness::host::until;

async fn append(store: &Store, key: &SessionKey, right: TurnFence<'_>, id: &str) -> WriteOutcome {
    let rows = says(id, Role::Assistant, 5, Category::Assistant);
    store.append(key, right, &rows, &StepCost::default(), None).await.unwrap()
}

async fn retry(store: &Store, key: &SessionKey, right: TurnFence<'_>) -> WriteOutcome {
    store.retry(key, right, &Rows::new(ESTIMATOR, 0), &StepCost::default(), None).await.unwrap()
}

#[tokio::test]
async fn a_repeated_call_is_the_next_attempt_but_no_progress() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    world.expire(&key).await;
    let grant = world.store.takeover(&key, grant.fence.epoch).await.unwrap().unwrap();
    let first = retry(&world.store, &key, grant.turn_fence()).await;
    assert_eq!(retry(&world.store, &key, grant.turn_fence()).await, first, "repeated after its answer was lost");
    applied(first);
    assert_eq!(world.number("select attempt::bigint from session_run where session_id = $1", &key).await, 3);
    assert_eq!(world.number("select takeovers::bigint from session_run where session_id = $1", &key).await, 1);
    applied(append(&world.store, &key, grant.turn_fence().next(), "a1").await);
    assert_eq!(world.number("select takeovers::bigint from session_run where session_id = $1", &key).await, 0);
    world.assert_dense(&key).await;
}

#[tokio::test]
async fn an_old_epoch_or_operation_changes_nothing() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    append(&world.store, &key, grant.turn_fence(), "a1").await;
    append(&world.store, &key, grant.turn_fence().next(), "a2").await;
    let before = world.database.row_counts().await;
    let stale = Fence { epoch: grant.fence.epoch - 1, op: grant.fence.op + 2 };
    for fence in [grant.turn_fence(), TurnFence { fence: stale, ..grant.turn_fence() }] {
        assert_eq!(append(&world.store, &key, fence, "late").await, WriteOutcome::Fenced);
        assert_eq!(finish(&world.store, &key, fence, Rows::new(ESTIMATOR, 0)).await, WriteOutcome::Fenced);
        assert_eq!(retry(&world.store, &key, fence).await, WriteOutcome::Fenced);
        assert_eq!(stop(&world.store, &key, fence).await, WriteOutcome::Fenced);
        assert!(!world.store.hand_over(&key, fence).await.unwrap());
    }
    assert_eq!(world.database.row_counts().await, before);
    assert!(matches!(
        append(&world.store, &key, grant.turn_fence().next().next(), "a3").await,
        WriteOutcome::Applied(_)
    ));
    world.assert_dense(&key).await;
}

/// Row F7
#[tokio::test]
async fn a_write_that_is_repeated_after_its_answer_was_lost_is_found_to_have_landed() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let first = append(&world.store, &key, grant.turn_fence(), "a1").await;
    assert_eq!(append(&world.store, &key, grant.turn_fence(), "a1").await, first);
    let end = finish(&world.store, &key, grant.turn_fence().next(), Rows::new(ESTIMATOR, 0)).await;
    assert_eq!(finish(&world.store, &key, grant.turn_fence().next(), Rows::new(ESTIMATOR, 0)).await, end);
    assert_eq!(world.number("select count(*) from messages where session_id = $1", &key).await, 2);
    world.assert_dense(&key).await;
}

#[tokio::test]
async fn of_concurrent_admissions_and_takeovers_one_succeeds() {
    let world = World::new().await;
    let key = key("s");
    let stores: Vec<Store> = (0..6).map(|n| world.replica(&format!("r{n}"))).collect();
    let made = join_all(stores.iter().map(|store| admit_new(store, &key))).await;
    let (first, grant) = one(made);
    applied(finish(&stores[first], &key, grant.turn_fence(), Rows::new(ESTIMATOR, 0)).await);
    let turns: Vec<String> = (0..6).map(|n| format!("turn{n}")).collect();
    let (_, grant) = one(join_all(stores.iter().zip(&turns).map(|(store, turn)| admit(store, &key, turn))).await);
    world.expire(&key).await;
    let taken = join_all(stores.iter().map(|store| store.takeover(&key, grant.fence.epoch))).await;
    let (last, owner) = one(taken.into_iter().map(Result::unwrap).collect());
    assert_eq!(owner.fence, Fence { epoch: grant.fence.epoch + 1, op: grant.fence.op });
    assert_eq!(append(&world.store, &key, grant.turn_fence(), "late").await, WriteOutcome::Fenced);
    applied(append(&stores[last], &key, owner.turn_fence(), "a1").await);
    world.assert_dense(&key).await;
}

/// The only grant, and its index.
fn one(grants: Vec<Option<Grant>>) -> (usize, Grant) {
    let numbered = grants.into_iter().enumerate();
    let mut winners: Vec<_> = numbered.filter_map(|(n, grant)| Some((n, grant?))).collect();
    assert_eq!(winners.len(), 1, "{winners:?}");
    winners.remove(0)
}

#[tokio::test]
async fn the_heartbeat_of_a_replica_keeps_its_turns_and_no_others() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let (two, three) = (world.replica("two"), world.replica("three"));
    world.store.send_heartbeat().await.unwrap();
    world.expire(&key).await;
    let found = |store: Store| async move { store.candidates(true, 8, &[]).await.unwrap().len() };
    assert_eq!(found(two.clone()).await, 0);
    let taken = two.takeover(&key, grant.fence.epoch).await.unwrap();
    assert_eq!(taken, None, "its replica lives");

    world.lapse("one").await;
    two.send_heartbeat().await.unwrap();
    assert_eq!(found(two.clone()).await, 1);
    let taken = two.takeover(&key, grant.fence.epoch).await.unwrap();
    let taken = taken.expect("its replica is gone");
    world.expire(&key).await;
    world.store.send_heartbeat().await.unwrap();
    assert_eq!(found(three.clone()).await, 0);
    world.lapse("two").await;
    let taken = three.takeover(&key, taken.fence.epoch).await.unwrap();
    assert!(taken.is_some(), "that another replica lives again is no heartbeat of its owner");
}

#[tokio::test]
async fn a_turn_is_lost_to_its_owner_where_another_has_it_and_cancelled_where_that_was_asked() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let held = HeldTurn { key: key.clone(), turn: grant.turn.clone(), epoch: grant.fence.epoch };
    let of = |store: &Store, held: &HeldTurn| {
        let (store, held) = (store.clone(), [held.clone()]);
        async move { store.interrupted_turns(&held).await.unwrap().into_iter().map(|(_, why)| why).collect::<Vec<_>>() }
    };
    assert_eq!(of(&world.store, &held).await, []);
    assert_eq!(of(&world.replica("two"), &held).await, [Interruption::LeaseLost]);
    let elder = HeldTurn { epoch: held.epoch - 1, ..held.clone() };
    assert_eq!(of(&world.store, &elder).await, [Interruption::LeaseLost]);
    let other = HeldTurn { turn: TurnId::new("other"), ..held.clone() };
    assert_eq!(of(&world.store, &other).await, [Interruption::LeaseLost]);
    let unknown = HeldTurn { key: super::key("unknown"), ..held.clone() };
    assert_eq!(of(&world.store, &unknown).await, [Interruption::LeaseLost]);
    let (two, request) = (world.replica("two"), unremembered());
    let cancelling = cancelling(CancelCause::Requested, "");
    let cancelled = two.cancel(&key, None, &cancelling, &request);
    cancelled.await.unwrap();
    assert_eq!(of(&world.store, &held).await, [Interruption::Cancelled]);

    let (key, grant) = world.waiting("waits", &["c1"]).await;
    let waits = HeldTurn { key, turn: grant.turn.clone(), epoch: grant.fence.epoch };
    assert_eq!(of(&world.store, &waits).await, [], "its owner left it so");
}

#[tokio::test]
async fn turns_that_a_replica_left_are_pointed_to_until_none_is_found() {
    let world = World::new().await;
    let two = world.replica("two");
    let signs = || async { two.orphan_reports().await.unwrap() };
    let (key, grant) = world.running("s").await;
    world.store.send_heartbeat().await.unwrap();
    assert_eq!(signs().await, []);
    world.store.hand_over(&key, grant.turn_fence()).await.unwrap();
    world.store.send_heartbeat().await.unwrap();
    let seen = signs().await;
    assert_eq!(seen.len(), 1, "it gave a turn back");
    world.store.send_heartbeat().await.unwrap();
    two.clear_orphan_reports(&seen).await.unwrap();
    let seen = signs().await;
    assert_eq!(seen.len(), 1, "it said something since");
    two.clear_orphan_reports(&seen).await.unwrap();
    assert_eq!(signs().await, []);

    world.store.leave().await.unwrap();
    let seen = signs().await;
    two.clear_orphan_reports(&seen).await.unwrap();
    assert_eq!(signs().await, seen, "what was granted to it last may still have its own lease");
    world.lapse("one").await;
    world.store.send_heartbeat().await.unwrap();
    two.clear_orphan_reports(&seen).await.unwrap();
    assert_eq!(signs().await, [], "it is back");
    world.lapse("one").await;
    two.clear_orphan_reports(&signs().await).await.unwrap();
    let known = "select count(*) from replicas where $1 <> ''";
    assert_eq!(world.number(known, &key).await, 0, "it is forgotten");
}

#[tokio::test]
async fn turns_that_a_replica_owns_without_knowing_them_are_found_when_they_are_older_than_a_lease() {
    let world = World::new().await;
    let (young, _) = world.running("young").await;
    let (known, _) = world.running("known").await;
    let (old, grant) = world.running("old").await;
    world.expire(&known).await;
    world.expire(&old).await;
    let (others, _) = world.running("others").await;
    world.expire(&others).await;
    world.store.send_heartbeat().await.unwrap();
    let sql = "update session_run set version = version + 1, owner = 'two' where session_id = 'others'";
    world.database.client().await.batch_execute(sql).await.unwrap();
    let found = world.store.owned_unknown(&[known], 8).await.unwrap();
    let found: Vec<_> = found.iter().map(|(key, grant)| (key, grant.fence.epoch)).collect();
    assert_eq!(found, [(&old, grant.fence.epoch)], "not {young:?}");
}

#[tokio::test]
async fn the_last_of_many_answers_at_once_resumes_the_turn_and_no_call_is_answered_twice() {
    let world = World::new().await;
    for round in 0..20 {
        let calls: Vec<String> = (0..4).map(|n| format!("r{round}c{n}")).collect();
        let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
        let (key, grant) = world.waiting(&format!("s{round}"), &calls).await;
        let stores: Vec<Store> = (0..5).map(|n| world.replica(&format!("r{n}"))).collect();
        let submitted = join_all(stores.iter().enumerate().map(|(n, store)| {
            let key = key.clone();
            let mut mine = calls.clone();
            mine.rotate_left(n % 4);
            async move { submit(store, &key, &mine[..3], &request(&format!("request{n}"))).await }
        }))
        .await;
        let grants: Vec<&Grant> = submitted.iter().filter_map(|submitted| submitted.grant.as_ref()).collect();
        assert_eq!(grants.len(), 1);
        assert_eq!(grants[0].fence.epoch, grant.fence.epoch + 1);
        let accepted: Vec<&CallId> = submitted.iter().flat_map(|submitted| &submitted.accepted).collect();
        assert_eq!((accepted.len(), accepted.iter().collect::<BTreeSet<_>>().len()), (4, 4));
        world.assert_dense(&key).await;
        let sql = "select count(*) from parts where session_id = $1 and kind = 'tool_result'";
        assert_eq!(world.number(sql, &key).await, 4);
    }
}

#[tokio::test]
async fn the_last_answer_to_a_turn_that_has_an_owner_commits_the_results_and_leaves_the_lease() {
    let world = World::new().await;
    let (key, grant) = world.waiting("s", &["c1", "c2"]).await;
    world
        .database
        .client()
        .await
        .execute("update session_run set version = version + 1, tool_deadline = 'epoch'", &[])
        .await
        .unwrap();
    let owner = world.store.takeover(&key, grant.fence.epoch).await.unwrap().unwrap();
    let submitted = submit(&world.replica("two"), &key, &["c1", "c2"], &unremembered()).await;
    assert_eq!((submitted.accepted.len(), submitted.grant), (2, None));
    let tool_messages = "select count(*) from messages where session_id = $1 and role = 4";
    assert_eq!(world.number(tool_messages, &key).await, 1);
    applied(stop(&world.store, &key, owner.turn_fence()).await);
    assert_eq!(world.number(tool_messages, &key).await, 1);
    world.assert_dense(&key).await;
}

#[tokio::test]
async fn a_cancel_that_loses_a_race_reaches_its_turn_all_the_same() {
    const WAITS: &str = "select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and length($1) > 0";
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let writer = world.database.client().await;
    writer.batch_execute("begin; update session_run set version = version + 1, takeovers = takeovers").await.unwrap();
    let other = world.replica("two");
    let of = key.clone();
    let cancelling = tokio::spawn(async move {
        let again = request("stop");
        other.cancel(&of, None, &cancelling(CancelCause::Requested, "enough"), &again).await
    });
    until("the cancel to wait", || async { world.number(WAITS, &key).await > 0 }).await;
    writer.batch_execute("commit").await.unwrap();
    let cancelled = cancelling.await.unwrap().unwrap();
    assert_eq!(cancelled.turn, Some(grant.turn));
}

#[tokio::test]
async fn a_turn_that_is_cancelled_does_not_complete_and_its_stop_closes_what_is_open() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let other = world.replica("two");
    let cancelled =
        other.cancel(&key, None, &cancelling(CancelCause::Requested, "enough"), &request("stop")).await.unwrap();
    assert_eq!((cancelled.turn.as_ref(), cancelled.fence), (Some(&grant.turn), None));
    let rows = says("a1", Role::Assistant, 5, Category::Assistant);
    let ack = applied(finish(&world.store, &key, grant.turn_fence(), rows).await);
    assert_eq!((ack.state, ack.cancelled), (SessionState::Running, true));
    let ack = applied(stop(&world.store, &key, grant.turn_fence().next()).await);
    assert_eq!(ack.state, SessionState::Idle);
    admit(&world.store, &key, "t2").await.unwrap();
    let again =
        other.cancel(&key, None, &cancelling(CancelCause::Requested, "enough"), &request("stop")).await.unwrap();
    assert_eq!((again.turn, again.fence), (Some(grant.turn), None));
    assert_eq!(world.number("select cancel::bigint from session_run where session_id = $1", &key).await, 0);

    let (key, grant) = world.waiting("w", &["c1", "c2", "c3"]).await;
    submit(&world.store, &key, &["c2"], &unremembered()).await;
    let cancelled =
        other.cancel(&key, Some(&grant.turn), &cancelling(CancelCause::Requested, ""), &unremembered()).await.unwrap();
    let fence = TurnFence { fence: cancelled.fence.unwrap(), ..grant.turn_fence() };
    assert_eq!(fence.fence.epoch, grant.fence.epoch + 1);
    assert!(submit(&world.store, &key, &["c1"], &unremembered()).await.accepted.is_empty());
    let cause = CancelCause::Requested;
    let outcome = CancelOutcome::ToolsInProgress;
    let ending = Ending::Cancelled { cause, outcome, reason: String::new(), undone: None };
    let rows = Rows::new(ESTIMATOR, 0);
    let result = TurnResult::default();
    applied(other.stop(&key, fence, &rows, &StepCost::default(), &end(&ending, &result), None).await.unwrap().0);
    assert!(world.store.open_calls(&key).await.unwrap().is_empty());
    let results = "select count(*) from parts p join messages m using (tenant_id, session_id, message_id)
                    where session_id = $1 and p.kind = 'tool_result'";
    assert_eq!(world.number(results, &key).await, 3);
    world.assert_dense(&key).await;
}

#[tokio::test]
async fn an_update_of_session_run_is_hot_but_where_a_turn_begins_or_ends_to_wait() {
    const WAITS: i64 = 20;
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let mut fence = grant.turn_fence();
    for n in 0..200 {
        applied(append(&world.store, &key, fence, &format!("a{n}")).await);
        fence = fence.next();
    }
    // The index of due turns contains the time, so the two updates that start and end a wait are not HOT.
    for n in 0..WAITS {
        let (rows, batch) = answer_with_calls(&format!("m{n}"), &[&format!("c{n}")]);
        applied(world.store.append(&key, fence, &rows, &StepCost::default(), Some(&batch)).await.unwrap());
        let resumed = submit(&world.store, &key, &[&format!("c{n}")], &unremembered()).await.grant.unwrap();
        fence = TurnFence { fence: resumed.fence, ..fence };
    }
    let World { database, store } = world;
    drop(store);
    let client = database.client().await;
    let sql = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'session_run'";
    for _ in 0..100 {
        let row = client.query_one(sql, &[]).await.unwrap();
        let (updated, hot): (i64, i64) = (row.get(0), row.get(1));
        if updated >= 240 {
            // An update that changes an indexed column is not HOT. While an ANALYZE of this database has a snapshot,
            // pages cannot be pruned, so one update per page goes to another page.
            let others = updated - 2 * WAITS;
            assert!(hot * 10 >= others * 9, "{hot} of {others}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the statistics never came");
}
