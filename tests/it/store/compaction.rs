//! Compactions: one at a time, applied or reverted, and counters that are restored.

use contextd::{
    model::{CompactionId, CompactionState, Seq},
    pb,
    session::{
        compaction::{FailedCompaction, NewCompaction},
        compaction_rows::{Cost, Replacement},
        counters::{Counter, TokenCounters},
    },
    store::compaction::CompactionOutcome,
};

use prost::Message as _;

use super::*;

/// Counters of a session: size, messages, overhead, user tokens and summary tokens.
async fn counters(world: &World, key: &SessionKey) -> [i64; 5] {
    let sql = "select r.ctx_overhead + (select sum(t) from unnest(r.ctx_tokens[1:8]) t)::bigint,
                      r.ctx_messages::bigint, r.ctx_overhead, r.ctx_tokens[1], r.ctx_tokens[7]
                 from session_run r where r.session_id = $1";
    let row = world.database.client().await.query_one(sql, &[&key.session.as_str()]).await.unwrap();
    std::array::from_fn(|column| row.get(column))
}

pub(super) async fn begin(
    store: &Store,
    key: &SessionKey,
    id: &str,
    seen: i64,
    idempotency: &Idempotency,
) -> CompactionOutcome {
    let compaction = CompactionId::new(id);
    let begin = NewCompaction {
        compaction: &compaction,
        seen,
        info: b"",
        started: &payloads::compaction_started(id),
        lease: store.lease_ttl(),
    };
    store.begin_compaction(key, &begin, idempotency).await.unwrap()
}

/// Applies a summary of the first message.
pub(super) async fn swap(store: &Store, key: &SessionKey, id: &str) -> CompactionOutcome {
    let summary = message(format!("{id}-summary"), Role::User, vec![part("in short", 2, Category::User)]);
    let mut shift = TokenCounters::default();
    shift.messages(0, 0);
    shift.count(Counter::User, -1, -11);
    shift.count(Counter::Summary, 1, 2);
    let rows = payloads::compacted_rows(id, ESTIMATOR, Some(summary));
    let replacement = Replacement {
        from: Seq(2),
        to: Seq(2),
        kept: &[],
        hides_pinned: false,
        shift,
        rows: &rows,
        info: b"info",
        cost: &Cost::default(),
    };
    store.swap_compaction(key, &CompactionId::new(id), &replacement).await.unwrap()
}

#[tokio::test]
async fn a_compaction_is_swapped_in_beside_appends_and_taken_back() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let before = counters(&world, &key).await;
    let begun = begin(&world.store, &key, "k1", 0, &request("r")).await;
    assert_eq!((begun.update.unwrap().context_version, begun.status), (0, Some(CompactionState::Running)));
    let again = begin(&world.store, &key, "k2", 0, &request("r")).await;
    assert_eq!((again.update, again.status, again.stored_request.unwrap().result.as_str()), (None, None, "k1"));
    assert_eq!(again.running, Some(CompactionId::new("k1")));
    let other = begin(&world.store, &key, "k2", 0, &request("r2")).await;
    assert_eq!((other.update, other.running), (None, Some(CompactionId::new("k1"))));
    assert!(world.store.renew_compaction(&key, &CompactionId::new("k1")).await.unwrap());

    let rows = says("a1", Role::Assistant, 20, Category::Assistant);
    let cost = StepCost::default();
    applied(world.store.append(&key, grant.turn_fence(), &rows, &cost, None).await.unwrap());
    let swapped = swap(&world.store, &key, "k1").await;
    assert_eq!((swapped.update.unwrap().context_version, swapped.status), (1, Some(CompactionState::Applied)));
    let [size, messages, overhead, user, summary] = counters(&world, &key).await;
    assert_eq!(size, before[0] + 20 + i64::from(OVERHEAD) - 9);
    assert_eq!([messages, overhead, user, summary], [2, 8, 0, 2]);
    let repeated = swap(&world.store, &key, "k1").await;
    assert_eq!((repeated.update, repeated.status), (None, Some(CompactionState::Applied)));
    assert!(!world.store.renew_compaction(&key, &CompactionId::new("k1")).await.unwrap());

    let id = CompactionId::new("k1");
    let reverted = payloads::compaction_reverted("k1");
    let stale = world.store.revert_compaction(&key, &id, 0, &reverted, &request("undo")).await.unwrap();
    assert_eq!((stale.update, stale.context_version), (None, Some(1)));
    let taken_back = world.store.revert_compaction(&key, &id, 1, &reverted, &request("undo")).await.unwrap();
    assert_eq!((taken_back.update.unwrap().context_version, taken_back.status), (2, Some(CompactionState::Reverted)));
    let repeated = world.store.revert_compaction(&key, &id, 2, &reverted, &request("undo")).await.unwrap();
    assert_eq!((repeated.update, repeated.stored_request.unwrap().result.as_str()), (None, "k1"));
    assert_eq!(counters(&world, &key).await, [before[0] + 24, 2, 8, 11, 0]);
    world.assert_dense(&key).await;
    let sql = "select count(*) from events e join compactions k using (tenant_id, session_id)
                where session_id = $1 and e.refs = array[k.compaction_id::text]
                  and (e.kind, e.seq) in (('compaction_completed', k.active_from_seq), ('compaction_reverted', k.reverted_at_seq))";
    assert_eq!(world.number(sql, &key).await, 2);
}

