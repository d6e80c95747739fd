//! Forks: all messages of the source are copied, and nothing is written after the fork was abandoned.

use std::sync::{Arc, Mutex, mpsc};

use contextd::store::fork::{Copied, CopyInProgress, NewFork, PieceLimits, Source};

use tokio::{runtime::Handle, task::spawn_blocking};

use super::*;

const COMMIT: &str = "-- store::commit::commit";

/// The source of the forks, with two messages.
async fn source(world: &World) -> SessionKey {
    let source = world.idle("s").await;
    let second = "insert into messages (tenant_id, session_id, seq, message_id, role, step, tokens, info) values ('t', 's', 50, 'm50', 2, 1, 4, '');
                  update session_run set version = version + 1, next_seq = 51 where session_id = 's'";
    world.database.client().await.batch_execute(second).await.unwrap();
    source
}

/// Claims a fork that is copied one message at a time.
async fn claim(world: &World, source: &SessionKey) -> (SessionKey, CopyInProgress) {
    let client = world.database.client().await;
    let created = "select created_at from sessions where session_id = 's'";
    let created = client.query_one(created, &[]).await.unwrap().get(0);
    let fork = key("fork");
    let new = NewFork {
        id: &fork.session,
        config: NewConfig { config: &SessionConfig::default(), tools_tokens: 0, estimator: ESTIMATOR },
        claim: "one",
        lease: LEASE,
        most: PieceLimits { messages: 1, bytes: 1 << 20 },
    };
    let source = Source { key: source, created, at: Seq(50) };
    let idempotency = unremembered();
    let copying = Box::pin(world.store.claim_fork(source, &new, &idempotency)).await;
    let copying = copying.unwrap().expect("a source");
    assert_eq!(messages(world, &fork).await, 1);
    (fork, copying)
}

async fn messages(world: &World, key: &SessionKey) -> i64 {
    let sql = "select count(*) from messages where session_id = $1";
    world.number(sql, key).await
}

#[tokio::test]
async fn a_fork_in_pieces_has_all_messages_of_its_source() {
    let world = World::new().await;
    let source = source(&world).await;
    let (fork, mut copying) = claim(&world, &source).await;
    for expected in [Copied::Part, Copied::Whole] {
        let copied = world.store.copy_piece(&mut copying).await.unwrap();
        assert_eq!(copied, expected);
    }
    assert!(world.store.open_fork(&copying).await.unwrap());
    assert_eq!(messages(&world, &fork).await, 2);
}

/// A purge removes the rows of one table after another. Rows that a copy writes to a table after that would never be
/// removed.
#[tokio::test]
async fn a_paused_copy_writes_nothing_once_the_purge_of_its_fork_has_begun() {
    let world = World::new().await;
    let source = source(&world).await;
    let (fork, mut copying) = claim(&world, &source).await;
    let (pauses, paused) = mpsc::sync_channel(1);
    let (resume, resumed) = mpsc::sync_channel::<()>(1);
    let resumed = Arc::new(Mutex::new(resumed));
    let pool = world.database.pool().rewriting(move |statements| {
        if statements.iter().any(|sql| sql.starts_with(COMMIT)) {
            pauses.send(()).ok();
            resumed.lock().unwrap().recv().ok();
        }
        statements.to_vec()
    });
    let slow = Store::new(pool, "slow", LEASE);
    // The copy blocks its thread while it is paused.
    let runtime = Handle::current();
    let copy = spawn_blocking(move || runtime.block_on(slow.copy_piece(&mut copying)));
    spawn_blocking(move || paused.recv()).await.unwrap().unwrap();

    // For this store, the lease has expired, as it would an hour later. The purge fails before it makes the id
    // available again.
    let pool = world.database.pool().rewriting(|statements| {
        let later = |sql: &&'static str| -> &'static str {
            if sql.starts_with("-- store::delete::free") {
                return "select 1 / (0 * length($1::text) * length($2::text))";
            }
            let an_hour_later = "lease_until < now() + interval '1 hour'";
            sql.replace("lease_until < now()", an_hour_later).leak()
        };
        statements.iter().map(later).collect()
    });
    let purging = Store::new(pool, "purging", LEASE);
    purging.purge(&fork).await.unwrap_err();
    drop(resume);

    assert!(copy.await.unwrap().is_err(), "the fork was given up");
    assert_eq!(messages(&world, &fork).await, 0);
}
