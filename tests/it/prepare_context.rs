//! PrepareContext: returns the next prompt for a host that calls the model itself, made to fit, with a report of the
//! changes.

use contextd::{
    model::message::PRUNED_TEXT,
    pb::{self, PromptFormat, TokenBasis},
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::harness::{
    Host,
    errors::refusal,
    events::{kinds, until_action},
    host::{MODEL, answering, call},
    requests::{clears, enqueue, tools, turn},
    transcripts::{calls, says},
};

fn of(session: &str, request: &str) -> pb::PrepareContextRequest {
    let session_id = session.to_owned();
    let request_id = request.to_owned();
    pb::PrepareContextRequest { session_id, request_id, ..Default::default() }
}

async fn try_prepare(
    host: &Host,
    request: pb::PrepareContextRequest,
) -> Result<(pb::Prompt, pb::PrepareReport), Status> {
    let answer = host.contexts().prepare_context(request).await?.into_inner();
    Ok((answer.prompt.unwrap(), answer.report.unwrap()))
}

async fn prepare(host: &Host, request: pb::PrepareContextRequest) -> (pb::Prompt, pb::PrepareReport) {
    try_prepare(host, request).await.unwrap()
}

async fn host() -> Host {
    Host::with(answering(&[json!([{"text": "Fine."}])])).await
}

async fn policy(host: &Host, session: &str, policy: pb::Policy) {
    let session = pb::Session {
        session_id: session.to_owned(),
        model: MODEL.to_owned(),
        policy_overrides: Some(policy),
        ..Default::default()
    };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["policy_overrides".to_owned()] });
    let request = pb::UpdateSessionRequest { session: Some(session), update_mask, ..Default::default() };
    host.sessions().update_session(request).await.unwrap();
}

fn tokens(count: &Option<pb::TokenCount>) -> i32 {
    count.as_ref().unwrap().tokens
}

/// Rows S12, S7 and A9
#[tokio::test(flavor = "multi_thread")]
async fn prepare_context_prunes_by_policy_and_reports_each_size() {
    let host = host().await;
    host.with_turns("s", &[30_000, 20_000, 20_000, 20_000, 5, 5]).await;
    let whole = host.stats("s").await.used;
    let request = pb::PrepareContextRequest { format: PromptFormat::OpenaiChat.into(), ..of("s", "first") };
    let (prompt, report) = prepare(&host, request.clone()).await;
    assert_eq!(report.tokens_before, whole);
    let pruned = report.prune.clone().unwrap();
    assert_eq!((pruned.outputs_pruned, pruned.tool_names.as_slice()), (2, &["look".to_owned()][..]));
    assert_eq!(pruned.call_ids, ["c0", "c1"]);
    assert_eq!(tokens(&report.tokens_after_prune), tokens(&report.tokens_before) - pruned.tokens_saved);
    assert_eq!(report.tokens_after_compaction, report.tokens_after_prune);
    assert_eq!((report.tokens_final, report.compaction), (prompt.tokens.clone(), None));
    assert_eq!(host.stats("s").await.used, prompt.tokens, "it is what the statistics say");
    let shown: Value = serde_json::from_str(&prompt.request_json).unwrap();
    let cleared = shown["messages"].as_array().unwrap().iter().filter(|it| it["content"] == PRUNED_TEXT).count();
    assert_eq!((cleared, prompt.notes.len()), (2, 2));
    let again = prepare(&host, request.clone()).await;
    assert_eq!(again, (prompt.clone(), prepare(&host, request.clone()).await.1), "the same request is told the same");
    let told: pb::PrepareReport = again.1;
    assert_eq!(told.prune, Some(pruned.clone()));
    host.append("s", vec![says(pb::Role::Assistant, "Well."), says(pb::Role::User, "More?")]).await;
    let (later, repeated) = prepare(&host, request).await;
    assert_eq!(repeated, told, "the report of the first time");
    assert_ne!(later.request_json, prompt.request_json, "with the prompt of now");
    let (_, second) = prepare(&host, of("s", "second")).await;
    assert_eq!((second.prune, second.tokens_before), (None, later.tokens.clone()), "there is nothing left to clear");
    let events = host.events("s", "", 0, 100).await;
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "context_pruned").count(), 1);
    let restore = pb::RestoreToolOutputsRequest {
        session_id: "s".to_owned(),
        pruned_at_seq: pruned.pruned_at_seq,
        request_id: String::new(),
    };
    let back = host.contexts().restore_tool_outputs(restore).await.unwrap().into_inner();
    assert_eq!(back.call_ids, pruned.call_ids, "the report names the prune");
    let (prompt, third) = prepare(&host, of("s", "")).await;
    assert_eq!(third.prune.unwrap().call_ids, ["c0", "c1", "c2"], "there is one more turn by now");
    assert_eq!(third.tokens_final, prompt.tokens);
}

