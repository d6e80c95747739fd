//! Rules that are implemented both in Rust and in SQL. Both must give the same result for a session.

use contextd::{session::SessionState, store::following::TurnStarters};

use super::*;

/// `following::AHEAD` and `queue::LOOK` in Rust, `{more_waits}` in `sql/fragments.sql`.
async fn a_message_waits(world: &World, delivery: Delivery, waits: bool) {
    let (key, grant) = world.running(&format!("waits-{waits}")).await;
    let message = MessageId::new("m");
    let none = unremembered();
    let new = NewQueued { delivery, ..asap(&message, &none) };
    placed(world.store.enqueue(&key, &new, None).await.unwrap());
    let ahead = world.store.queue_at_turn_end(&key, TurnStarters::AfterCompletion).await.unwrap();
    let look = world.store.queue_snapshot(&key).await.unwrap().unwrap();
    let ack = applied(finish(&world.store, &key, grant.turn_fence(), Rows::new(ESTIMATOR, 0)).await);
    assert_eq!(
        (ahead.waiting, !look.waiting.is_empty(), ack.state != SessionState::Idle),
        (waits, waits, waits),
        "{delivery:?}"
    );
}

/// `Store::asks_for_an_answer` in Rust, `sql/admit/run.sql`.
async fn the_transcript_asks_for_an_answer(world: &World, last: Role, asks: bool) {
    let (key, grant) = world.running(&format!("asks-{asks}")).await;
    let rows = says(&format!("last-{asks}"), last, 5, Category::Assistant);
    applied(finish(&world.store, &key, grant.turn_fence(), rows).await);
    let turn = TurnId::new(format!("continued-{asks}"));
    let rows = opening_without_input();
    let none = unremembered();
    let request = TurnRequest::default();
    let admission = Admission { continues: true, ..admission(&turn, &rows, &none, &request) };
    assert_eq!(world.store.asks_for_an_answer(&key).await.unwrap(), asks, "{last:?}");
    let granted = world.store.admit(&key, &admission).await.unwrap();
    assert_eq!(granted.is_some(), asks, "{last:?}");
}

/// `CallState::is_open` in Rust, `status < 3` and `open_calls` in SQL: before a result, after it, and after the end of
/// the turn has closed the remaining calls.
async fn calls_are_open(world: &World) {
    let (key, _) = world.waiting("calls", &["c1", "?c2", ">c3"]).await;
    let ids = ["c1", "c2", "c3"].map(CallId::new);
    for (answered, open) in [(None, 3), (Some("c1"), 2)] {
        if let Some(call) = answered {
            submit(&world.store, &key, &[call], &unremembered()).await;
        }
        let calls = world.store.calls(&key, &ids).await.unwrap();
        let in_rust = calls.values().filter(|call| call.state.is_open()).count();
        let in_sql = "select open_calls::bigint from session_run where session_id = $1";
        assert_eq!(in_rust, open, "{answered:?}");
        assert_eq!(usize::try_from(world.number(in_sql, &key).await), Ok(open));
    }
}

#[tokio::test]
async fn rules_that_stand_in_rust_and_in_sql_say_the_same() {
    let world = World::new().await;
    a_message_waits(&world, Delivery::Asap, true).await;
    a_message_waits(&world, Delivery::WhenIdle, false).await;
    the_transcript_asks_for_an_answer(&world, Role::User, true).await;
    the_transcript_asks_for_an_answer(&world, Role::Assistant, false).await;
    calls_are_open(&world).await;
}
