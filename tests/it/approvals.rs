//! Tools that require the approval of a user: which calls request it, the effects of approval, denial, changed
//! arguments and no decision, and that each call is decided once.

use std::time::Duration;

use contextd::{
    model::Content,
    pb::{self, AnswerStatus, CompletionReason, ToolOutcome, TurnState, event::Payload},
};
use serde_json::json;

use crate::harness::{
    Host, Options,
    events::{
        all, allowed, calls_made, completed, content, kind, kinds, message_text, messages, outline, pending, requested,
        results, turn_id, until, until_action,
    },
    host::{MODEL, answering, call, statuses},
    requests::{approve, careful, decide, deny, one_by_one, result, submit, tool, turn},
};
use AnswerStatus::{Accepted, Duplicate, NotRequested, Stale};

/// A model that makes two calls that require approval and one that does not.
fn options() -> Options {
    let send = json!({"tool_call": {"name": "send", "arguments": {"to": "Ann"}}});
    answering(&[
        json!([send, call("pay"), call("look")]),
        json!([{"text": "{{result:send}}; {{result:pay}}; {{result:look}}"}]),
    ])
}

fn toolset() -> Option<pb::ToolSet> {
    Some(pb::ToolSet { host_tools: vec![careful("send"), careful("pay"), tool("look")], ..pb::ToolSet::default() })
}

fn asks(session: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: toolset(), ..turn(session, MODEL, "Hello") }
}

fn edited(call: &str, arguments: &str) -> pb::Approval {
    pb::Approval { edited_arguments_json: arguments.to_owned(), ..approve(call) }
}

/// The calls for which approval was requested.
fn asked(events: &[pb::Event]) -> Vec<String> {
    let call = |event: &pb::Event| match &event.payload {
        Some(Payload::ApprovalRequested(pending)) => Some(pending.call.clone().unwrap().call_id),
        _ => None,
    };
    events.iter().filter_map(call).collect()
}

/// Row D25
#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_approved_then_requested_then_answered() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(asks("s")).await;
    let (head, action) = until_action(&mut stream).await;
    let calls = calls_made(&head);
    let careful = calls[..2].to_vec();
    let free = calls[2..].to_vec();
    assert_eq!(
        kinds(&head)[5..],
        ["approval_requested", "approval_requested", "tool_call_requested", "action_required"]
    );
    assert_eq!((asked(&head), action), (careful.clone(), [free.clone(), careful.clone()]));
    let stored = host.turn("s", &turn_id(&head)).await;
    assert_eq!((stored.state(), pending(&stored)), (TurnState::AwaitingTools, [free.clone(), careful.clone()]));
    assert_eq!(stored.pending_approvals[0].call.as_ref().unwrap().arguments_json, r#"{"to":"Ann"}"#);
    host.assert_counted("s").await;

    let before = host.database.row_counts().await;
    assert_eq!(host.submit("s", vec![result(&calls[0], "early")]).await, [NotRequested]);
    assert_eq!(host.database.row_counts().await, before, "a result that nobody asked for changes nothing");

    assert_eq!(host.decide("s", vec![approve(&calls[0])]).await, [Accepted]);
    let (more, action) = until_action(&mut stream).await;
    assert_eq!(kinds(&more), ["tool_call_requested", "action_required"]);
    assert_eq!(action, [vec![calls[0].clone(), calls[2].clone()], vec![calls[1].clone()]]);
    assert_eq!(host.decide("s", vec![approve(&calls[0])]).await, [Duplicate]);
    assert_eq!(host.decide("s", vec![edited(&calls[0], "{}")]).await, [Stale], "approved with other arguments");
    assert_eq!(host.decide("s", vec![deny(&calls[0], "no")]).await, [Stale]);
    host.assert_counted("s").await;

    host.decide("s", vec![approve(&calls[1])]).await;
    let mut watcher = host.watch("s", "", 0).await;
    let told = until(&mut watcher, |payload| matches!(payload, Payload::Sync(_))).await;
    let Some(Payload::Sync(sync)) = &told.last().unwrap().payload else { unreachable!() };
    assert_eq!((sync.pending_calls.len(), sync.pending_approvals.len()), (3, 0));
    let answers = calls.iter().map(|call| result(call, "fine")).collect();
    assert_eq!(host.submit("s", answers).await, [Accepted; 3]);
    let rest = all(&mut stream).await;
    assert_eq!(completed(&rest).reason(), CompletionReason::Stop);
    assert_eq!(message_text(messages(&rest).last().unwrap()), "fine; fine; fine");
    assert_eq!(host.decide("s", vec![approve(&calls[0]), deny(&calls[1], "")]).await, [Duplicate, Stale]);
    let told = host.events("s", "", 0, 100).await;
    assert_eq!((asked(&told), requested(&told).len()), (careful, 3));
    host.assert_counted("s").await;
}