/// Rows S12, D14 and S19
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_prepare_context_returns_the_first_response() {
    let host = host().await;
    host.with_turns("s", &[2_000, 2_000]).await;
    for _ in 0..3 {
        let words = "x".repeat(8_000);
        host.append("s", vec![says(pb::Role::User, &words), says(pb::Role::Assistant, "I see.")]).await;
    }
    let prune = clears(pb::PruneMode::OnOverflow, 0);
    let window = Some(6_000);
    let reserve = Some(1_000);
    policy(
        &host,
        "s",
        pb::Policy { context_window: window, output_reserve: reserve, prune: Some(prune), ..Default::default() },
    )
    .await;
    let (_, report) = prepare(&host, of("s", "both")).await;
    let cleared = report.prune.clone().unwrap();
    let made = report.compaction.clone().unwrap();
    assert_eq!((cleared.outputs_pruned, made.was_pruned, made.state()), (2, true, pb::CompactionState::Applied));
    let events = host.events("s", "", 0, 100).await;
    let seq = |kind: &str| events.iter().zip(kinds(&events)).find(|(_, it)| *it == kind).map(|(event, _)| event.seq);
    assert_eq!(Some(cleared.pruned_at_seq), seq("context_pruned"));
    assert!(seq("context_pruned") < seq("compaction_started"));
    assert_eq!(prepare(&host, of("s", "both")).await.1, report, "the same request is told the same");
}

/// Row S12
#[tokio::test(flavor = "multi_thread")]
async fn prepare_context_changes_nothing_if_the_prompt_fits() {
    let host = host().await;
    host.with_turns("s", &[300]).await;
    host.append("s", vec![says(pb::Role::User, "And now?")]).await;
    let before = host.database.row_counts().await;
    let (prompt, report) = prepare(&host, of("s", "")).await;
    assert_eq!(host.database.row_counts().await, before);
    assert_eq!(report.tokens_before, prompt.tokens);
    measure(&host, "s", 500).await;
    let (prompt, report) = prepare(&host, of("s", "")).await;
    let size = prompt.tokens.unwrap();
    assert_eq!((size.tokens, size.basis()), (500, TokenBasis::Actual));
    assert_eq!(report.tokens_final, Some(size));
}

/// Rows D13, D14 and L7
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_is_due_at_its_share_of_the_window_and_beyond_the_room_to_the_token() {
    use pb::{
        CompactionStrategy::{MiddleRemoval, ProactiveThreshold, ReactiveOverflow},
        CompactionTrigger::{Overflow, Threshold},
    };
    let host = host().await;
    // A window of 10,000 tokens, of which 1,000 are reserved for the response.
    let guarded = pb::CompactionPolicy { guard: pb::ContextGuard::TwoLevel.into(), ..by(ReactiveOverflow) };
    let later = pb::CompactionPolicy { threshold: Some(0.8), ..by(ProactiveThreshold) };
    let cases = [
        (by(ProactiveThreshold), 4_999, None),
        (by(ProactiveThreshold), 5_000, Some(Threshold)),
        (by(MiddleRemoval), 7_999, None),
        (by(MiddleRemoval), 8_000, Some(Threshold)),
        (later.clone(), 7_999, None),
        (later, 8_000, Some(Threshold)),
        (guarded.clone(), 7_999, None),
        (guarded, 8_000, Some(Threshold)),
        (by(ReactiveOverflow), 9_000, None),
        (by(ReactiveOverflow), 9_001, Some(Overflow)),
    ];
    for (n, (compaction, size, expected)) in cases.into_iter().enumerate() {
        let session = format!("s{n}");
        host.with_turns(&session, &[300; 6]).await;
        let limits = pb::Policy {
            compaction: Some(compaction.clone()),
            context_window: Some(10_000),
            output_reserve: Some(1_000),
            ..pb::Policy::default()
        };
        policy(&host, &session, limits).await;
        measure(&host, &session, size).await;
        let (_, report) = prepare(&host, of(&session, "")).await;
        let before = report.tokens_before.as_ref().unwrap();
        assert_eq!((before.tokens, before.basis()), (size, TokenBasis::Actual));
        let made = report.compaction.as_ref().map(|made| made.trigger());
        assert_eq!(made, expected, "{size} by {compaction:?}");
    }
}

fn by(strategy: pb::CompactionStrategy) -> pb::CompactionPolicy {
    pb::CompactionPolicy { strategy: strategy.into(), ..Default::default() }
}

