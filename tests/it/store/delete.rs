//! The deletion of a session: the former owner of its turn writes nothing more, and no message remains pending.

use contextd::{
    model::{Access, BlobId, CancelCause, CancelOutcome, TenantLimits},
    session::steps::NewStep,
    store::{
        AdmittedAt, Error,
        api_key::NewKey,
        delete::Deletion,
        fork::{NewFork, PieceLimits, Source},
        written::ConditionalWriteOutcome,
    },
};

use super::*;

/// Deletes a session as it was read. Returns `None` if it has changed since.
async fn delete(store: &Store, key: &SessionKey) -> Option<Seq> {
    let seen = store.head(key, None).await.unwrap().unwrap();
    let cause = CancelCause::SessionDeleted;
    let ending = Ending::Cancelled { cause, outcome: CancelOutcome::Unknown, reason: String::new(), undone: None };
    let result = TurnResult::default();
    let end = end(&ending, &result);
    let deletion = Deletion {
        unused_for: None,
        seen: &seen,
        revision: None,
        end: seen.live_turn().map(|_| &end),
        estimator: ESTIMATOR,
        retention: LEASE,
        idempotency: &unremembered(),
    };
    store.delete(key, &deletion).await.unwrap()
}

#[tokio::test]
async fn the_owner_of_a_turn_whose_session_was_deleted_or_seized_is_fenced() {
    let world = World::new().await;
    let other = world.replica("two");
    for end in ["deleted", "seized"] {
        let (key, grant) = world.running(end).await;
        match end {
            "deleted" => assert_eq!(delete(&other, &key).await, Some(Seq(grant.last_seq.0 + 1))),
            _ => assert!(other.seize(&key, None).await.unwrap() && !other.seize(&key, None).await.unwrap()),
        }
        let rows = says("late", Role::Assistant, 3, Category::Assistant);
        let step = NewStep { revision: 1, in_any_case: true, started: b"", size_offset: 10 };
        let append = world.store.append(&key, grant.turn_fence(), &rows, &StepCost::default(), None).await.unwrap();
        assert_eq!(append, WriteOutcome::Fenced);
        assert_eq!(
            world.store.begin_step(&key, grant.turn_fence(), &step).await.unwrap(),
            ConditionalWriteOutcome::Fenced
        );
        assert_eq!(finish(&world.store, &key, grant.turn_fence(), rows).await, WriteOutcome::Fenced);
        assert_eq!(stop(&world.store, &key, grant.turn_fence()).await, WriteOutcome::Fenced);
        world.assert_dense(&key).await;
    }
}

#[tokio::test]
async fn a_turn_is_seized_only_under_the_revision_that_was_named() {
    let world = World::new().await;
    let (key, _) = world.running("s").await;
    assert!(!world.store.seize(&key, Some(2)).await.unwrap());
    assert!(world.store.seize(&key, Some(1)).await.unwrap());
    assert!(!world.store.seize(&world.idle("idle").await, None).await.unwrap(), "nothing runs there");
}

