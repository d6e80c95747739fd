//! Old tool results: cleared by a call or during a turn, by policy, and restored; and results that exceed the available
//! room.

use std::sync::Arc;

use contextd::{
    model::{CachePrices, Content, FinishReason, Prompt, Usage, config::ContextPolicy, message::PRUNED_TEXT},
    pb::{self, MessageView, event::Payload, part},
    provider::{Chunk, Finish, ModelInfo, Provider, ResponseStream},
};
use serde_json::{Value, json};

use crate::harness::{
    Host, Options, as_worker,
    events::{all, kinds, requested, until, until_action, until_written},
    host::{MODEL, answering, call, script},
    requests::{result, tools, turn},
    transcripts::{check_counters, fork, one_turn},
};

async fn prune(host: &Host, request: pb::PruneToolOutputsRequest) -> pb::PruneReport {
    host.contexts().prune_tool_outputs(request).await.unwrap().into_inner().report.unwrap()
}

fn of(session: &str, request: &str) -> pb::PruneToolOutputsRequest {
    pb::PruneToolOutputsRequest { session_id: session.to_owned(), request_id: request.to_owned(), ..Default::default() }
}

async fn restore(host: &Host, session: &str, seq: i64, request: &str) -> pb::RestoreToolOutputsResponse {
    let session_id = session.to_owned();
    let request_id = request.to_owned();
    let request = pb::RestoreToolOutputsRequest { session_id, pruned_at_seq: seq, request_id };
    host.contexts().restore_tool_outputs(request).await.unwrap().into_inner()
}

/// The texts of the results in a prompt, in order.
fn results_in(prompt: &Prompt) -> Vec<&str> {
    let parts = prompt.transcript.messages().iter().flat_map(|message| &message.parts);
    parts
        .filter_map(|part| match &part.part.content {
            Content::ToolResult(result) => result.texts().next(),
            _ => None,
        })
        .collect()
}

/// Row S17
#[tokio::test(flavor = "multi_thread")]
async fn results_are_pruned_after_completed_and_cancelled_turns() {
    for (last, end) in
        [(json!([{"text": "Done."}]), "turn_completed"), (json!([{"text": "We"}, {"stall": true}]), "turn_cancelled")]
    {
        let host = Host::with(answering(&[json!([call("look")]), last])).await;
        let policy = pb::PrunePolicy {
            mode: pb::PruneMode::Always.into(),
            minimum_tokens: Some(100),
            protect_tokens: Some(0),
            protect_turns: Some(0),
            ..Default::default()
        };
        host.create(pb::Session {
            session_id: "s".to_owned(),
            model: MODEL.to_owned(),
            tools: tools(&["look"]),
            policy_overrides: Some(pb::Policy { prune: Some(policy), ..pb::Policy::default() }),
            ..pb::Session::default()
        })
        .await;
        let mut stream = host.execute(turn("s", "", "Look.")).await;
        let (_, [calls, _]) = until_action(&mut stream).await;
        host.submit("s", vec![result(&calls[0], &"x".repeat(4_000))]).await;
        let head = until_written(&mut stream, if end == "turn_completed" { "Done." } else { "We" }).await;
        if end == "turn_cancelled" {
            host.cancel("s", &head[0].turn_id).await;
        }
        let mut watch = host.watch("s", "", 0).await;
        let events = until(&mut watch, |payload| matches!(payload, Payload::ContextPruned(_))).await;
        let order: Vec<_> = kinds(&events).into_iter().filter(|kind| [end, "context_pruned"].contains(kind)).collect();
        assert_eq!(order, [end, "context_pruned"]);
        assert_eq!(host.stats("s").await.pruned_count, 1, "{end}");
    }
}

/// The stored messages and counters of a session, without its events.
async fn stored(host: &Host, session: &str) -> (String, String) {
    let client = host.database.client().await;
    let parts = "select string_agg(p::text, ';' order by message_id, idx) from parts p where session_id = $1";
    let counters =
        "select (ctx_messages, ctx_overhead, ctx_tokens, ctx_parts)::text from session_run where session_id = $1";
    let parts = client.query_one(parts, &[&session]).await.unwrap().get(0);
    (parts, client.query_one(counters, &[&session]).await.unwrap().get(0))
}