/// Row D25
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_reports_its_deadline() {
    let host = Host::with(options()).await;
    let seconds = |n| Some(Duration::from_secs(n).try_into().unwrap());
    let send = pb::Tool { timeout: seconds(60), ..careful("send") };
    let toolset = pb::ToolSet { host_tools: vec![send, careful("pay"), tool("look")], ..pb::ToolSet::default() };
    let limits = pb::TurnLimits { tool_timeout: seconds(90), ..pb::TurnLimits::default() };
    let request = pb::ExecuteTurnRequest { tools: Some(toolset), limits: Some(limits), ..asks("s") };
    let mut stream = host.execute(request).await;
    let (head, _) = until_action(&mut stream).await;
    assert_eq!(
        allowed(&head),
        [60, 90, 90].map(Duration::from_secs),
        "the tool's own timeout, else the turn's; the last one is the call that asks nobody"
    );
}

/// Row D25
#[tokio::test(flavor = "multi_thread")]
async fn a_denied_call_gets_a_result_with_the_reason_and_is_never_requested() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(asks("s")).await;
    let (mut seen, _) = until_action(&mut stream).await;
    let calls = calls_made(&seen);
    assert_eq!(host.decide("s", vec![deny(&calls[0], "Not to Ann."), deny(&calls[1], "")]).await, [Accepted; 2]);
    assert_eq!(host.decide("s", vec![deny(&calls[0], "Not to Ann.")]).await, [Duplicate]);
    assert_eq!(host.decide("s", vec![deny(&calls[0], "Never."), approve(&calls[1])]).await, [Stale, Stale]);
    assert_eq!(host.submit("s", vec![result(&calls[0], "sent")]).await, [Stale]);
    host.assert_counted("s").await;
    host.submit("s", vec![result(&calls[2], "seen")]).await;
    seen.extend(all(&mut stream).await);
    let denied = "[The call was not run: a person denied it.]";
    let told: Vec<_> = results(&seen)
        .iter()
        .map(|result| (result.outcome(), result.parts.iter().map(content).collect::<Vec<_>>()))
        .collect();
    assert_eq!(
        told,
        [
            (ToolOutcome::Denied, vec![denied, "Not to Ann."]),
            (ToolOutcome::Denied, vec![denied]),
            (ToolOutcome::Success, vec!["seen"]),
        ]
    );
    assert_eq!(requested(&seen), [calls[2].clone()]);
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    let Content::ToolResult(given) = &prompt.transcript.messages()[2].parts[0].part.content else {
        panic!("no result")
    };
    assert_eq!(given.texts().collect::<Vec<_>>(), [denied, "Not to Ann."], "the model is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_call_runs_with_the_approvers_arguments_and_the_model_is_told() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(asks("s")).await;
    let (head, _) = until_action(&mut stream).await;
    let calls = calls_made(&head);
    let arguments = r#"{ "to": "Bob", "n": 1.0 }"#;
    assert_eq!(host.decide("s", vec![edited(&calls[0], arguments)]).await, [Accepted]);
    assert_eq!(host.decide("s", vec![edited(&calls[0], arguments), approve(&calls[1])]).await, [Duplicate, Accepted]);
    assert_eq!(host.decide("s", vec![approve(&calls[0])]).await, [Stale], "approved with other arguments");
    let (more, _) = until_action(&mut stream).await;
    let Some(Payload::ToolCallRequested(told)) = &more[0].payload else { panic!("no request") };
    let stored = host.turn("s", &turn_id(&head)).await;
    assert_eq!((stored.pending_calls.len(), &stored.pending_calls[0]), (3, told));
    assert_eq!((told.call.as_ref().unwrap().arguments_json.as_str(), told.arguments_edited), (arguments, true));
    assert!(stored.pending_calls[1..].iter().all(|pending| !pending.arguments_edited));

    host.submit("s", calls.iter().map(|call| result(call, "fine")).collect()).await;
    assert_eq!(host.submit("s", vec![result(&calls[0], "fine")]).await, [Duplicate]);
    all(&mut stream).await;
    let note = format!("[A person changed the arguments of this call to: {arguments}]");
    let stored = host.messages("s").await;
    let Some(pb::part::Content::ToolCall(made)) = &stored[1].parts[0].content else { panic!("no call") };
    assert_eq!(made.arguments_json, r#"{"to":"Ann"}"#, "what the model wrote stays");
    let Some(pb::part::Content::ToolResult(first)) = &stored[2].parts[0].content else { panic!("no result") };
    assert_eq!(first.parts.iter().map(content).collect::<Vec<_>>(), [note.as_str(), "fine"]);
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    let Content::ToolResult(given) = &prompt.transcript.messages()[2].parts[0].part.content else {
        panic!("no result")
    };
    assert_eq!(given.texts().collect::<Vec<_>>(), [note.as_str(), "fine"]);
    let Content::ToolResult(given) = &prompt.transcript.messages()[2].parts[1].part.content else {
        panic!("no result")
    };
    assert_eq!(given.texts().collect::<Vec<_>>(), ["fine"], "an approval as it was written needs no word");
}

#[tokio::test(flavor = "multi_thread")]
async fn results_and_approvals_in_one_request_resume_the_turn() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(asks("s")).await;
    let calls = calls_made(&until_action(&mut stream).await.0);
    let mixed = pb::SubmitToolResultsRequest {
        approvals: vec![approve(&calls[1]), deny(&calls[0], "no")],
        ..submit("s", vec![result(&calls[2], "seen")])
    };
    let answer = host.try_submit(mixed.clone()).await.unwrap();
    let receipts: Vec<_> = answer.receipts.iter().map(|receipt| receipt.call_id.clone()).collect();
    assert_eq!(receipts, [calls[2].clone(), calls[1].clone(), calls[0].clone()], "results first, then approvals");
    assert_eq!((statuses(&answer), answer.pending_call_ids), (vec![Accepted; 3], vec![calls[1].clone()]));
    let (more, action) = until_action(&mut stream).await;
    assert_eq!(kinds(&more), ["tool_call_completed", "tool_call_completed", "tool_call_requested", "action_required"]);
    assert_eq!(action, [vec![calls[1].clone()], vec![]]);
    assert_eq!(statuses(&host.try_submit(mixed).await.unwrap()), [Duplicate; 3]);
    host.assert_counted("s").await;
    host.submit("s", vec![result(&calls[1], "paid")]).await;
    assert_eq!(completed(&all(&mut stream).await).reason(), CompletionReason::Stop);
    let stored = outline(&host.messages("s").await);
    let denied = "[The call was not run: a person denied it.]";
    assert_eq!(stored[2], format!("TOOL: result send {denied:?}, result pay \"paid\", result look \"seen\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_can_be_the_last_answer() {
    let host = Host::with(answering(&[json!([call("pay")]), json!([{"text": "As you wish."}])])).await;
    let mut stream = host.execute(asks("s")).await;
    let calls = calls_made(&until_action(&mut stream).await.0);
    assert_eq!(host.decide("s", vec![deny(&calls[0], "")]).await, [Accepted]);
    let rest = all(&mut stream).await;
    assert_eq!(message_text(messages(&rest).last().unwrap()), "As you wish.");
    assert_eq!(kinds(&rest)[..3], ["tool_call_completed", "message_committed", "step_started"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_approval_request_returns_the_first_response() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(asks("s")).await;
    let calls = calls_made(&until_action(&mut stream).await.0);
    let request = pb::SubmitToolResultsRequest {
        request_id: "r1".to_owned(),
        ..decide("s", vec![approve(&calls[0]), deny(&calls[1], "no")])
    };
    for _ in 0..2 {
        assert_eq!(statuses(&host.try_submit(request.clone()).await.unwrap()), [Accepted; 2]);
    }
    host.submit("s", vec![result(&calls[0], "sent"), result(&calls[2], "seen")]).await;
    let mut seen = all(&mut stream).await;
    assert_eq!(statuses(&host.try_submit(request.clone()).await.unwrap()), [Accepted; 2], "after the end too");
    seen.retain(|event| kind(event) == "tool_call_requested");
    assert_eq!(seen.len(), 1);
    let other = pb::SubmitToolResultsRequest { approvals: vec![deny(&calls[0], "no")], ..request };
    let refused = host.try_submit(other).await.unwrap_err();
    assert_eq!(crate::harness::host::refusal(&refused, "request_id").1, "IDEMPOTENCY_MISMATCH");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_approval_ignores_an_approval_and_refuses_a_denial() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(asks("s")).await;
    let (head, _) = until_action(&mut stream).await;
    let free = calls_made(&head).remove(2);
    let before = host.database.row_counts().await;
    assert_eq!(host.decide("s", vec![approve(&free)]).await, [Duplicate]);
    assert_eq!(host.decide("s", vec![deny(&free, "no")]).await, [Stale]);
    assert_eq!(host.decide("s", vec![edited(&free, "{}")]).await, [Stale]);
    assert_eq!(host.database.row_counts().await, before);
    host.cancel("s", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undecided_call_times_out_and_an_approved_call_restarts_its_timeout() {
    let host = Host::with(options()).await;
    let impatient = |name: &str, millis| pb::Tool {
        timeout: Some(Duration::from_millis(millis).try_into().unwrap()),
        ..careful(name)
    };
    let host_tools = vec![impatient("send", 1_000), impatient("pay", 300), tool("look")];
    let toolset = pb::ToolSet { host_tools, ..pb::ToolSet::default() };
    let mut stream = host.execute(pb::ExecuteTurnRequest { tools: Some(toolset), ..asks("s") }).await;
    let (mut seen, _) = until_action(&mut stream).await;
    let calls = calls_made(&seen);
    host.submit("s", vec![result(&calls[2], "seen")]).await;
    let undecided = |payload: &Payload| matches!(payload, Payload::ToolCallCompleted(done) if done.result.as_ref().unwrap().call_id == calls[1]);
    seen.extend(until(&mut stream, undecided).await);
    assert_eq!(host.decide("s", vec![approve(&calls[1])]).await, [Stale]);
    assert_eq!(host.decide("s", vec![approve(&calls[0])]).await, [Accepted]);
    seen.extend(all(&mut stream).await);
    let told: Vec<_> = results(&seen).iter().map(|result| (result.outcome(), content(&result.parts[0]))).collect();
    assert_eq!(
        told[1..],
        [
            (ToolOutcome::TimedOut, "[The call was not run: it was not approved in time.]"),
            (ToolOutcome::TimedOut, "[No result came in time.]"),
        ]
    );
    let time = |wanted: fn(&Payload) -> bool| {
        let event = seen.iter().rev().find(|event| event.payload.as_ref().is_some_and(wanted)).unwrap();
        event.time.map(|time| Duration::new(time.seconds.try_into().unwrap(), time.nanos.try_into().unwrap())).unwrap()
    };
    let requested = time(|payload| matches!(payload, Payload::ToolCallRequested(_)));
    let closed = time(|payload| matches!(payload, Payload::ToolCallCompleted(_)));
    assert!(closed - requested >= Duration::from_secs(1), "its second runs from the request: {:?}", closed - requested);
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
}

/// Row D28
#[tokio::test(flavor = "multi_thread")]
async fn sequential_calls_request_approval_one_at_a_time() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(pb::ExecuteTurnRequest { session: one_by_one(), ..asks("s") }).await;
    let (mut seen, action) = until_action(&mut stream).await;
    let calls = calls_made(&seen);
    assert_eq!(action, [vec![], vec![calls[0].clone()]]);
    assert_eq!(host.decide("s", vec![approve(&calls[1])]).await, [NotRequested]);
    assert_eq!(host.decide("s", vec![approve(&calls[0])]).await, [Accepted]);
    let (more, action) = until_action(&mut stream).await;
    assert_eq!(
        (kinds(&more), action),
        (vec!["tool_call_requested", "action_required"], [vec![calls[0].clone()], vec![]])
    );
    host.submit("s", vec![result(&calls[0], "sent")]).await;
    let (more, action) = until_action(&mut stream).await;
    assert_eq!(kinds(&more), ["tool_call_completed", "approval_requested", "action_required"]);
    assert_eq!(action, [vec![], vec![calls[1].clone()]]);
    let pending_now = pending(&host.turn("s", &turn_id(&seen)).await);
    assert_eq!(pending_now, [vec![], vec![calls[1].clone()]]);
    host.assert_counted("s").await;
    host.decide("s", vec![deny(&calls[1], "Too much.")]).await;
    let (more, action) = until_action(&mut stream).await;
    assert_eq!(kinds(&more), ["tool_call_completed", "tool_call_requested", "action_required"]);
    assert_eq!(action, [vec![calls[2].clone()], vec![]]);
    host.submit("s", vec![result(&calls[2], "seen")]).await;
    seen.extend(all(&mut stream).await);
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    host.assert_counted("s").await;
}

// --- Races ---------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_approval_and_denial_on_two_replicas_one_wins() {
    let host = Host::with(answering(&[json!([call("pay")]), json!([{"text": "Done."}])])).await;
    let other = host.beside(answering(&[json!([call("pay")]), json!([{"text": "Done."}])])).await;
    let mut won = [0, 0];
    for round in 0..20 {
        let session = format!("s{round}");
        let mut stream = host.execute(asks(&session)).await;
        let call = calls_made(&until_action(&mut stream).await.0).remove(0);
        let yes = host.decide(&session, vec![approve(&call)]);
        let no = other.decide(&session, vec![deny(&call, "no")]);
        let (yes, no) = if round % 2 == 0 {
            tokio::join!(yes, no)
        } else {
            let (no, yes) = tokio::join!(no, yes);
            (yes, no)
        };
        host.assert_counted(&session).await;
        match (yes[0], no[0]) {
            (Accepted, Stale) => {
                won[0] += 1;
                assert_eq!(host.submit(&session, vec![result(&call, "paid")]).await, [Accepted]);
            }
            (Stale, Accepted) => won[1] += 1,
            both => panic!("{both:?}"),
        }
        let rest = all(&mut stream).await;
        let outcomes: Vec<_> = results(&rest).iter().map(|result| result.outcome()).collect();
        let (outcome, requests) = if yes[0] == Accepted { (ToolOutcome::Success, 1) } else { (ToolOutcome::Denied, 0) };
        assert_eq!((outcomes, requested(&rest).len()), (vec![outcome], requests));
        host.assert_counted(&session).await;
    }
    eprintln!("a yes won {} times, a no {} times", won[0], won[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_approval_and_cancel_leave_a_cancelled_turn_and_a_closed_call() {
    let host = Host::with(options()).await;
    let other = host.beside(options()).await;
    for round in 0..10 {
        let session = format!("s{round}");
        let mut stream = host.execute(asks(&session)).await;
        let (head, _) = until_action(&mut stream).await;
        let call = calls_made(&head).remove(0);
        let turn = turn_id(&head);
        let (decided, cancelled) =
            tokio::join!(host.decide(&session, vec![approve(&call)]), other.cancel(&session, &turn));
        assert_eq!(cancelled.turn.unwrap().state(), TurnState::Cancelled);
        let rest = all(&mut stream).await;
        let requests = requested(&rest).len();
        assert_eq!(requests, usize::from(decided[0] == Accepted), "{decided:?}");
        assert_eq!(kinds(&rest).iter().filter(|kind| **kind == "tool_call_cancelled").count(), 3);
        assert_eq!(kinds(&rest).last(), Some(&"turn_cancelled"));
        host.assert_counted(&session).await;
        assert_eq!(host.submit(&session, vec![result(&call, "late")]).await, [Stale]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_at_the_timeout_is_accepted_or_reported_stale() {
    let host = Host::with(answering(&[json!([call("pay")]), json!([{"text": "Done."}])])).await;
    let other = host.beside(answering(&[json!([call("pay")]), json!([{"text": "Done."}])])).await;
    let hasty = pb::Tool { timeout: Some(Duration::from_millis(200).try_into().unwrap()), ..careful("pay") };
    let toolset = Some(pb::ToolSet { host_tools: vec![hasty], ..pb::ToolSet::default() });
    for moment in [150, 190, 210, 230, 250, 270, 290, 310] {
        let session = format!("s{moment}");
        let mut stream = host.execute(pb::ExecuteTurnRequest { tools: toolset.clone(), ..asks(&session) }).await;
        let call = calls_made(&until_action(&mut stream).await.0).remove(0);
        tokio::time::sleep(Duration::from_millis(moment)).await; // the time of the decision is what varies
        let decided = other.decide(&session, vec![approve(&call)]).await;
        let rest = all(&mut stream).await;
        let requests = requested(&rest).len();
        match decided[0] {
            Accepted => assert_eq!(requests, 1),
            Stale => assert_eq!(requests, 0),
            other => panic!("{other:?}"),
        }
        assert_eq!(results(&rest).iter().map(|result| result.outcome()).collect::<Vec<_>>(), [ToolOutcome::TimedOut]);
        assert_eq!(completed(&rest).reason(), CompletionReason::Stop);
        host.assert_counted(&session).await;
    }
}