#[tokio::test]
async fn a_step_gives_way_to_a_newer_configuration_and_in_any_case_begins() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let step = |revision, in_any_case| NewStep { revision, in_any_case, started: b"", size_offset: 10 };
    let begin = async |step: NewStep<'_>| world.store.begin_step(&key, grant.turn_fence(), &step).await.unwrap();
    assert_eq!(begin(step(2, false)).await, ConditionalWriteOutcome::Stale);
    assert_eq!(world.number("select op from session_run where session_id = $1", &key).await, grant.fence.op);
    let ConditionalWriteOutcome::Applied(first) = begin(step(2, true)).await else { panic!("it gave way") };
    assert_eq!(
        begin(step(2, true)).await,
        ConditionalWriteOutcome::Applied(first),
        "repeated, it is found to have landed"
    );
    world.assert_dense(&key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_meets_a_deletion_is_dropped_or_finds_no_session() {
    let world = World::new().await;
    let other = world.replica("two");
    let mut dropped = 0;
    let mut refused = 0;
    for round in 0..100 {
        let key = match round % 2 {
            0 => world.idle(&format!("s{round}")).await,
            _ => world.running(&format!("s{round}")).await.0,
        };
        let enqueue = |id: u32| {
            let key = &key;
            let store = &other;
            async move {
                let message = MessageId::new(format!("m{id}"));
                let idempotency = request(&format!("r{id}"));
                store.enqueue(key, &asap(&message, &idempotency), None).await.unwrap()
            }
        };
        let (deleted, a, b, c) = tokio::join!(delete(&world.store, &key), enqueue(1), enqueue(2), enqueue(3));
        assert!(deleted.is_some(), "messages do not move a session");
        for outcome in [a, b, c] {
            match outcome {
                Enqueued::Queued(_) => dropped += 1,
                Enqueued::NoSession => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        let waiting = "select count(*) from queue where session_id = $1 and status = 0";
        assert_eq!(world.number(waiting, &key).await, 0);
        let untold = "select count(*) filter (where status = 4) - (select count(*) from events e
                         where e.session_id = $1 and e.kind = 'queued_message_dropped') from queue where session_id = $1";
        assert_eq!(world.number(untold, &key).await, 0);
        world.assert_dense(&key).await;
    }
    assert!(dropped > 0 && refused > 0, "{dropped} dropped, {refused} refused: they did not meet");
}

#[tokio::test]
async fn an_owner_from_before_a_deletion_is_fenced_in_the_session_that_takes_the_id() {
    let world = World::new().await;
    let (key, old) = world.running("s").await;
    delete(&world.replica("two"), &key).await.unwrap();
    assert_eq!(admit_new(&world.store, &key).await, None, "its id is taken");
    world.expire(&key).await;
    world.store.purge(&key).await.unwrap();
    let new = admit_new(&world.store, &key).await.unwrap();
    assert_eq!((&new.turn, new.last_seq), (&old.turn, old.last_seq), "all but the fence is as before");
    let rows = says("late", Role::Assistant, 3, Category::Assistant);
    let append = world.store.append(&key, old.turn_fence(), &rows, &StepCost::default(), None).await.unwrap();
    assert_eq!(append, WriteOutcome::Fenced);
    assert_eq!(stop(&world.store, &key, old.turn_fence()).await, WriteOutcome::Fenced);

    applied(finish(&world.store, &key, new.turn_fence(), Rows::new(ESTIMATOR, 0)).await);
    delete(&world.store, &key).await.unwrap();
    world.expire(&key).await;
    world.store.purge(&key).await.unwrap();
    let config = SessionConfig::default();
    let new_config = NewConfig { config: &config, tools_tokens: 0, estimator: ESTIMATOR };
    assert!(world.store.create_session(&key, new_config, &unremembered()).await.unwrap());
    assert!(admit(&world.store, &key, "again").await.unwrap().fence.epoch > new.fence.epoch);
}

/// Something that a call creates for a tenant.
#[derive(Debug, Clone, Copy)]
enum Creation {
    Session,
    Turn,
    Fork,
    Blob,
    Upload,
    ApiKey,
    Limits,
}

const CREATIONS: [Creation; 7] = [
    Creation::Session,
    Creation::Turn,
    Creation::Fork,
    Creation::Blob,
    Creation::Upload,
    Creation::ApiKey,
    Creation::Limits,
];

/// Limits of one piece of a fork's copy.
const MOST: PieceLimits = PieceLimits { messages: 100, bytes: 1 << 20 };

/// A session that can be forked.
async fn source_of(store: &Store) -> (SessionKey, contextd::store::session::Session) {
    let key = key("source");
    let seen = store.session(&key).await.unwrap().unwrap();
    (key, seen)
}

async fn create(store: &Store, what: Creation) -> Result<(), Error> {
    let tenant = TenantId::new("t");
    let config = SessionConfig { model: "scripted/demo".to_owned(), ..SessionConfig::default() };
    let new = NewConfig { config: &config, tools_tokens: 0, estimator: ESTIMATOR };
    match what {
        Creation::Session => store.create_session(&key("created"), new, &request("created")).await.map(drop),
        Creation::Turn => {
            let (turn, rows) = (TurnId::new("turn"), opening("with-turn"));
            let (idempotency, request) = (unremembered(), TurnRequest::default());
            let admission = admission(&turn, &rows, &idempotency, &request);
            let admitted = store.admit_new(&key("with-turn"), &admission, new).await;
            admitted.map(drop)
        }
        Creation::Fork => {
            let (key, seen) = source_of(store).await;
            let source = Source { key: &key, created: seen.created_at, at: seen.last_seq };
            let fork = NewFork { id: &SessionId::new("fork"), config: new, claim: "a", lease: LEASE, most: MOST };
            let claimed = store.claim_fork(source, &fork, &unremembered()).await;
            claimed.map(drop)
        }
        Creation::Blob => {
            let id = BlobId::new("blob".to_owned());
            store.put_blob(&tenant, &id, "text/plain", b"words").await
        }
        Creation::Upload => {
            let id = BlobId::new("upload:1".to_owned());
            let chunk: &[u8] = b"words";
            store.write_upload(&tenant, &id, 0, &[chunk]).await
        }
        Creation::ApiKey => {
            let key = NewKey {
                id: "key",
                tenant: &tenant,
                hash: [7; 32],
                access: Access::Write,
                name: "",
                ttl_seconds: None,
                most: 100,
            };
            store.create_key(&key).await.map(drop)
        }
        Creation::Limits => {
            let limits = TenantLimits::default();
            store.set_tenant_limits(&tenant, &limits).await
        }
    }
}

/// The number of rows of the tenant in each table.
async fn rows_of_tenant(world: &World) -> BTreeMap<String, i64> {
    let client = world.database.client().await;
    let mut rows = BTreeMap::new();
    for table in contextd::store::erasure::tables() {
        let sql = format!("select count(*) from {table} where tenant_id = 't'");
        let count: i64 = client.query_one(&sql, &[]).await.unwrap().get(0);
        rows.insert(table.to_owned(), count);
    }
    rows
}

#[tokio::test]
async fn a_call_that_was_admitted_before_a_deletion_creates_nothing_after_it() {
    let world = World::new().await;
    let store = &world.store;
    world.idle("source").await;
    let (_, read) = store.limits_version().await.unwrap();
    let before = AdmittedAt(Some(read.at));
    let had = rows_of_tenant(&world).await;
    let client = world.database.client().await;
    let goes_on =
        "insert into tenant_deletions (tenant_id, asked_at, asked_by) values ('t', now() - interval '1 minute', 'ops')";
    client.batch_execute(goes_on).await.unwrap();
    let check_refused = async |admitted: AdmittedAt| {
        for what in CREATIONS {
            let refused = admitted.scope(create(store, what)).await;
            assert!(matches!(refused, Err(Error::TenantDeleted(_))), "{what:?}: {refused:?}");
        }
        assert_eq!(rows_of_tenant(&world).await, had);
    };
    check_refused(AdmittedAt(None)).await;
    let done = "update tenant_deletions set done_at = now()";
    client.batch_execute(done).await.unwrap();
    check_refused(before).await;

    let (_, read) = store.limits_version().await.unwrap();
    for what in CREATIONS {
        let made = AdmittedAt(Some(read.at)).scope(create(store, what)).await;
        made.unwrap_or_else(|error| panic!("{what:?}: {error}"));
    }
    assert_ne!(rows_of_tenant(&world).await, had);
}

/// Removes the check whether the tenant is deleted from a statement.
fn blind(sql: &str) -> String {
    const LOOK: &str = "not exists (select from tenant_deletions";
    sql.replace(LOOK, &format!("true or {LOOK}"))
}

#[tokio::test]
async fn creations_that_do_not_look_at_deletions_are_found() {
    let world = World::new().await;
    world.idle("source").await;
    let (_, read) = world.store.limits_version().await.unwrap();
    let had = rows_of_tenant(&world).await;
    let client = world.database.client().await;
    let done = "insert into tenant_deletions (tenant_id, asked_at, asked_by, done_at)
                values ('t', now() - interval '1 minute', 'ops', now())";
    client.batch_execute(done).await.unwrap();
    let pool = world.database.pool();
    let pool = pool.rewriting(|all| all.iter().map(|sql| -> &'static str { blind(sql).leak() }).collect());
    world.database.replace_commit_function(blind).await;
    let store = Store::new(pool, "two", LEASE);
    for what in CREATIONS {
        let made = AdmittedAt(Some(read.at)).scope(create(&store, what)).await;
        made.unwrap_or_else(|error| panic!("{what:?}: {error}"));
    }
    assert_ne!(rows_of_tenant(&world).await, had);
}