/// Row A4
#[tokio::test(flavor = "multi_thread")]
async fn an_estimate_is_taken_for_as_large_as_it_may_be_where_it_decides() {
    let host = host().await;
    for (spare, expected) in [(0, None), (1, Some(pb::CompactionTrigger::Overflow))] {
        let session = format!("s{spare}");
        host.with_turns(&session, &[300; 6]).await;
        let used = host.stats(&session).await.used.unwrap();
        assert!(used.margin > 100, "{used:?}");
        let limits = pb::Policy {
            context_window: Some(used.tokens + used.margin - spare + 500),
            output_reserve: Some(500),
            ..pb::Policy::default()
        };
        policy(&host, &session, limits).await;
        let (_, report) = prepare(&host, of(&session, "")).await;
        let made = report.compaction.as_ref().map(|made| made.trigger());
        assert_eq!(made, expected, "{spare} tokens more than there is room for");
    }
}

/// Reports a call with the session's prompt as having had this many input tokens.
async fn measure(host: &Host, session: &str, input_tokens: i32) {
    let request = pb::RenderContextRequest { session_id: session.to_owned(), ..Default::default() };
    let rendered = host.contexts().render_context(request).await.unwrap();
    let record = pb::RecordUsageRequest {
        session_id: session.to_owned(),
        usage: Some(pb::Usage { input_tokens, output_tokens: 9, ..Default::default() }),
        context_version: rendered.into_inner().prompt.unwrap().context_version,
        ..Default::default()
    };
    host.contexts().record_usage(record).await.unwrap();
}

/// Row S12
#[tokio::test(flavor = "multi_thread")]
async fn prepare_context_refuses_an_open_or_oversized_prompt_without_pruning() {
    let host = Host::scripted(&[json!([call("look")]), json!([{"text": "Fine."}])]).await;
    host.with_turns("s", &[300]).await;
    // Pruning or compaction would make it fit.
    let off = pb::CompactionPolicy { enabled: Some(false), ..Default::default() };
    let small = pb::Policy { context_window: Some(200), compaction: Some(off), ..Default::default() };
    policy(&host, "s", small.clone()).await;
    let status = try_prepare(&host, of("s", "one")).await.unwrap_err();
    let refused = refusal(&status);
    assert_eq!((refused.code, refused.reason.as_str()), (Code::FailedPrecondition, "CONTEXT_OVERFLOW"));
    let used = tokens(&host.stats("s").await.used).to_string();
    assert_eq!(refused.metadata["used_tokens"], used);
    assert_eq!(
        (refused.metadata["window_tokens"].as_str(), refused.metadata["largest_category"].as_str()),
        ("200", "TOOL_RESULTS")
    );
    let prune = clears(pb::PruneMode::OnOverflow, 0);
    policy(&host, "s", pb::Policy { prune: Some(prune), ..small }).await;
    host.append("s", vec![calls(&["open"])]).await;
    let refused = refusal(&try_prepare(&host, of("s", "one")).await.unwrap_err());
    assert_eq!((refused.reason.as_str(), refused.metadata["call_ids"].as_str()), ("TRANSCRIPT_OPEN", "open"));
    assert_eq!(host.stats("s").await.pruned_count, 0);
    host.append("s", vec![crate::harness::transcripts::results(&["open"])]).await;
    let (_, report) = prepare(&host, of("s", "one")).await;
    assert_eq!(report.prune.unwrap().outputs_pruned, 1, "a window that overflows is a reason to clear");
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("u", MODEL, "Look.") };
    until_action(&mut host.execute(request).await).await;
    assert_eq!(refusal(&try_prepare(&host, of("u", "")).await.unwrap_err()).reason, "TURN_IN_PROGRESS");
}

/// A request that also applies queued messages.
fn taking(session: &str, request: &str) -> pb::PrepareContextRequest {
    pb::PrepareContextRequest { apply_queued_messages: true, ..of(session, request) }
}

/// Enqueues a message and returns its id.
async fn waits(host: &Host, request: pb::EnqueueMessageRequest) -> String {
    host.enqueue(request).await.queued_message.unwrap().queued_message_id
}

/// The ids of the queued messages that were applied.
fn applied(report: &pb::PrepareReport) -> Vec<&str> {
    report.applied_messages.iter().map(|applied| applied.queued_message_id.as_str()).collect()
}