/// Rows D17, S7 and S19
#[tokio::test(flavor = "multi_thread")]
async fn pruned_results_are_hidden_from_the_model_and_kept_for_readers() {
    let host = Host::scripted(&[json!([{"text": "Fine."}])]).await;
    host.with_turns("s", &[30_000, 20_000, 20_000, 20_000, 5, 5]).await;
    let before = stored(&host, "s").await;
    let planned = prune(&host, pb::PruneToolOutputsRequest { validate_only: true, ..of("s", "dry") }).await;
    assert_eq!((planned.outputs_pruned, planned.pruned_at_seq), (2, 0));
    assert_eq!(stored(&host, "s").await, before, "a look changes nothing");
    let done = prune(&host, of("s", "once")).await;
    let saved = 50_000 - 2 * 9; // the placeholder has 33 characters
    assert_eq!((done.outputs_pruned, done.tokens_saved), (2, saved));
    assert_eq!(
        (done.tool_names.as_slice(), done.call_ids.as_slice()),
        (&["look".to_owned()][..], &["c0".to_owned(), "c1".to_owned()][..])
    );
    assert_eq!(prune(&host, of("s", "once")).await, done, "the same request is told the same");
    assert_eq!(prune(&host, of("s", "twice")).await, pb::PruneReport::default());
    assert_eq!(prune(&host, of("s", "twice")).await, pb::PruneReport::default());
    let stats = host.stats("s").await;
    assert_eq!((stats.pruned_count, stats.pruned_tokens), (2, saved));
    let events = host.events("s", "", 0, 100).await;
    let told = events.iter().find_map(|event| match &event.payload {
        Some(Payload::ContextPruned(pruned)) => pruned.report.clone().map(|report| (event.seq, report)),
        _ => None,
    });
    assert_eq!(told, Some((done.pruned_at_seq, done.clone())));
    host.ask("s", "Well?").await;
    let prompts = host.replica.scripted.prompts();
    assert_eq!(results_in(&prompts[0])[..2], [PRUNED_TEXT; 2]);
    assert_eq!(results_in(&prompts[0])[2].len(), 80_000);
    let marked = |message: &pb::Message| {
        let results = message.parts.iter().filter_map(|part| match &part.content {
            Some(part::Content::ToolResult(result)) => result.prune_mark,
            _ => None,
        });
        results.filter(|mark| mark.pruned_at_seq == done.pruned_at_seq).count()
    };
    assert_eq!(host.messages("s").await.iter().map(marked).sum::<usize>(), 2, "and all of them can be read");
}

/// Rows D17, A9 and I5
#[tokio::test(flavor = "multi_thread")]
async fn reverting_a_prune_restores_the_results() {
    let host = Host::scripted(&[json!([{"text": "Fine."}])]).await;
    host.with_turns("s", &[30_000, 20_000, 20_000, 20_000, 5, 5]).await;
    let before = stored(&host, "s").await;
    let size = host.stats("s").await.used.unwrap().tokens;
    let report = prune(&host, of("s", "")).await;
    assert_eq!(host.stats("s").await.used.unwrap().tokens, size - report.tokens_saved, "less once, not twice");
    let back = restore(&host, "s", report.pruned_at_seq, "back").await;
    assert_eq!((back.call_ids.as_slice(), back.tokens_restored), (report.call_ids.as_slice(), report.tokens_saved));
    assert_eq!(stored(&host, "s").await, before);
    assert_eq!(restore(&host, "s", report.pruned_at_seq, "back").await, back, "the same request is told the same");
    let again = restore(&host, "s", report.pruned_at_seq, "").await;
    assert_eq!(again, pb::RestoreToolOutputsResponse::default(), "nothing is left to bring back");
    let kinds = kinds(&host.events("s", "", 0, 100).await);
    assert_eq!(kinds[kinds.len() - 2..], ["context_pruned", "context_restored"]);
}

/// Rows D17 and S7
#[tokio::test(flavor = "multi_thread")]
async fn a_prune_request_may_override_the_policy_numbers() {
    let host = Host::scripted(&[json!([{"text": "Fine."}])]).await;
    host.with_turns("s", &[300, 300, 300]).await;
    assert_eq!(prune(&host, of("s", "")).await, pb::PruneReport::default(), "too little to save");
    let numbers = |minimum, tokens, turns| pb::PruneToolOutputsRequest {
        minimum_tokens: Some(minimum),
        protect_tokens: Some(tokens),
        protect_turns: Some(turns),
        ..of("s", "")
    };
    assert_eq!(prune(&host, numbers(292, 300, 1)).await, pb::PruneReport::default());
    assert_eq!(prune(&host, numbers(291, 300, 1)).await.call_ids, ["c0"]);
    assert_eq!(prune(&host, numbers(0, 0, 0)).await.call_ids, ["c1", "c2"]);
}

