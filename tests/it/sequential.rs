//! Sequential tools: each call is requested after the previous call has its result.

use std::time::Duration;

use contextd::pb::{
    self, AnswerStatus, CompletionReason, ToolCallCancelReason, ToolOutcome, TurnState, event::Payload,
};
use serde_json::json;

use crate::harness::{
    Host, Options, TestDatabase,
    events::{
        all, allowed, calls_made, cancelled, closed, completed, kinds, message_text, messages, next, outline, pending,
        requested, results, turn_id, until, until_action,
    },
    host::{MODEL, answering, call, until as eventually},
    process::Place,
    requests::{one_by_one, result, submit, tool, tools, turn},
};

const NAMES: [&str; 3] = ["look", "list", "feel"];

fn three_calls() -> Options {
    answering(&[
        json!([call("look"), call("list"), call("feel")]),
        json!([{"text": "{{result:look}}, {{result:list}}, {{result:feel}}"}]),
    ])
}

fn asks(session: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&NAMES), session: one_by_one(), ..turn(session, MODEL, "Hello") }
}

fn impatient(name: &str) -> pb::Tool {
    pb::Tool { timeout: Some(Duration::from_millis(300).try_into().unwrap()), ..tool(name) }
}

/// Row D28
#[tokio::test(flavor = "multi_thread")]
async fn each_call_is_requested_after_the_result_of_the_one_before() {
    let host = Host::with(three_calls()).await;
    let mut stream = host.execute(asks("s")).await;
    let (mut seen, action) = until_action(&mut stream).await;
    let calls = calls_made(&seen);
    let turn = turn_id(&seen);
    assert_eq!((calls.len(), action), (3, [vec![calls[0].clone()], vec![]]));
    for (n, name) in NAMES.iter().enumerate() {
        host.assert_counted("s").await;
        let stored = host.turn("s", &turn).await;
        assert_eq!((stored.state(), pending(&stored)), (TurnState::AwaitingTools, [vec![calls[n].clone()], vec![]]));
        for later in &calls[n + 1..] {
            let before = host.database.row_counts().await;
            assert_eq!(host.submit("s", vec![result(later, "early")]).await, [AnswerStatus::NotRequested]);
            assert_eq!(host.database.row_counts().await, before, "an early result changes nothing");
        }
        let answer = host.try_submit(submit("s", vec![result(&calls[n], name)])).await.unwrap();
        assert_eq!(answer.pending_call_ids, calls.get(n + 1).cloned().into_iter().collect::<Vec<_>>());
        if n < 2 {
            let (more, action) = until_action(&mut stream).await;
            assert_eq!(kinds(&more), ["tool_call_completed", "tool_call_requested", "action_required"]);
            assert_eq!(action, [vec![calls[n + 1].clone()], vec![]]);
            seen.extend(more);
        }
    }
    seen.extend(all(&mut stream).await);
    host.assert_counted("s").await;
    assert_eq!(requested(&seen), calls, "each once, in the order the model made them");
    assert_eq!(message_text(messages(&seen).last().unwrap()), "look, list, feel");
    let stored = outline(&host.messages("s").await);
    assert_eq!(stored[2], "TOOL: result look \"look\", result list \"list\", result feel \"feel\"");
}