/// Rows S12 and D8
#[tokio::test(flavor = "multi_thread")]
async fn prepare_context_applies_queued_messages_on_request() {
    let host = host().await;
    host.run(turn("s", MODEL, "Hello")).await;
    let one = waits(&host, enqueue("s", "Look at the tests")).await;
    let two = waits(&host, enqueue("s", "and at the docs")).await;
    let when_idle = pb::EnqueueMessageRequest { delivery: pb::Delivery::WhenIdle.into(), ..enqueue("s", "Later") };
    let later = waits(&host, when_idle).await;
    let (_, report) = prepare(&host, of("s", "leaves")).await;
    assert_eq!((applied(&report), host.queued("s").await.len()), (vec![], 3));
    let seen = host.events("s", "", 0, 100).await.len();
    let (prompt, report) = prepare(&host, taking("s", "takes")).await;
    assert_eq!(applied(&report), [one.as_str(), two.as_str()]);
    let newest = prompt.messages.last().unwrap().clone();
    assert_eq!(host.messages("s").await.last().unwrap().message_id, newest.message_id);
    let words = format!("{:?}", newest.parts);
    assert!(words.contains("Look at the tests") && words.contains("and at the docs"), "{words}");
    assert_eq!(host.queued("s").await.iter().map(|it| &it.queued_message_id).collect::<Vec<_>>(), [&later]);
    assert_eq!((report.tokens_before.clone(), host.stats("s").await.used), (prompt.tokens.clone(), prompt.tokens));
    let events = host.events("s", "", 0, 100).await.split_off(seen);
    assert_eq!(kinds(&events), ["messages_applied", "message_committed"]);
    assert!(events.iter().all(|event| event.turn_id.is_empty()), "no turn took them");
    host.enqueue(enqueue("s", "And another one")).await;
    let (_, again) = prepare(&host, taking("s", "takes")).await;
    assert_eq!((again, host.queued("s").await.len()), (report, 2), "the same request takes nothing more");
    let end = host.run(turn("s", MODEL, "Go on")).await;
    assert_eq!(kinds(&end).last(), Some(&"turn_completed"), "turns go on as before");
}

/// Row I3
#[tokio::test(flavor = "multi_thread")]
async fn prepare_context_leaves_messages_it_cannot_apply_and_expires_late_ones() {
    let host = host().await;
    for session in ["s", "t"] {
        host.run(turn(session, MODEL, "Hello")).await;
    }
    host.append("s", vec![says(pb::Role::User, "Look"), calls(&["open"])]).await;
    host.enqueue(enqueue("s", "Wait")).await;
    let refused = refusal(&try_prepare(&host, taking("s", "one")).await.unwrap_err());
    assert_eq!((refused.reason.as_str(), host.queued("s").await.len()), ("TRANSCRIPT_OPEN", 1));
    let queue = pb::QueuePolicy { take: pb::TakeMode::OneAtATime.into(), ..Default::default() };
    policy(&host, "t", pb::Policy { queue: Some(queue), ..Default::default() }).await;
    let soon = prost_types::Duration { seconds: 0, nanos: 1_000_000 };
    host.enqueue(pb::EnqueueMessageRequest { ttl: Some(soon), ..enqueue("t", "Too late") }).await;
    let first = waits(&host, enqueue("t", "First")).await;
    let second = waits(&host, enqueue("t", "Second")).await;
    for (request, taken) in [("one", vec![first.as_str()]), ("two", vec![second.as_str()]), ("three", vec![])] {
        assert_eq!(applied(&prepare(&host, taking("t", request)).await.1), taken, "{request}");
    }
    assert_eq!(host.queued("t").await, []);
    let events = host.events("t", "", 0, 100).await;
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "queued_message_expired").count(), 1);
}

/// Row I3
#[tokio::test(flavor = "multi_thread")]
async fn a_concurrently_withdrawn_message_is_either_applied_or_withdrawn() {
    let host = host().await;
    host.run(turn("s", MODEL, "Hello")).await;
    for round in 0..20 {
        let id = waits(&host, enqueue("s", "Wait")).await;
        let cancel = pb::CancelQueuedMessageRequest {
            session_id: "s".to_owned(),
            queued_message_id: id.clone(),
            ..Default::default()
        };
        let mut queues = host.queue();
        let (prepared, _) = tokio::join!(prepare(&host, taking("s", "")), queues.cancel_queued_message(cancel));
        let events = host.events("s", "", 0, 1_000).await;
        let ended = |kind: &str| {
            events
                .iter()
                .filter(|event| format!("{:?}", event.payload).contains(&id) && kinds(&[(*event).clone()]) == [kind])
                .count()
        };
        let ends = (ended("messages_applied"), ended("queued_message_cancelled"));
        let expected = if applied(&prepared.1).is_empty() { (0, 1) } else { (1, 0) };
        assert_eq!(ends, expected, "round {round}");
    }
}