/// What a turn cached is out of date after a pause.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_replica_prunes_while_a_call_waits_to_be_repeated_is_hidden_from_it() {
    let limited = json!({"error": {"kind": "rate_limited", "message": "Wait.", "retry_after_ms": 4_000, "times": 1}});
    let answer = json!([limited, {"text": "Fine."}]);
    let options = || Options { call_attempts: 2, ..answering(std::slice::from_ref(&answer)) };
    let host = Host::with(options()).await;
    let second = host.beside(options()).await;
    host.with_turns("s", &[300]).await;
    let mut stream = host.execute(turn("s", MODEL, "Go on.")).await;
    until(&mut stream, |payload| matches!(payload, Payload::TurnRetrying(_))).await;
    let all_of_them = pb::PruneToolOutputsRequest {
        minimum_tokens: Some(0),
        protect_tokens: Some(0),
        protect_turns: Some(0),
        ..of("s", "")
    };
    assert_eq!(prune(&second, all_of_them).await.call_ids, ["c0"]);
    all(&mut stream).await;
    let prompts = host.replica.scripted.prompts();
    let [.., first, again] = prompts.as_slice() else {
        panic!("{} prompts", prompts.len());
    };
    assert_ne!(results_in(first), [PRUNED_TEXT]);
    assert_eq!(results_in(again), [PRUNED_TEXT]);
}

/// A model that calls `look` in two steps, then returns text. This many tokens of each prompt are cached.
fn looks_twice(cached: u32) -> Vec<Value> {
    let finish = |reason: &str| json!({"finish": {"reason": reason, "usage": {"input": 100_000, "output": 10, "cache_read": cached}}});
    vec![
        json!([call("look"), finish("tool_calls")]),
        json!([call("look"), finish("tool_calls")]),
        json!([{"text": "Done."}, finish("stop")]),
    ]
}

/// Runs a turn of two steps in a session with old results that are worth clearing. Returns the kinds of its events.
async fn run(policy: pb::PrunePolicy, cached: u32, window: i32) -> (Host, Vec<&'static str>) {
    let host = Host::with(answering(&looks_twice(cached))).await;
    let kinds = run_of(&host, MODEL, policy, window).await;
    (host, kinds)
}

/// Like [`run`], with a model of the given host.
async fn run_of(host: &Host, model: &str, policy: pb::PrunePolicy, window: i32) -> Vec<&'static str> {
    host.create(pb::Session {
        session_id: "s".to_owned(),
        model: model.to_owned(),
        tools: tools(&["look"]),
        policy_overrides: Some(pb::Policy {
            prune: Some(policy),
            context_window: Some(window),
            output_reserve: Some(0),
            ..pb::Policy::default()
        }),
        ..pb::Session::default()
    })
    .await;
    // Less than is worth clearing until the turn's own results are added.
    for (n, tokens) in [19_000, 2_000, 19_000, 19_000].into_iter().enumerate() {
        host.append("s", one_turn(&format!("c{n}"), tokens)).await;
    }
    let events = host.run_with(turn("s", "", "Look."), |call| result(&call.call_id, &"x".repeat(8_000))).await;
    kinds(&events)
}

/// A service with these prices, whose cache has 99,000 of the 100,000 tokens of each prompt. Its model calls `look` in
/// two steps.
#[derive(Debug)]
struct Priced(Option<CachePrices>);

impl Provider for Priced {
    fn kind(&self) -> &'static str {
        "priced"
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        Some(ModelInfo { cache_prices: self.0, ..ModelInfo::unknown(name) })
    }

    fn models(&self) -> Vec<ModelInfo> {
        Vec::new()
    }

    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
        let answered = prompt.transcript.messages().iter();
        let answered = answered.filter(|message| message.response.is_some());
        let (said, reason) = if answered.count() < 2 {
            let look = Chunk::ToolCall { index: 0, id: String::new(), name: "look".to_owned() };
            (look, FinishReason::ToolCalls)
        } else {
            (Chunk::Text("Done.".to_owned()), FinishReason::Stop)
        };
        let usage = Usage { input: 100_000, output: 10, cache_read: 99_000, ..Usage::default() };
        let finished = Chunk::Finished(Finish {
            reason,
            provider_reason: String::new(),
            usage: Some(usage),
            provider_model: String::new(),
            response_id: String::new(),
            metadata: None,
            prompt_usage: None,
            prompt_fingerprint: None,
        });
        Box::pin(tokio_stream::iter([Ok(said), Ok(finished)]))
    }
}