/// Row D28
#[tokio::test(flavor = "multi_thread")]
async fn all_calls_are_requested_at_once_by_default() {
    let host = Host::with(three_calls()).await;
    let mut stream = host.execute(pb::ExecuteTurnRequest { session: Some(pb::Session::default()), ..asks("s") }).await;
    let (seen, action) = until_action(&mut stream).await;
    assert_eq!((requested(&seen), action), (calls_made(&seen), [calls_made(&seen), vec![]]));
    host.cancel("s", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_submission_of_all_results_answers_only_what_was_requested() {
    let host = Host::with(three_calls()).await;
    let mut stream = host.execute(asks("s")).await;
    let calls = calls_made(&until_action(&mut stream).await.0);
    let all_three = || calls.iter().map(|call| result(call, "fine")).collect::<Vec<_>>();
    use AnswerStatus::{Accepted, Duplicate, NotRequested};
    assert_eq!(host.submit("s", all_three()).await, [Accepted, NotRequested, NotRequested]);
    assert_eq!(host.submit("s", all_three()).await, [Duplicate, Accepted, NotRequested]);
    assert_eq!(host.submit("s", all_three()).await, [Duplicate, Duplicate, Accepted]);
    assert_eq!(completed(&all(&mut stream).await).reason(), CompletionReason::Stop);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_cannot_run_do_not_hold_up_the_others() {
    let broken = json!({"tool_call": {"name": "look", "raw_arguments": "no"}});
    let script = [json!([call("nothing"), call("look"), broken, call("list")]), json!([{"text": "Done."}])];
    let host = Host::with(answering(&script)).await;
    let mut stream = host.execute(asks("s")).await;
    let (mut seen, action) = until_action(&mut stream).await;
    let calls = calls_made(&seen);
    let reasons = [ToolCallCancelReason::UnknownTool, ToolCallCancelReason::Incomplete];
    assert_eq!(closed(&seen).iter().map(|(_, reason)| *reason).collect::<Vec<_>>(), reasons);
    assert_eq!(action, [vec![calls[1].clone()], vec![]]);
    host.assert_counted("s").await;
    host.submit("s", vec![result(&calls[1], "fine")]).await;
    host.submit("s", vec![result(&calls[3], "fine")]).await;
    seen.extend(all(&mut stream).await);
    assert_eq!(requested(&seen), [calls[1].clone(), calls[3].clone()]);
    assert_eq!(host.messages("s").await[2].parts.len(), 4);
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequential_calls_timeout_starts_at_its_own_request() {
    let host = Host::with(three_calls()).await;
    let host_tools = vec![impatient("look"), impatient("list"), tool("feel")];
    let toolset = pb::ToolSet { host_tools, ..pb::ToolSet::default() };
    let mut stream = host.execute(pb::ExecuteTurnRequest { tools: Some(toolset), ..asks("s") }).await;
    let (mut seen, _) = until_action(&mut stream).await;
    let calls = calls_made(&seen);
    for next in &calls[1..] {
        let (more, action) = until_action(&mut stream).await;
        assert_eq!(action, [vec![next.clone()], vec![]], "the next one's turn has come");
        assert_eq!(results(&more)[0].outcome(), ToolOutcome::TimedOut);
        seen.extend(more);
    }
    host.assert_counted("s").await;
    assert_eq!(allowed(&seen), [300, 300, 600_000].map(Duration::from_millis));
    assert_eq!(host.submit("s", vec![result(&calls[0], "late")]).await, [AnswerStatus::Stale]);
    assert_eq!(host.submit("s", vec![result(&calls[2], "in time")]).await, [AnswerStatus::Accepted]);
    seen.extend(all(&mut stream).await);
    assert_eq!(requested(&seen), calls);
    let words = "[No result came in time.]";
    assert_eq!(message_text(messages(&seen).last().unwrap()), format!("{words}, {words}, in time"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_closes_sequential_calls_not_yet_requested() {
    let host = Host::with(three_calls()).await;
    let mut stream = host.execute(asks("s")).await;
    let calls = calls_made(&until_action(&mut stream).await.0);
    host.submit("s", vec![result(&calls[0], "fine")]).await;
    let answer = host.cancel("s", "").await;
    assert_eq!(pending(&answer.turn.unwrap()), [vec![], Vec::<String>::new()]);
    let rest = all(&mut stream).await;
    let names: Vec<String> = closed(&rest).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["list", "feel"]);
    assert_eq!(cancelled(&rest).outcome(), pb::CancelOutcome::ToolsInProgress);
    assert_eq!(requested(&rest), [calls[1].clone()], "the third was never requested");
    host.assert_counted("s").await;
    assert_eq!(host.submit("s", vec![result(&calls[2], "late")]).await, [AnswerStatus::Stale]);
    assert_eq!(host.messages("s").await[2].parts.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_turn_timeout_closes_sequential_calls_not_yet_requested() {
    let host = Host::with(three_calls()).await;
    let turn_timeout = Some(Duration::from_secs(1).try_into().unwrap());
    let limits = Some(pb::TurnLimits { turn_timeout, ..pb::TurnLimits::default() });
    let mut stream = host.execute(pb::ExecuteTurnRequest { limits, ..asks("s") }).await;
    let (_, [asked, _]) = until_action(&mut stream).await;
    let rest = all(&mut stream).await;
    assert_eq!(completed(&rest).reason(), CompletionReason::Deadline);
    assert_eq!((closed(&rest).len(), requested(&rest)), (3, vec![]));
    host.assert_counted("s").await;
    assert_eq!(host.submit("s", vec![result(&asked[0], "late")]).await, [AnswerStatus::Stale]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_call_is_requested_once_whoever_submits_the_result_before() {
    let host = Host::with(three_calls()).await;
    let other = host.beside(three_calls()).await;
    for round in 0..5 {
        let session = format!("s{round}");
        let mut stream = host.execute(asks(&session)).await;
        let (mut seen, _) = until_action(&mut stream).await;
        for call in calls_made(&seen) {
            let answer = || submit(&session, vec![result(&call, "fine")]);
            let (one, two) = tokio::join!(host.try_submit(answer()), other.try_submit(answer()));
            let mut statuses: Vec<_> = [one, two].into_iter().map(|one| one.unwrap().receipts[0].status()).collect();
            statuses.sort();
            assert_eq!(statuses, [AnswerStatus::Accepted, AnswerStatus::Duplicate]);
            host.assert_counted(&session).await;
        }
        let calls = calls_made(&seen);
        seen.extend(all(&mut stream).await);
        assert_eq!((requested(&seen), results(&seen).len()), (calls, 3));
        let steps = kinds(&seen).iter().filter(|kind| **kind == "step_started").count();
        assert_eq!(steps, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequential_batch_continues_after_its_replica_was_killed() {
    let settings =
        "[turn]\nlease_ttl = '1s'\npoll_interval = '50ms'\n[policies.default.tools]\nexecution = 'sequential'\n";
    let script = json!({"steps": [
        {"when": {"call": 0}, "say": [call("look"), call("list"), call("feel")]},
        {"say": [{"text": "{{result:look}}, {{result:list}}, {{result:feel}}"}]},
    ]});
    let database = TestDatabase::new().await;
    let place = Place::new(settings).script("it", &script);
    let (first, second) = tokio::join!(place.serve_over(&database), place.serve_over(&database));
    let request = pb::ExecuteTurnRequest { session: Some(pb::Session::default()), ..asks("s") };
    let mut stream = first.turns().await.execute_turn(request.clone()).await.unwrap().into_inner();
    let (seen, _) = until_action(&mut stream).await;
    let calls = calls_made(&seen);
    first.turns().await.submit_tool_results(submit("s", vec![result(&calls[0], "a")])).await.unwrap();
    first.kill_9().await;

    let mut turns = second.turns().await;
    let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
    let told = until(&mut stream, |payload| matches!(payload, Payload::Sync(_))).await;
    let Some(Payload::Sync(sync)) = &told.last().unwrap().payload else { unreachable!() };
    let waiting: Vec<_> = sync.pending_calls.iter().map(|pending| pending.call.clone().unwrap().call_id).collect();
    assert_eq!((waiting, requested(&told)), (vec![calls[1].clone()], calls[..2].to_vec()));
    for (call, words) in [(&calls[1], "b"), (&calls[2], "c")] {
        let answer = turns.submit_tool_results(submit("s", vec![result(call, words)])).await.unwrap().into_inner();
        assert_eq!(answer.receipts[0].status(), AnswerStatus::Accepted);
    }
    let mut rest = told;
    while let Some(event) = next(&mut stream).await.unwrap() {
        rest.push(event);
    }
    assert_eq!(requested(&rest), calls, "none is requested again");
    assert_eq!(message_text(messages(&rest).last().unwrap()), "a, b, c");
    assert!(!kinds(&rest).contains(&"turn_recovered"), "a turn that waits needs no recovery");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_times_out_without_a_replica_is_closed_by_the_next() {
    let gone = Host::with(Options { workers: false, ..three_calls() }).await;
    let host_tools = vec![impatient("look"), tool("list"), tool("feel")];
    let toolset = pb::ToolSet { host_tools, ..pb::ToolSet::default() };
    let mut stream = gone.execute(pb::ExecuteTurnRequest { tools: Some(toolset), ..asks("s") }).await;
    let (seen, _) = until_action(&mut stream).await;
    let calls = calls_made(&seen);
    let turn = turn_id(&seen);
    let other = gone.beside(three_calls()).await;
    eventually("the second call's turn", || async { pending(&other.turn("s", &turn).await)[0] == calls[1..2] }).await;
    gone.assert_counted("s").await;
    for call in &calls[1..] {
        assert_eq!(other.submit("s", vec![result(call, "fine")]).await, [AnswerStatus::Accepted]);
    }
    other.at_rest().await;
    assert_eq!(requested(&other.events("s", "", 0, 100).await), calls);
}
