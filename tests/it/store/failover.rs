//! A failover that lost commits: a grant is repeated with the same epoch and op, for another turn or to another owner.
//! Only the turn and the owner distinguish the two grants (`session::steps::owner_status`, whose tests disable each check).

use contextd::{
    session::steps::NewStep,
    store::{
        chunk::NewChunk,
        lease::{HeldTurn, Interruption},
        written::{ConditionalWriteOutcome, WriteOutcome},
    },
};

use super::*;
use crate::harness::snapshot::Snapshot;

/// A write of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Append,
    Retry,
    Begin,
    Take,
    Finish,
    Stop,
    Rollback,
}

const WRITES: [Write; 7] =
    [Write::Append, Write::Retry, Write::Begin, Write::Take, Write::Finish, Write::Stop, Write::Rollback];

/// The difference between the two grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Apart {
    /// The turn: the same replica was granted another turn.
    Turn,
    /// The owner: another replica took over the same turn.
    Owner,
}

/// Creates two grants with the same fence: one that was lost, and one that is in force. The first store has the lost
/// one.
async fn twice(world: &World, stores: &[Store; 2], apart: Apart) -> (SessionKey, Grant, Grant) {
    let key = key("s");
    let [one, two] = stores;
    match apart {
        Apart::Turn => {
            let snapshot = Snapshot::of(&world.database).await;
            let lost = admit_new(one, &key).await.unwrap();
            snapshot.restore().await;
            let kept = admit_new(one, &key).await.unwrap();
            let other = "with t as (update turns set turn_id = 'other') update session_run set version = version + 1, turn_id = 'other'";
            world.database.client().await.batch_execute(other).await.unwrap();
            (key, lost, Grant { turn: TurnId::new("other"), ..kept })
        }
        Apart::Owner => {
            let before = admit_new(&world.replica("dead"), &key).await.unwrap();
            world.expire(&key).await;
            let snapshot = Snapshot::of(&world.database).await;
            let lost = one.takeover(&key, before.fence.epoch).await.unwrap().unwrap();
            snapshot.restore().await;
            let kept = two.takeover(&key, before.fence.epoch).await.unwrap().unwrap();
            (key, lost, kept)
        }
    }
}

/// Whether a write changed nothing because another owner has the session.
async fn is_fenced(store: &Store, key: &SessionKey, grant: &Grant, write: Write) -> bool {
    let rows = Rows::new(ESTIMATOR, 0);
    let cost = StepCost::default();
    let result = TurnResult::default();
    let right = grant.turn_fence();
    let written = match write {
        Write::Append => store.append(key, right, &rows, &cost, None).await,
        Write::Retry => store.retry(key, right, &rows, &cost, None).await,
        Write::Finish => return finish(store, key, right, rows).await == WriteOutcome::Fenced,
        Write::Stop => return stop(store, key, right).await == WriteOutcome::Fenced,
        Write::Rollback => {
            let cause = contextd::model::CancelCause::Requested;
            let outcome = contextd::model::CancelOutcome::None;
            let undone = Some(contextd::model::Undone::default());
            let ending = Ending::Cancelled { cause, outcome, reason: String::new(), undone };
            store.stop(key, right, &rows, &cost, &end(&ending, &result)).await
        }
        Write::Begin => {
            let step = NewStep { revision: 1, in_any_case: true, started: b"", size_offset: 10 };
            return store.begin_step(key, right, &step).await.unwrap() == ConditionalWriteOutcome::Fenced;
        }
        Write::Take => {
            let seen = store.queue_snapshot(key).await.unwrap().unwrap().last_seq;
            return take(store, key, right, seen, &["q"], false).await == ConditionalWriteOutcome::Fenced;
        }
    };
    written.unwrap() == WriteOutcome::Fenced
}

/// Whether the write of a stale owner is refused. With `settles`, the current owner has written once before it.
async fn stale(apart: Apart, write: Write, settles: bool) -> bool {
    let world = World::new().await;
    let stores = ["one", "two"].map(|name| world.replica(name));
    let (key, lost, kept) = twice(&world, &stores, apart).await;
    assert_eq!(lost.fence, kept.fence, "the fence alone does not tell them apart");
    enqueue(&world.store, &key, "q").await;
    let [one, two] = stores;
    let owner = if apart == Apart::Owner { &two } else { &one };
    if settles {
        let rows = says("kept", Role::Assistant, 5, Category::Assistant);
        applied(
            world
                .replica(owner.replica())
                .append(&key, kept.turn_fence(), &rows, &StepCost::default(), None)
                .await
                .unwrap(),
        );
    }
    let before = world.database.contents(&world.database.client().await).await;
    let fenced = is_fenced(&one, &key, &lost, write).await;
    assert_eq!(world.database.contents(&world.database.client().await).await, before, "{apart:?} {write:?}");
    let held = [HeldTurn { key: key.clone(), turn: lost.turn.clone(), epoch: lost.fence.epoch }];
    let found = one.interrupted_turns(&held).await.unwrap();
    assert_eq!(found, [(held[0].clone(), Interruption::LeaseLost)]);
    assert!(one.owned(&key, &lost.turn, lost.fence.epoch).await.unwrap().is_none());
    assert!(!one.hand_over(&key, lost.turn_fence()).await.unwrap());
    fenced
}

/// Stores a piece of streamed text for readers on other replicas.
async fn share(store: &Store, key: &SessionKey, grant: &Grant) {
    let chunk = NewChunk {
        key: key.clone(),
        turn: grant.turn.clone(),
        epoch: grant.fence.epoch,
        message: MessageId::new("open"),
        n: 1,
        body: Vec::new(),
    };
    store.save_chunks(&[chunk]).await.unwrap();
}

#[tokio::test]
async fn the_text_of_an_owner_whose_grant_was_lost_is_not_shared() {
    const SHARED: &str = "select count(*) from partial_chunks where session_id = $1";
    for apart in [Apart::Turn, Apart::Owner] {
        let world = World::new().await;
        let stores = ["one", "two"].map(|name| world.replica(name));
        let (key, lost, kept) = twice(&world, &stores, apart).await;
        let [one, two] = &stores;
        share(one, &key, &lost).await;
        assert_eq!(world.number(SHARED, &key).await, 0, "{apart:?}");
        let owner = if apart == Apart::Owner { two } else { one };
        share(owner, &key, &kept).await;
        assert_eq!(world.number(SHARED, &key).await, 1, "{apart:?}");
    }
}

#[tokio::test]
async fn an_owner_whose_grant_was_lost_writes_nothing_under_the_same_fence() {
    for apart in [Apart::Turn, Apart::Owner] {
        for write in WRITES {
            assert!(stale(apart, write, false).await, "{apart:?} {write:?}");
        }
    }
}

#[tokio::test]
async fn an_owner_whose_grant_was_lost_does_not_mistake_another_write_for_its_own() {
    for apart in [Apart::Turn, Apart::Owner] {
        for write in WRITES {
            assert!(stale(apart, write, true).await, "{apart:?} {write:?}");
        }
    }
}