/// Row D17
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_prunes_when_the_prices_of_the_cache_make_it_pay() {
    let table =
        [(None, false), (Some(CachePrices::new(50, None)), true), (Some(CachePrices::new(10, Some(125))), false)];
    for (prices, expected) in table {
        let options = Options::default().provider("priced", Arc::new(Priced(prices)));
        let host = Host::with(options).await;
        let policy = mode(pb::PruneMode::WhenItPays);
        let kinds = run_of(&host, "priced/m", policy, 1_000_000).await;
        assert!(kinds.contains(&"turn_completed"), "{prices:?}: {kinds:?}");
        let pruned = kinds.contains(&"context_pruned");
        assert_eq!(pruned, expected, "{prices:?}: {kinds:?}");
    }
}

/// Row S17
#[tokio::test(flavor = "multi_thread")]
async fn results_are_pruned_after_a_failed_turn() {
    // Nothing is cleared before the call, because there is room under the policy at that time. The policy in force when
    // the turn fails clears the results.
    let refused = json!([{"wait_for": "go"}, {"error": {"kind": "bad_request", "message": "no"}}]);
    let host = Host::with(answering(&[refused])).await;
    let policy = |mode: pb::PruneMode| {
        let prune = pb::PrunePolicy {
            minimum_tokens: Some(100),
            protect_tokens: Some(0),
            protect_turns: Some(0),
            ..self::mode(mode)
        };
        Some(pb::Policy { prune: Some(prune), ..pb::Policy::default() })
    };
    let session = |mode| pb::Session {
        session_id: "s".to_owned(),
        model: MODEL.to_owned(),
        policy_overrides: policy(mode),
        ..pb::Session::default()
    };
    host.create(session(pb::PruneMode::OnOverflow)).await;
    host.append("s", one_turn("c", 1_000)).await;
    let mut stream = host.execute(turn("s", "", "Well?")).await;
    let head = until(&mut stream, |payload| matches!(payload, Payload::Thinking(_))).await;
    let update = pb::UpdateSessionRequest {
        session: Some(pb::Session { model: String::new(), ..session(pb::PruneMode::Always) }),
        ..Default::default()
    };
    host.sessions().update_session(update).await.unwrap();
    host.release("go");
    let mut watch = host.watch("s", "", head.iter().map(|event| event.seq).max().unwrap()).await;
    let events = until(&mut watch, |payload| matches!(payload, Payload::ContextPruned(_))).await;
    let order: Vec<_> =
        kinds(&events).into_iter().filter(|kind| ["turn_failed", "context_pruned"].contains(kind)).collect();
    assert_eq!(order, ["turn_failed", "context_pruned"]);
    assert_eq!(host.stats("s").await.pruned_count, 1);
    assert_eq!(results_in(&host.replica.scripted.prompts()[0]), ["x".repeat(4_000)], "whole before");
}

fn mode(mode: pb::PruneMode) -> pb::PrunePolicy {
    pb::PrunePolicy { mode: mode.into(), protect_turns: Some(0), ..pb::PrunePolicy::default() }
}

/// Rows D17, S1 and S17
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_prunes_by_policy_and_its_next_prompt_is_smaller() {
    let huge = 1_000_000;
    let (host, kinds) = run(mode(pb::PruneMode::Always), 99_000, huge).await;
    let pruned: Vec<usize> = (0..kinds.len()).filter(|&n| kinds[n] == "context_pruned").collect();
    assert_eq!(pruned.len(), 1, "{kinds:?}");
    let prompts = host.replica.scripted.prompts();
    let cleared = |prompt: &Prompt| results_in(prompt).iter().filter(|text| **text == PRUNED_TEXT).count();
    assert_eq!(prompts.iter().map(|prompt| cleared(prompt)).collect::<Vec<_>>().last(), Some(&2));
    assert_eq!(host.session("s").await.state(), pb::SessionState::Idle);
    drop(host);

    let (_, kinds) = run(mode(pb::PruneMode::WhenItPays), 0, huge).await;
    assert!(kinds.contains(&"context_pruned"), "a cold cache bills nothing again: {kinds:?}");
    let (_, kinds) = run(mode(pb::PruneMode::WhenItPays), 99_000, huge).await;
    assert!(!kinds.contains(&"context_pruned"), "a warm one bills more than is saved: {kinds:?}");
    let (_, kinds) = run(mode(pb::PruneMode::OnOverflow), 0, huge).await;
    assert!(!kinds.contains(&"context_pruned"), "there is room: {kinds:?}");
    let (_, kinds) = run(mode(pb::PruneMode::OnOverflow), 99_000, 100_000).await;
    assert!(kinds.contains(&"context_pruned"), "there is none: {kinds:?}");
}