#[tokio::test]
async fn a_compaction_swap_is_refused_after_a_context_change() {
    let world = World::new().await;
    let key = world.idle("s").await;
    begin(&world.store, &key, "k1", 0, &unremembered()).await.update.unwrap();
    world
        .database
        .client()
        .await
        .execute("update session_run set version = version + 1, context_version = 1", &[])
        .await
        .unwrap();
    let swapped = swap(&world.store, &key, "k1").await;
    assert_eq!((swapped.update, swapped.status), (None, Some(CompactionState::Running)));
    let given_up = FailedCompaction { rows: &payloads::given_up_rows("k1"), info: b"", cost: &Cost::default() };
    let failed = world.store.fail_compaction(&key, &CompactionId::new("k1"), &given_up).await.unwrap();
    assert_eq!((failed.update.is_some(), failed.status), (true, Some(CompactionState::Failed)));
    let again = world.store.fail_compaction(&key, &CompactionId::new("k1"), &given_up).await.unwrap();
    assert_eq!(again.update, None);
    assert_eq!(begin(&world.store, &key, "k2", 0, &unremembered()).await.context_version, Some(1));
    begin(&world.store, &key, "k2", 1, &unremembered()).await.update.unwrap();
    world.assert_dense(&key).await;
}

#[tokio::test]
async fn an_abandoned_compaction_is_failed_by_the_next_and_cannot_come_in_force() {
    let world = World::new().await;
    let key = world.idle("s").await;
    begin(&world.store, &key, "k1", 0, &unremembered()).await.update.unwrap();
    let lapse = "update compactions set lease_until = now() - interval '1 second'";
    world.database.client().await.execute(lapse, &[]).await.unwrap();
    begin(&world.replica("two"), &key, "k2", 0, &unremembered()).await.update.unwrap();
    let late = swap(&world.store, &key, "k1").await;
    assert_eq!((late.update, late.status), (None, Some(CompactionState::Failed)));
    swap(&world.store, &key, "k2").await.update.unwrap();
    let sql = "select count(*) from events where session_id = $1 and kind like 'compaction_%'";
    assert_eq!(world.number(sql, &key).await, 4);
    world.assert_dense(&key).await;
}

#[tokio::test]
async fn only_the_newest_active_compaction_can_be_reverted() {
    let world = World::new().await;
    let key = world.idle("s").await;
    let before = counters(&world, &key).await;
    for (seen, id) in (0..).zip(["k1", "k2"]) {
        begin(&world.store, &key, id, seen, &unremembered()).await.update.unwrap();
        swap(&world.store, &key, id).await.update.unwrap();
    }
    let first = CompactionId::new("k1");
    let second = CompactionId::new("k2");
    let reverted = payloads::compaction_reverted("k");
    let revert = |id, seen| {
        let store = &world.store;
        store.revert_compaction(&key, id, seen, &reverted, &NONE)
    };
    assert_eq!(revert(&first, 2).await.unwrap().update, None);
    assert_eq!(revert(&second, 2).await.unwrap().update.unwrap().context_version, 3);
    assert_eq!(revert(&second, 3).await.unwrap().update, None);
    assert_eq!(revert(&first, 3).await.unwrap().update.unwrap().context_version, 4);
    assert_eq!(counters(&world, &key).await, before);
    let sql = "select count(*) from compactions where session_id = $1 and predecessor = 'k1'";
    assert_eq!(world.number(sql, &key).await, 1);
}

#[tokio::test]
async fn of_concurrent_compactions_one_starts() {
    let world = World::new().await;
    let key = world.idle("s").await;
    let world = &world;
    let key = &key;
    let begun = futures_util::future::join_all(
        (0..6).map(|n| async move { begin(&world.store, key, &format!("k{n}"), 0, &NONE).await.update.is_some() }),
    )
    .await;
    assert_eq!(begun.iter().filter(|begun| **begun).count(), 1);
    world.assert_dense(key).await;
}

static NONE: Idempotency = Idempotency { request: None, hash: String::new() };

/// Marks the running compaction as failed.
async fn give_up(world: &World, key: &SessionKey, id: &str) {
    let given_up = FailedCompaction { rows: &payloads::given_up_rows("k1"), info: b"", cost: &Cost::default() };
    world.store.fail_compaction(key, &CompactionId::new(id), &given_up).await.unwrap().update.unwrap();
}

#[tokio::test]
async fn compactions_are_ordered_by_their_start_whatever_the_replica_clocks() {
    let world = World::new().await;
    let key = world.idle("s").await;
    // Ids from replicas whose clocks are right, fast or slow.
    let ids = ["0192-right", "0fff-fast", "0192-after", "0001-slow", "0193-newest"];
    // The encoded column must be decodable.
    let info = "update compactions set info = $1";
    let stored = pb::Compaction { state: 1, trigger: 1, strategy: 1, ..Default::default() }.encode_to_vec();
    for id in ids {
        let seen = world.number("select context_version from session_run where session_id = $1", &key).await;
        begin(&world.store, &key, id, seen, &unremembered()).await.update.unwrap();
        match id {
            "0fff-fast" => drop(swap(&world.store, &key, id).await.update.unwrap()),
            _ => give_up(&world, &key, id).await,
        }
        world.database.client().await.execute(info, &[&stored]).await.unwrap();
        let (newest, _) = world.store.newest_compaction(&key).await.unwrap().unwrap();
        assert_eq!(newest.id, Some(CompactionId::new(id)));
    }
    let listed = async |before: Option<&str>, limit| {
        let before = before.map(CompactionId::new);
        let page = world.store.compactions(&key, before.as_ref(), limit).await.unwrap();
        page.into_iter().map(|it| it.id.unwrap().to_string()).collect::<Vec<_>>()
    };
    let mut newest_first = ids;
    newest_first.reverse();
    assert_eq!(listed(None, 10).await, newest_first);
    let mut paged = Vec::new();
    let mut before = None;
    while let [next] = listed(before.as_deref(), 1).await.as_slice() {
        paged.push(next.clone());
        before = Some(next.clone());
    }
    assert_eq!(paged, newest_first);
}
