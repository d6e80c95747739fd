//! Turns whose model or policy is no longer configured, turns that cannot be taken over, and large numbers of turns
//! that can.

use std::time::Duration;

use contextd::pb::{self, AnswerStatus, FailureReason, TurnState};

use crate::harness::{
    Host, Options, TestDatabase, as_worker,
    events::{requested, turn_id, until_action},
    host::{MODEL, call, until as eventually},
    process::{Place, Served},
    requests::{enqueue, result, submit, tools, turn},
    survivor::{Survivor, asking, two_tools},
};

/// A model that calls a tool and responds after its result.
fn options() -> Options {
    let script = serde_json::json!({"steps": [
        {"when": {"call": 0}, "say": [{"text": "Let me look."}, call("look")]},
        {"say": [{"text": "Seen."}]},
    ]});
    Options::default().script("it", script.to_string())
}

/// Runs a turn until it waits for its tool. Returns its id and the id of the call.
async fn waiting(host: &Host, session: &str) -> (String, String) {
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn(session, MODEL, "Go") };
    let mut stream = host.execute(request).await;
    let (events, _) = until_action(&mut stream).await;
    (turn_id(&events), requested(&events).remove(0))
}

/// Expires the timeout of every open call.
async fn time_passes(host: &Host) {
    let sql =
        "update tool_calls set deadline = now() - interval '1 second' where closed_at is null;
               update session_run set version = version + 1, tool_deadline = now() - interval '1 second' where state = 2";
    host.database.client().await.batch_execute(sql).await.unwrap();
}