/// Rows L4 and D4
#[tokio::test(flavor = "multi_thread")]
async fn a_result_larger_than_the_room_is_truncated_and_kept_as_a_blob() {
    let answers = [json!([call("look")]), json!([{"text": "Done."}])];
    let options = Options { context: ContextPolicy::default(), ..Options::default() }.script("it", script(&answers));
    let host = Host::with(options).await;
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Look") };
    let whole = "x".repeat(60_000);
    let events = host.run_with(request, |call| result(&call.call_id, &whole)).await;
    let [id] = &requested(&events)[..] else { panic!("{events:?}") };
    let completed = events.iter().find_map(|event| match &event.payload {
        Some(Payload::ToolCallCompleted(completed)) => completed.result.clone(),
        _ => None,
    });
    let truncation = completed.unwrap().truncation.unwrap_or_else(|| panic!("{id} is whole"));
    assert_eq!(truncation.original_chars, 60_000);
    assert!(truncation.for_room, "by the room, not by the tool's limits");
    // 16,000 tokens minus 4,000 for the response, the existing context and a margin.
    assert!((42_300..43_600).contains(&truncation.kept_chars), "{truncation:?}");
    let blob = truncation.full_output.unwrap().blob_id;
    let (_, kept) = host.replica.blob(pb::GetBlobRequest { blob_id: blob, ..Default::default() }).await;
    assert_eq!(kept.len(), whole.len());
    let last = events.iter().rev().find_map(|event| match &event.payload {
        Some(Payload::StepStarted(step)) => step.context_tokens.clone(),
        _ => None,
    });
    let last = last.unwrap();
    assert!(last.tokens + last.margin <= 16_000 - 4_000, "{last:?}");
}

/// Clears the fields that differ between a session and its fork.
fn leave_out_what_differs(messages: &mut [pb::Message]) {
    for message in messages {
        message.session_id.clear();
        for part in &mut message.parts {
            if let Some(part::Content::ToolResult(pb::ToolResult { prune_mark: Some(mark), .. })) = &mut part.content {
                mark.compacted_time = None;
            }
        }
    }
}

/// The session as of a seq: the model's view, all messages, and the view of a fork, without the fields that differ
/// between them.
async fn as_of(host: &Host, session: &str, seq: i64, look: &str) -> [Vec<pb::Message>; 3] {
    let fork_of = format!("{session}-{seq}-{look}");
    host.try_fork(fork(session, seq, &fork_of)).await.unwrap();
    let mut views = [
        host.listed(session, MessageView::Live, seq, false, 3).await,
        host.listed(session, MessageView::All, seq, true, 3).await,
        host.live(&fork_of).await,
    ];
    views.iter_mut().for_each(|messages| leave_out_what_differs(messages));
    let rendered = pb::RenderContextRequest { session_id: fork_of, ..Default::default() };
    host.contexts().render_context(rendered).await.unwrap();
    views
}

