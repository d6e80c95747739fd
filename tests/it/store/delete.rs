//! The end of a session: whoever owned its turn writes nothing any more, and no message is left
//! waiting in it.

use contextd::{
    model::{CancelCause, CancelOutcome},
    store::{
        delete::Deletion,
        step::{Begun, NewStep},
    },
};

use super::*;

/// Deletes a session as it stands; none: it moved.
async fn delete(store: &Store, key: &SessionKey) -> Option<Seq> {
    let seen = store.doomed(key, None).await.unwrap().unwrap();
    let cause = CancelCause::SessionDeleted;
    let ending = Ending::Cancelled {
        cause,
        outcome: CancelOutcome::Unknown,
        reason: String::new(),
        undone: None,
    };
    let result = TurnResult::default();
    let end = end(&ending, &result);
    let deletion = Deletion {
        unused_for: None,
        seen: &seen,
        revision: None,
        end: seen.turn.as_ref().map(|_| &end),
        estimator: ESTIMATOR,
        stay: LEASE,
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
            _ => assert!(
                other.seize(&key, None).await.unwrap() && !other.seize(&key, None).await.unwrap()
            ),
        }
        let rows = says("late", Role::Assistant, 3, Category::Assistant);
        let step = NewStep {
            revision: 1,
            in_any_case: true,
            started: b"",
            size_offset: 10,
        };
        let append = world
            .store
            .append(&key, grant.right(), &rows, &StepCost::default(), None)
            .await
            .unwrap();
        assert_eq!(append, Written::Fenced);
        assert_eq!(
            world
                .store
                .begin_step(&key, grant.right(), &step)
                .await
                .unwrap(),
            Begun::Fenced
        );
        assert_eq!(
            finish(&world.store, &key, grant.right(), rows).await,
            Written::Fenced
        );
        assert_eq!(
            stop(&world.store, &key, grant.right()).await,
            Written::Fenced
        );
        world.assert_dense(&key).await;
    }
}

#[tokio::test]
async fn a_turn_is_seized_only_under_the_revision_that_was_named() {
    let world = World::new().await;
    let (key, _) = world.running("s").await;
    assert!(!world.store.seize(&key, Some(2)).await.unwrap());
    assert!(world.store.seize(&key, Some(1)).await.unwrap());
    assert!(
        !world
            .store
            .seize(&world.idle("idle").await, None)
            .await
            .unwrap(),
        "nothing runs there"
    );
}

#[tokio::test]
async fn a_step_gives_way_to_a_newer_configuration_and_in_any_case_begins() {
    let world = World::new().await;
    let (key, grant) = world.running("s").await;
    let step = |revision, in_any_case| NewStep {
        revision,
        in_any_case,
        started: b"",
        size_offset: 10,
    };
    let begin = async |step: NewStep<'_>| {
        world
            .store
            .begin_step(&key, grant.right(), &step)
            .await
            .unwrap()
    };
    assert_eq!(begin(step(2, false)).await, Begun::Moved);
    assert_eq!(
        world
            .number("select op from session_run where session_id = $1", &key)
            .await,
        grant.fence.op
    );
    let Begun::Applied(first) = begin(step(2, true)).await else {
        panic!("it gave way")
    };
    assert_eq!(
        begin(step(2, true)).await,
        Begun::Applied(first),
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
                store
                    .enqueue(key, &asap(&message, &idempotency), None)
                    .await
                    .unwrap()
            }
        };
        let (deleted, a, b, c) = tokio::join!(
            delete(&world.store, &key),
            enqueue(1),
            enqueue(2),
            enqueue(3)
        );
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
    assert!(
        dropped > 0 && refused > 0,
        "{dropped} dropped, {refused} refused: they did not meet"
    );
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
    assert_eq!(
        (&new.turn, new.last_seq),
        (&old.turn, old.last_seq),
        "all but the fence is as before"
    );
    let rows = says("late", Role::Assistant, 3, Category::Assistant);
    let append = world
        .store
        .append(&key, old.right(), &rows, &StepCost::default(), None)
        .await
        .unwrap();
    assert_eq!(append, Written::Fenced);
    assert_eq!(stop(&world.store, &key, old.right()).await, Written::Fenced);

    applied(finish(&world.store, &key, new.right(), Rows::new(ESTIMATOR, 0)).await);
    delete(&world.store, &key).await.unwrap();
    world.expire(&key).await;
    world.store.purge(&key).await.unwrap();
    let config = SessionConfig::default();
    let new_config = NewConfig {
        config: &config,
        tools_tokens: 0,
        estimator: ESTIMATOR,
    };
    assert!(
        world
            .store
            .create_session(&key, &new_config, &unremembered())
            .await
            .unwrap()
    );
    assert!(
        admit(&world.store, &key, "again")
            .await
            .unwrap()
            .fence
            .epoch
            > new.fence.epoch
    );
}