/// Waits until the turn fails. Returns the reason.
async fn failure(host: &Host, session: &str, turn: &str) -> FailureReason {
    eventually("the turn to end", || async { host.turn(session, turn).await.state() != TurnState::AwaitingTools })
        .await;
    eventually("the turn to fail", || async { host.turn(session, turn).await.state() == TurnState::Failed }).await;
    host.turn(session, turn).await.failure.unwrap().reason()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_turn_whose_model_was_removed_fails_when_its_calls_are_overdue() {
    let before = Host::with(options()).await;
    let (turn, _) = waiting(&before, "s").await;
    before.replica.drain(Duration::ZERO).await;
    let host = before.beside(Options::default()).await;
    time_passes(&host).await;
    assert_eq!(failure(&host, "s", &turn).await, FailureReason::ModelNotFound);
    host.assert_counted("s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_results_of_a_turn_whose_model_was_removed_are_kept_and_the_turn_fails() {
    let before = Host::with(options()).await;
    let (turn, call) = waiting(&before, "s").await;
    before.replica.drain(Duration::ZERO).await;
    let host = before.beside(Options::default()).await;
    let answers = host.submit("s", vec![result(&call, "found")]).await;
    assert_eq!(answers, [AnswerStatus::Accepted]);
    assert_eq!(failure(&host, "s", &turn).await, FailureReason::ModelNotFound);
    let messages = host.messages("s").await;
    assert_eq!(messages.last().unwrap().role(), pb::Role::Tool, "{messages:?}");
    host.assert_counted("s").await;
}

async fn stored(served: &Served, session: &str, turn: &str) -> pb::Turn {
    let request = pb::GetTurnRequest { session_id: session.to_owned(), turn_id: turn.to_owned() };
    served.turns().await.get_turn(request).await.unwrap().into_inner().turn.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_turn_whose_policy_was_removed_gets_its_results_and_fails() {
    const QUICK: &str = "[turn]\npoll_interval = '50ms'\n";
    let database = TestDatabase::new().await;
    let named = Place::new(&format!("{QUICK}[policies.careful]\n")).script("tools", &two_tools());
    let served = named.serve_over(&database).await;
    let session = pb::Session { policy: "careful".to_owned(), ..pb::Session::default() };
    let asked = pb::ExecuteTurnRequest { session: Some(session), ..asking("scripted/tools", "s") };
    let mut host = Survivor::new(asked);
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, pb::event::Payload::ActionRequired(_))).await;
    let turn = turn_id(&host.seen);
    let calls = requested(&host.seen);
    served.stop().await;

    let served = Place::new(QUICK).script("tools", &two_tools()).serve_over(&database).await;
    for call in calls {
        let answer = submit("s", vec![result(&call, "fine")]);
        let answer = served.turns().await.submit_tool_results(answer).await.unwrap().into_inner();
        assert_eq!(answer.receipts[0].status(), AnswerStatus::Accepted);
    }
    eventually("the turn to fail", || async { stored(&served, "s", &turn).await.state() == TurnState::Failed }).await;
    let failure = stored(&served, "s", &turn).await.failure.unwrap();
    assert_eq!(failure.reason(), FailureReason::PolicyNotFound);
    assert!(failure.message.contains("careful"), "{}", failure.message);
}

/// Copies a session with all its rows this many times.
async fn copy(host: &Host, session: &str, copies: usize) {
    let sql = format!(
        "do $$ declare t text; cols text; begin
           foreach t in array array['sessions', 'session_run', 'session_activity', 'session_revisions', 'turns',
                                    'tool_calls', 'messages', 'parts', 'queue'] loop
             select string_agg(quote_ident(column_name), ', ') into cols from information_schema.columns
              where table_schema = 'public' and table_name = t and is_generated = 'NEVER' and is_identity = 'NO'
                and column_name <> 'session_id';
             execute format('insert into %1$I (session_id, %2$s) select %3$L || n, %2$s from %1$I, generate_series(1, {copies}) n
                              where session_id = %4$L', t, cols, '{session}-', '{session}');
           end loop; end $$"
    );
    host.database.client().await.batch_execute(&sql).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_turns_that_cannot_be_taken_over_do_not_crowd_out_one_that_can() {
    let before = Host::with(Options { workers: false, ..options() }).await;
    waiting(&before, "stuck").await;
    let (turn, _) = waiting(&before, "fine").await;
    copy(&before, "stuck", 1000).await;
    let unreadable = "update turns set request = '\\xff' where session_id like 'stuck%'";
    before.database.client().await.batch_execute(unreadable).await.unwrap();
    let host = before.beside(Options { workers: false, ..options() }).await;
    time_passes(&host).await;
    as_worker(host.replica.engine.take_over()).await.unwrap();
    let taken = host.turn("fine", &turn).await.state();
    assert_ne!(taken, TurnState::AwaitingTools, "one round leaves nothing out that can be taken over");
    eventually("the turn to end", || async { host.turn("fine", &turn).await.state() == TurnState::Completed }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_round_takes_over_all_turns_that_need_an_owner() {
    let idle = || Options { workers: false, ..options() };
    let before = Host::with(idle()).await;
    waiting(&before, "s").await;
    copy(&before, "s", 200).await;
    let host = before.beside(idle()).await;
    time_passes(&host).await;
    as_worker(host.replica.engine.take_over()).await.unwrap();
    let client = host.database.client().await;
    let left = "select count(*) from session_run where state = 2";
    let left: i64 = client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, 0, "turns wait for the next round");
    host.at_rest().await;
}

/// An idle session with a queued message that starts a turn.
async fn idle_with_starter(host: &Host, session: &str, model: &str) {
    host.run(turn(session, model, "Go")).await;
    host.enqueue(enqueue(session, "And on")).await;
    let sql = "update queue set starts_turn = true where session_id = $1";
    let database = host.database.client().await;
    assert_eq!(database.execute(sql, &[&session]).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_queued_messages_without_a_model_do_not_crowd_out_one_with() {
    let idle = |options: Options| Options { workers: false, ..options };
    let says = |options: Options, model: &str| {
        let script = serde_json::json!({"steps": [{"say": [{"text": "Fine."}]}]});
        options.script(model, script.to_string())
    };
    let before = says(says(idle(Options::default()), "it"), "gone");
    let before = Host::with(before).await;
    idle_with_starter(&before, "stuck", "scripted/gone").await;
    idle_with_starter(&before, "fine", MODEL).await;
    copy(&before, "stuck", 1000).await;
    let host = before.beside(says(idle(Options::default()), "it")).await;
    as_worker(host.replica.engine.start_waiting_turns()).await.unwrap();
    eventually("the turn to end", || async { host.messages("fine").await.len() == 4 }).await;
}