/// Rows D17 and I5
#[tokio::test(flavor = "multi_thread")]
async fn a_view_as_of_a_seq_does_not_change_with_later_prunes_and_restores() {
    let host = Host::scripted(&[json!([{"text": "Fine."}])]).await;
    host.with_turns("s", &[30_000, 20_000, 20_000, 20_000, 5, 5]).await;
    let mut history = Vec::new();
    let mut note = async || {
        let seq = host.session("s").await.last_seq;
        history.push((seq, as_of(&host, "s", seq, "then").await));
    };
    note().await;
    for protect in [40_000, 20_000, 40_000] {
        let wish = pb::PruneToolOutputsRequest { protect_tokens: Some(protect), ..of("s", "") };
        let report = prune(&host, wish).await;
        assert!(report.outputs_pruned > 0);
        note().await;
        host.append("s", one_turn(&format!("after{protect}{}", report.pruned_at_seq), 50)).await;
        note().await;
        let back = restore(&host, "s", report.pruned_at_seq, "").await;
        assert_eq!(back.call_ids, report.call_ids);
        note().await;
    }
    let last = prune(&host, of("s", "")).await;
    assert!(last.outputs_pruned > 0);
    note().await;
    let cleared = |views: &[Vec<pb::Message>; 3]| {
        let parts = views[0].iter().flat_map(|message| &message.parts);
        parts
            .filter(|part| matches!(&part.content, Some(part::Content::ToolResult(it)) if it.prune_mark.is_some()))
            .count()
    };
    let marks: Vec<usize> = history.iter().map(|(_, views)| cleared(views)).collect();
    assert_eq!(marks, [0, 2, 2, 0, 4, 4, 0, 3, 3, 0, 3]);
    for (seq, views) in &history {
        assert_eq!(&as_of(&host, "s", *seq, "later").await, views, "as of {seq}");
    }
    // A fork has the history of its source.
    let seq = host.session("s").await.last_seq;
    host.try_fork(fork("s", seq, "f")).await.unwrap();
    for (seq, views) in &history {
        assert_eq!(&as_of(&host, "f", *seq, "later").await, views, "of a fork, as of {seq}");
    }
    let client = host.database.client().await;
    for session in ["s", "f"] {
        check_counters(&client, session).await;
    }
}

/// Row I5
#[tokio::test(flavor = "multi_thread")]
async fn a_batched_fork_keeps_reverted_prunes_and_the_order_of_compactions() {
    let host = Host::scripted(&[json!([{"text": "Fine."}])]).await;
    let client = host.database.client().await;
    host.with_turns("s", &[30_000, 20_000, 20_000, 20_000]).await;
    // More messages than one statement copies.
    for batch in 0..2 {
        host.append("s", (0..99).flat_map(|n| one_turn(&format!("b{batch}-{n}"), 5)).collect()).await;
    }
    let live = async |session: &str, seq: i64| {
        let mut messages = host.listed(session, MessageView::Live, seq, false, 1_000).await;
        leave_out_what_differs(&mut messages);
        messages
    };
    let report = prune(&host, pb::PruneToolOutputsRequest { protect_tokens: Some(40_000), ..of("s", "") }).await;
    assert!(report.outputs_pruned > 0);
    let between = host.session("s").await.last_seq;
    let cleared = live("s", between).await;
    assert_eq!(restore(&host, "s", report.pruned_at_seq, "").await.call_ids, report.call_ids);
    let whole = live("s", 0).await;
    assert_ne!(whole, cleared);
    let compaction = pb::CompactRequest {
        session_id: "s".to_owned(),
        strategy: pb::CompactionStrategy::MiddleRemoval.into(),
        target_tokens: 30_000,
        wait: true,
        ..Default::default()
    };
    let made = host.contexts().compact(compaction).await.unwrap().into_inner().compaction.unwrap();
    assert_eq!(made.state(), pb::CompactionState::Applied, "{:?}", made.failure);

    host.try_fork(fork("s", between, "between")).await.unwrap();
    assert_eq!(live("between", 0).await, cleared, "a fork of when the results were cleared");
    host.try_fork(fork("s", 0, "later")).await.unwrap();
    assert_eq!(live("later", between).await, cleared, "a later fork, as of when the results were cleared");
    assert_eq!(live("later", 0).await, live("s", 0).await);
    for session in ["s", "between", "later"] {
        check_counters(&client, session).await;
    }
    let begun = "select array_agg(begun_at_seq) from compactions where session_id = $1";
    let mut seqs = Vec::new();
    for session in ["s", "later"] {
        seqs.push(client.query_one(begun, &[&session]).await.unwrap().get::<_, Vec<i64>>(0));
    }
    assert_eq!(seqs[0], seqs[1]);
    assert_eq!(seqs[0].len(), 1);

    let kept = "select count(*) from past_prunes where session_id = 'later'";
    assert_eq!(client.query_one(kept, &[]).await.unwrap().get::<_, i64>(0), i64::from(report.outputs_pruned));
    let gone = pb::DeleteSessionRequest { session_id: "later".to_owned(), ..Default::default() };
    host.sessions().delete_session(gone).await.unwrap();
    let expired =
        "update session_run set version = version + 1, lease_until = now() - interval '1 s' where session_id = 'later'";
    client.batch_execute(expired).await.unwrap();
    as_worker(host.replica.engine.sessions.purge()).await.unwrap();
    assert_eq!(client.query_one(kept, &[]).await.unwrap().get::<_, i64>(0), 0, "a purge removes them");
}
