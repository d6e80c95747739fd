//! Turns that produce every event, as clients receive them.

mod mcp;

use contextd::pb::{self, event::Payload, json_schema::Schema, media::Source, part::Content, tool_choice::Choice};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use prost_types::{Duration, FieldMask};
use serde_json::{Value, json};

use crate::{
    compaction::{self, SUMMARISER},
    harness::{
        Host, Options, Replica,
        events::{all as to_end, next, until, until_action, until_written},
        host::{MODEL, answering, call},
        requests::{approve, careful, clears, deny, enqueue, result, text, tool, tools, turn},
        transcripts::{message, one_turn, says},
        upstream::{Reply, Upstream, event, finished},
    },
};

/// The beginning of a GIF image of 320 x 240 pixels.
const PICTURE: &[u8] = b"GIF89a\x40\x01\xf0\x00 a picture";

/// Number of scenes that run concurrently, each with a separate database and server.
const AT_ONCE: usize = 3;

/// The events of all scenes.
pub(super) async fn all() -> Vec<pb::Event> {
    let scenes = vec![
        tools_and_approvals().boxed_local(),
        mcp::call_of_a_server().boxed_local(),
        results_without_room().boxed_local(),
        appended_messages().boxed_local(),
        queued_messages().boxed_local(),
        given_up_messages().boxed_local(),
        changed_sessions().boxed_local(),
        pruned_results().boxed_local(),
        compactions().boxed_local(),
        compaction_of_a_turn().boxed_local(),
        given_up_compaction().boxed_local(),
        failing_calls().boxed_local(),
        refused_prompt().boxed_local(),
        internal_error().boxed_local(),
        unsupported_input().boxed_local(),
        takeover().boxed_local(),
        hand_over().boxed_local(),
        cancelled_turns().boxed_local(),
        endings().boxed_local(),
        nearly_full_and_alive().boxed_local(),
    ];
    stream::iter(scenes).buffered(AT_ONCE).concat().await
}

fn part(content: Content) -> pb::Part {
    pb::Part { content: Some(content), ..pb::Part::default() }
}

fn seconds(seconds: i64) -> Option<Duration> {
    Some(Duration { seconds, nanos: 0 })
}

fn media(source: Source) -> pb::Part {
    let media_type = "image/gif".to_owned();
    let filename = "look.gif".to_owned();
    part(Content::Media(pb::Media { media_type, source: Some(source), filename, ..pb::Media::default() }))
}

fn is_sync(payload: &Payload) -> bool {
    matches!(payload, Payload::Sync(_))
}

/// The events of a new reader: the history, and the current state.
async fn newcomer(host: &Host, session: &str) -> Vec<pb::Event> {
    until(&mut host.watch(session, "", 0).await, is_sync).await
}

fn session(session_id: &str) -> pb::Session {
    pb::Session { session_id: session_id.to_owned(), model: MODEL.to_owned(), ..pb::Session::default() }
}

/// Reasoning, text, calls with every outcome, arguments changed by an approver, and an output that is truncated and
/// requested in full.
async fn tools_and_approvals() -> Vec<pb::Event> {
    let send = json!({"tool_call": {"name": "send", "arguments": {"to": "Ann ".repeat(10)}}, "chunk_chars": 1, "delay_ms": 20});
    let broken = json!({"tool_call": {"name": "look", "raw_arguments": "no JSON"}});
    let used = json!({"input": 900, "output": 90, "reasoning": 9, "cache_read": 500, "cache_write": 100, "provider_tool_calls": 1});
    let first = [
        json!({"reasoning": "Let me see. ".repeat(10), "delay_ms": 20}),
        json!({"text": "I look twice."}),
        json!({"reasoning": "And then?"}),
    ];
    let answers = [
        Value::Array(first.into_iter().chain([send, call("pay"), call("look")]).collect()),
        json!([broken, call("nothing")]),
        json!([{"text": "Done."}, {"finish": {"reason": "stop", "usage": used}}]),
    ];
    // Each piece is sent separately.
    let host = Host::with(Options { delta_flush: std::time::Duration::ZERO, ..answering(&answers) }).await;
    let limits = pb::TurnLimits {
        max_steps: 9,
        max_output_tokens: 5_000,
        max_total_tokens: 500_000,
        turn_timeout: seconds(600),
        tool_timeout: seconds(60),
        grace_period: seconds(5),
    };
    let short = pb::ToolOutputLimits { max_output_chars: 10, ..pb::ToolOutputLimits::default() };
    let look = pb::Tool { output_limits: Some(short), ..tool("look") };
    let host_tools = vec![careful("send"), careful("pay"), look];
    let mut stream = host
        .execute(pb::ExecuteTurnRequest {
            tools: Some(pb::ToolSet { host_tools, ..pb::ToolSet::default() }),
            limits: Some(limits),
            stream: Some(pb::StreamOptions { include_raw_tool_output: true, ..pb::StreamOptions::default() }),
            ..turn("s", MODEL, "Hello")
        })
        .await;
    let (mut seen, _) = until_action(&mut stream).await;
    seen.extend(newcomer(&host, "s").await);
    let ids = crate::harness::events::calls_made(&seen);
    let edited = pb::Approval { edited_arguments_json: r#"{"to":"Bob"}"#.to_owned(), ..approve(&ids[0]) };
    host.decide("s", vec![edited, deny(&ids[1], "Too much.")]).await;
    let failed = pb::ToolResult { outcome: pb::ToolOutcome::Error.into(), ..result(&ids[0], "no such person") };
    host.submit("s", vec![failed, result(&ids[2], &"x".repeat(400_000))]).await;
    seen.extend(to_end(&mut stream).await);
    seen
}

/// A result that is truncated to the room in the window.
async fn results_without_room() -> Vec<pb::Event> {
    let host = Host::scripted(&[json!([call("look")]), json!([{"text": "Done."}])]).await;
    let policy = pb::Policy { context_window: Some(4_000), output_reserve: Some(500), ..pb::Policy::default() };
    host.create(pb::Session { policy_overrides: Some(policy), ..session("s") }).await;
    let asks = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", "", "Hello") };
    host.run_with(asks, |call| result(&call.call_id, &"word ".repeat(8_000))).await
}

/// Messages of a host's own loop with every field that such a message can have, also larger than an event.
async fn appended_messages() -> Vec<pb::Event> {
    use pb::{FinishReason as F, Role};
    let host = Host::with(Options::default()).await;
    host.create(pb::Session { session_id: "s".to_owned(), ..pb::Session::default() }).await;
    let failure = pb::Failure {
        reason: pb::FailureReason::ProviderBadRequest.into(),
        message: "It broke.".to_owned(),
        provider: "main".to_owned(),
        provider_status: 400,
        ..pb::Failure::default()
    };
    let response = |finish: F| pb::ModelResponse {
        provider: "main".to_owned(),
        model: "main/m".to_owned(),
        finish_reason: finish.into(),
        failure: (finish == F::Error).then(|| failure.clone()),
        provider_metadata_json: r#"{"main":{"container":"x"}}"#.to_owned(),
        prompt_fingerprint: "0123".to_owned(),
        ..pb::ModelResponse::default()
    };
    let cited = pb::Part {
        citations: vec![pb::Citation {
            url: "https://example.org".to_owned(),
            title: "An example".to_owned(),
            cited_text: "It is so.".to_owned(),
            start_byte: 1,
            end_byte: 3,
            provider_metadata_json: "{}".to_owned(),
        }],
        ..text("So.")
    };
    let searched = part(Content::ProviderItem(pb::ProviderItem {
        provider: "main".to_owned(),
        kind: "web_search_call".to_owned(),
        item_json: "{}".to_owned(),
        title: "Searched".to_owned(),
    }));
    let signed = pb::Part { provider_metadata_json: r#"{"main":{"signature":"x"}}"#.to_owned(), ..text("Well\0,") };
    let hidden = part(Content::Reasoning(pb::Reasoning { text: "Hm.".to_owned(), redacted: true }));
    let mut messages = vec![
        says(Role::System, "Be brief."),
        pb::InputMessage {
            pinned: true,
            metadata: [("from".to_owned(), "Ann".to_owned())].into(),
            ..message(
                Role::User,
                vec![media(Source::Data(PICTURE.to_vec())), media(Source::Url("https://example.org/a.gif".to_owned()))],
            )
        },
        message(Role::Assistant, vec![hidden, signed, searched, cited, part(Content::Refusal("No.".to_owned()))]),
    ];
    for finish in [F::Stop, F::Length, F::ContentFilter, F::Refusal, F::Error, F::Cancelled, F::Paused] {
        messages.push(pb::InputMessage { response: Some(response(finish)), ..says(Role::Assistant, "Well.") });
    }
    host.append("s", messages).await;
    let long = "x".repeat(700_000);
    let arguments_json = json!({ "words": long }).to_string();
    let wide =
        pb::ToolCall { call_id: "c1".to_owned(), tool_name: "look".to_owned(), arguments_json, arguments_blob: None };
    host.append("s", vec![message(Role::Assistant, vec![text(&long), part(Content::ToolCall(wide))])]).await;
    newcomer(&host, "s").await
}

/// Queued messages: coalesced, withdrawn, expired; and a turn that is requested twice in the meantime.
async fn queued_messages() -> Vec<pb::Event> {
    let host = Host::scripted(&[
        json!([{"text": "Well, "}, {"wait_for": "go"}, {"text": "done."}]),
        json!([{"text": "Yes."}]),
    ])
    .await;
    let asks = turn("s", MODEL, "Hello");
    let mut stream = host.execute(asks.clone()).await;
    let mut seen = until_written(&mut stream, "Well, ").await;
    seen.push(next(&mut host.execute(asks).await).await.unwrap().unwrap());
    let mut labelled = enqueue("s", "One.");
    labelled.message.as_mut().unwrap().metadata = [("from".to_owned(), "Ann".to_owned())].into();
    host.enqueue(labelled).await;
    host.enqueue(pb::EnqueueMessageRequest { delivery: pb::Delivery::Asap.into(), ..enqueue("s", "Two.") }).await;
    let late = pb::EnqueueMessageRequest { ttl: seconds(60), ..enqueue("s", "Late.") };
    host.enqueue(late).await;
    let later = pb::EnqueueMessageRequest { delivery: pb::Delivery::WhenIdle.into(), ..enqueue("s", "Later.") };
    let withdrawn = host.enqueue(later).await.queued_message.unwrap();
    let too = pb::ExecuteTurnRequest {
        busy_policy: pb::BusyPolicy::Enqueue.into(),
        limits: Some(pb::TurnLimits { max_steps: 3, ..pb::TurnLimits::default() }),
        ..turn("s", MODEL, "Three.")
    };
    let mut queued = host.execute(too).await;
    seen.push(next(&mut queued).await.unwrap().unwrap());
    seen.extend(newcomer(&host, "s").await);
    host.cancel_queued("s", &withdrawn.queued_message_id).await;
    let expire = "update queue set expires_at = now() - interval '1 second' where expires_at is not null";
    host.database.client().await.execute(expire, &[]).await.unwrap();
    seen.extend(until(&mut stream, |it| matches!(it, Payload::QueuedMessageExpired(_))).await);
    host.release("go");
    seen.extend(to_end(&mut stream).await);
    seen
}

/// Queued messages that are replaced by a newer one, that are too large, and that are dropped with the session and its
/// turn.
async fn given_up_messages() -> Vec<pb::Event> {
    let steps = json!([
        {"when": {"user_contains": "look", "call": 0}, "say": [call("look")]},
        {"say": [{"text": "Done."}]},
    ]);
    let host = Host::with(Options::default().script("it", json!({ "steps": steps }).to_string())).await;
    let queue = pb::QueuePolicy { take: pb::TakeMode::Latest.into(), ..pb::QueuePolicy::default() };
    let policy = pb::Policy { queue: Some(queue), context_window: Some(2_000), ..pb::Policy::default() };
    host.create(pb::Session { policy_overrides: Some(policy), tools: tools(&["look"]), ..session("s") }).await;
    let mut stream = host.execute(turn("s", "", "Please look.")).await;
    let (mut seen, [ids, _]) = until_action(&mut stream).await;
    for words in ["One.", &"word ".repeat(4_000), "Two."] {
        host.enqueue(enqueue("s", words)).await;
    }
    host.submit("s", vec![result(&ids[0], "There.")]).await;
    seen.extend(to_end(&mut stream).await);

    let mut stream = host.execute(turn("s", "", "Please look.")).await;
    seen.extend(until_action(&mut stream).await.0);
    host.enqueue(enqueue("s", "Wait.")).await;
    let request = pb::DeleteSessionRequest { session_id: "s".to_owned(), ..pb::DeleteSessionRequest::default() };
    host.sessions().delete_session(request).await.unwrap();
    while let Ok(Some(event)) = next(&mut stream).await {
        seen.push(event);
    }
    seen
}

/// Sessions whose model and generation settings change.
async fn changed_sessions() -> Vec<pb::Event> {
    let host = Host::with(
        answering(&[json!([{"text": "Yes."}])])
            .script("other", json!({"steps": [{"say": [{"text": "No."}]}]}).to_string()),
    )
    .await;
    host.ask("s", "Hello").await;
    let schema = pb::JsonSchema { schema: Some(Schema::Json(r#"{"type":"object"}"#.to_owned())) };
    let format = pb::ResponseFormat { json_schema: Some(schema), name: "answer".to_owned(), strict: Some(true) };
    let whole = pb::Generation {
        temperature: Some(0.5),
        top_p: Some(0.25),
        top_k: Some(40),
        stop_sequences: vec!["STOP".to_owned()],
        seed: Some(7),
        reasoning_effort: pb::ReasoningEffort::None.into(),
        reasoning_budget_tokens: Some(1_024),
        tool_choice: Some(pb::ToolChoice { choice: Some(Choice::ToolName("look".to_owned())) }),
        parallel_tool_calls: Some(true),
        response_format: Some(format),
        provider_options_json: r#"{"scripted":{"x":1}}"#.to_owned(),
    };
    let efforts = (1..=7).map(|effort| pb::Generation { reasoning_effort: effort, ..whole.clone() });
    let choices = (1..=3).map(|mode| {
        let tool_choice = Some(pb::ToolChoice { choice: Some(Choice::Mode(mode)) });
        pb::Generation { tool_choice, ..whole.clone() }
    });
    for (generation, model) in efforts.chain(choices).zip(["scripted/other", MODEL].into_iter().cycle()) {
        let session = pb::Session { model: model.to_owned(), generation: Some(generation), ..session("s") };
        let update_mask = Some(FieldMask { paths: vec!["model".to_owned(), "generation".to_owned()] });
        let request = pb::UpdateSessionRequest { session: Some(session), update_mask, ..Default::default() };
        host.sessions().update_session(request).await.unwrap();
    }
    newcomer(&host, "s").await
}

/// Old results that are cleared, also from the provider's cache, and restored, and the messages that a reader gets
/// then.
async fn pruned_results() -> Vec<pb::Event> {
    let used = json!({"finish": {"reason": "stop", "usage": {"input": 130_000, "output": 9, "cache_read": 120_000}}});
    let host = Host::scripted(&[json!([{"text": "Fine."}, used])]).await;
    host.create(session("s")).await;
    let mut seen = host.ask("s", &"Well? ".repeat(25_000)).await; // a prompt whose size the usage report can match
    for (n, tokens) in [30_000, 20_000, 20_000, 20_000, 5, 5].into_iter().enumerate() {
        host.append("s", one_turn(&format!("c{n}"), tokens)).await;
    }
    let request = |id: &str| pb::PruneToolOutputsRequest {
        session_id: "s".to_owned(),
        request_id: id.to_owned(),
        ..Default::default()
    };
    let prune = async |id| host.contexts().prune_tool_outputs(request(id)).await.unwrap().into_inner().report.unwrap();
    let pruned_at_seq = prune("once").await.pruned_at_seq;
    let restore =
        pb::RestoreToolOutputsRequest { session_id: "s".to_owned(), pruned_at_seq, request_id: String::new() };
    host.contexts().restore_tool_outputs(restore).await.unwrap();
    prune("again").await;
    seen.extend(newcomer(&host, "s").await);
    seen
}

/// Consecutive compactions, of which the last is reverted, and one for which the summary model fails.
async fn compactions() -> Vec<pb::Event> {
    let host = Host::with(compaction::options(&compaction::in_short())).await;
    compaction::session(&host, 100_000, pb::CompactionPolicy::default(), &[1_000; 2]).await;
    let dug = pb::ToolCall {
        call_id: "d1".to_owned(),
        tool_name: "dig".to_owned(),
        arguments_json: "{}".to_owned(),
        arguments_blob: None,
    };
    let dig = part(Content::ToolResult(result("d1", "Nothing.")));
    let gone = [message(pb::Role::Assistant, vec![part(Content::ToolCall(dug))]), message(pb::Role::Tool, vec![dig])];
    host.append("s", gone.to_vec()).await;
    for call in ["c6", "c7", "c8"] {
        host.append("s", one_turn(call, 1_000)).await;
    }
    compaction::try_compact(&host, compaction::request("1")).await.unwrap();
    for call in ["c9", "c10"] {
        host.append("s", one_turn(call, 1_000)).await;
    }
    let second = compaction::try_compact(&host, compaction::request("2")).await.unwrap();
    let mut seen = newcomer(&host, "s").await;
    let revert = pb::RevertCompactionRequest {
        session_id: "s".to_owned(),
        compaction_id: second.compaction_id,
        request_id: String::new(),
    };
    host.contexts().revert_compaction(revert).await.unwrap();
    let third =
        pb::CompactRequest { strategy: pb::CompactionStrategy::ProactiveThreshold.into(), ..compaction::request("3") };
    compaction::try_compact(&host, third).await.unwrap();
    for call in ["c11", "c12", "c13"] {
        host.append("s", one_turn(call, 1_000)).await;
    }
    let strategy = pb::CompactionStrategy::Truncation.into();
    let fourth = pb::CompactRequest { strategy, target_tokens: 3_000, ..compaction::request("4") };
    compaction::try_compact(&host, fourth).await.unwrap();
    seen.extend(newcomer(&host, "s").await);
    seen
}

/// A turn whose context is pruned, is still too large, and is compacted while a reader joins.
async fn compaction_of_a_turn() -> Vec<pb::Event> {
    let host = Host::with(compaction::options(&json!([{"wait_for": "go"}, {"text": "In short."}]))).await;
    compaction::session(&host, 4_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let compaction = pb::CompactionPolicy { summary_model: SUMMARISER.to_owned(), ..Default::default() };
    let policy = pb::Policy {
        compaction: Some(compaction),
        prune: Some(clears(pb::PruneMode::Always, 3_500)),
        context_window: Some(4_000),
        output_reserve: Some(1_000),
        ..pb::Policy::default()
    };
    let update = pb::UpdateSessionRequest {
        session: Some(pb::Session { policy_overrides: Some(policy), ..session("s") }),
        update_mask: Some(FieldMask { paths: vec!["policy_overrides".to_owned()] }),
        ..Default::default()
    };
    host.sessions().update_session(update).await.unwrap();
    let mut stream = host.execute(turn("s", "", "Well?")).await;
    let mut seen = until(&mut stream, |payload| matches!(payload, Payload::CompactionStarted(_))).await;
    seen.extend(newcomer(&host, "s").await);
    host.release("go");
    seen.extend(to_end(&mut stream).await);
    seen
}

/// A compaction at a share of the window whose summary is empty. Later the context must become smaller.
async fn given_up_compaction() -> Vec<pb::Event> {
    let host = Host::with(compaction::options(&json!([{"text": " "}]))).await;
    let strategy = pb::CompactionStrategy::ProactiveThreshold.into();
    compaction::session(&host, 10_000, pb::CompactionPolicy { strategy, ..Default::default() }, &[1_000; 5]).await;
    let mut seen = host.ask("s", "Well?").await;
    host.append("s", one_turn("c9", 4_500)).await;
    seen.extend(host.ask("s", "And now?").await);
    seen
}

/// A service that breaks off, is rate limited, and responds; then a service that refuses; then one that refuses one
/// model.
async fn failing_calls() -> Vec<pb::Event> {
    let upstream = Upstream::start().await;
    let host = Host::with(Options { call_attempts: 5, ..upstream.options("openai") }).await;
    upstream.answer(Reply::events(event(&json!({"content": "Half"}))));
    let limited = Reply::error(429, "rate_limit_exceeded", "Wait.").header("retry-after-ms", "5");
    upstream.answer(limited.header("x-request-id", "req_1"));
    upstream.answer(Reply::error(503, "overloaded", "Too many."));
    upstream.answer(Reply::error(408, "timeout", "Too slow."));
    upstream.answer(Reply::events([event(&json!({"content": "Whole."})), finished("stop")].concat()));
    let mut seen = host.run(turn("s", "main/gpt-4o", "Hello")).await;
    upstream.answer(Reply::error(401, "invalid_api_key", "No."));
    seen.extend(host.run(turn("s", "main/gpt-4o", "Again")).await);
    upstream.answer(Reply::error(401, "invalid_api_key", "No."));
    upstream.answer(Reply::events([event(&json!({"content": "Here."})), finished("stop")].concat()));
    let mut replaced = turn("f", "main/gpt-4o", "Hello");
    let session = replaced.session.get_or_insert_default();
    let policy = session.policy_overrides.get_or_insert_default();
    policy.fallback_models = vec!["main/gpt-5".to_owned()];
    seen.extend(host.run(replaced).await);
    seen
}

/// A prompt with every category that the provider rejects as too long, also after a compaction.
async fn refused_prompt() -> Vec<pb::Event> {
    use pb::ContextCategory as C;
    let says_no = json!({"error": {"kind": "too_long", "message": "too long"}});
    let steps = json!([{"when": {"user_contains": "wait"}, "say": [{"text": "Well"}, {"wait_for": "go"}, says_no]}]);
    let takes = json!({"input_media_types": ["image/*"], "steps": steps}).to_string();
    let mut options = compaction::options(&compaction::in_short());
    options.scripts.retain(|(name, _)| name != "it");
    let host = Host::with(options.script("it", takes)).await;
    let block = |name: &str, category: C| pb::PinnedBlock {
        name: name.to_owned(),
        text: "Likes tea.".to_owned(),
        category: category.into(),
    };
    let of = |name: &str, category: C| pb::Tool { category: category.into(), ..tool(name) };
    let hidden = pb::Tool { deferred: true, ..tool("hidden") };
    let host_tools =
        vec![tool("look"), of("remote", C::McpTools), of("skill", C::Skills), of("agent", C::Agents), hidden];
    let compaction = pb::CompactionPolicy { summary_model: SUMMARISER.to_owned(), ..Default::default() };
    // No result can be cleared, so the context must be compacted.
    let prune = pb::PrunePolicy { protected_tools: vec!["look".to_owned()], ..pb::PrunePolicy::default() };
    let policy = pb::Policy {
        compaction: Some(compaction),
        prune: Some(prune),
        context_window: Some(100_000),
        ..pb::Policy::default()
    };
    host.create(pb::Session {
        system_prompt: "Be brief.".to_owned(),
        pinned_blocks: vec![block("memory", C::Memory), block("notes", C::Pinned)],
        tools: Some(pb::ToolSet { host_tools, ..pb::ToolSet::default() }),
        policy_overrides: Some(policy),
        ..session("s")
    })
    .await;
    for call in ["c1", "c2", "c3", "c4"] {
        host.append("s", one_turn(call, 1_000)).await;
    }
    compaction::try_compact(&host, compaction::request("1")).await.unwrap();
    let thought = part(Content::Reasoning(pb::Reasoning { text: "Hm.".to_owned(), redacted: false }));
    let shown = message(pb::Role::User, vec![media(Source::Data(PICTURE.to_vec()))]);
    let thought = message(pb::Role::Assistant, vec![thought, text("A cat.")]);
    host.append("s", vec![shown.clone(), thought.clone()]).await;
    for call in ["c5", "c6", "c7"] {
        host.append("s", one_turn(call, 1_000)).await;
    }
    let mut stream = host.execute(turn("s", "", "Please wait.")).await;
    let mut seen = until_written(&mut stream, "Well").await;
    let later = pb::EnqueueMessageRequest { delivery: pb::Delivery::WhenIdle.into(), ..enqueue("s", "Later.") };
    host.enqueue(later).await;
    host.release("go");
    seen.extend(to_end(&mut stream).await);

    // Nothing may be made smaller here.
    let off = pb::CompactionPolicy { enabled: Some(false), ..pb::CompactionPolicy::default() };
    let prune = pb::PrunePolicy { protected_tools: vec!["look".to_owned()], ..pb::PrunePolicy::default() };
    let policy = pb::Policy { compaction: Some(off), prune: Some(prune), ..pb::Policy::default() };
    host.create(pb::Session { policy_overrides: Some(policy), ..session("t") }).await;
    host.append("t", vec![shown, thought]).await;
    host.append("t", one_turn("c1", 100)).await;
    seen.extend(host.run(turn("t", "", "Please wait.")).await);
    seen
}

/// A transcript that cannot be decoded.
async fn internal_error() -> Vec<pb::Event> {
    let host = Host::with(answering(&[json!([{"text": "Fine."}])]).without_session_memory()).await;
    host.ask("s", "Hello").await;
    let unreadable = "update parts set rest = '\\xff' where session_id = 's'";
    host.database.client().await.execute(unreadable, &[]).await.unwrap();
    host.ask("s", "Again").await
}

/// A setting and an image that the model does not support.
async fn unsupported_input() -> Vec<pb::Event> {
    let host = Host::scripted(&[json!([{"text": "Fine."}])]).await;
    let parts = vec![text("What is this?"), media(Source::Data(PICTURE.to_vec()))];
    let tool_choice = Some(pb::ToolChoice { choice: Some(Choice::ToolName("missing".to_owned())) });
    host.run(pb::ExecuteTurnRequest {
        input: Some(pb::InputMessage { parts, ..pb::InputMessage::default() }),
        generation: Some(pb::Generation { tool_choice, ..pb::Generation::default() }),
        ..turn("s", MODEL, "")
    })
    .await
}

/// A replica that dies while it streams a response, and its successor.
async fn takeover() -> Vec<pb::Event> {
    let host = Host::scripted(&[json!([{"text": "So far"}, {"wait_for": "never"}])]).await;
    let mut stream = host.execute(turn("s", MODEL, "Hello")).await;
    let seen = until_written(&mut stream, "So far").await;
    drop(stream);
    host.simulate_crash().await;
    let other = host.beside(answering(&[json!([{"text": "All of it."}])])).await;
    [seen.clone(), to_end(&mut other.watch("s", &seen[0].turn_id, 0).await).await].concat()
}

/// A replica that shuts down, and its successor.
async fn hand_over() -> Vec<pb::Event> {
    let host = Host::scripted(&[json!([{"text": "So far"}, {"wait_for": "never"}])]).await;
    let mut stream = host.execute(turn("s", MODEL, "Hello")).await;
    let seen = until_written(&mut stream, "So far").await;
    let other = host.beside(answering(&[json!([{"text": "All of it."}])])).await;
    Replica::drain(&host.replica, std::time::Duration::from_millis(100)).await;
    to_end(&mut other.watch("s", &seen[0].turn_id, 0).await).await
}

/// Turns that are stopped while the model responds, interrupted, and rolled back while a tool runs.
async fn cancelled_turns() -> Vec<pb::Event> {
    let script: [Value; 2] = [json!([{"text": "So far"}, call("look"), call("list")]), json!([{"text": "Done."}])];
    let slow = json!({"steps": [{"when": {"user_contains": "slowly"}, "say": [{"text": "So far"}, {"stall": true}]}, {"when": {"user_contains": "think"}, "say": [{"stall": true}]}, {"say": [{"text": "Fine."}]}]});
    let host = Host::with(answering(&script).script("slow", slow.to_string())).await;
    let mut stream = host.execute(turn("slow", "scripted/slow", "Speak slowly")).await;
    let mut seen = until_written(&mut stream, "So far").await;
    host.cancel("slow", "").await;
    seen.extend(to_end(&mut stream).await);
    let mut stream = host.execute(turn("slow", "scripted/slow", "Speak slowly")).await;
    seen.extend(until_written(&mut stream, "So far").await);
    let mut watch = host.watch("slow", "", 0).await;
    seen.extend(until(&mut watch, is_sync).await);
    host.enqueue(pb::EnqueueMessageRequest { delivery: pb::Delivery::Interrupt.into(), ..enqueue("slow", "Stop.") })
        .await;
    seen.extend(until(&mut watch, |payload| matches!(payload, Payload::TurnCompleted(_))).await);

    let mut stream = host.execute(turn("silent", "scripted/slow", "Please think")).await;
    seen.extend(until(&mut stream, |payload| matches!(payload, Payload::Thinking(_))).await);
    host.cancel("silent", "").await;
    seen.extend(to_end(&mut stream).await);

    let asks = pb::ExecuteTurnRequest { tools: tools(&["look", "list"]), ..turn("s", MODEL, "Hello") };
    let mut stream = host.execute(asks).await;
    let (head, [ids, _]) = until_action(&mut stream).await;
    host.submit("s", vec![result(&ids[0], "There.")]).await;
    let rollback = pb::CancelTurnRequest {
        session_id: "s".to_owned(),
        mode: pb::CancelMode::Rollback.into(),
        reason: "Never mind.".to_owned(),
        ..pb::CancelTurnRequest::default()
    };
    host.enqueue(enqueue("s", "Later.")).await;
    host.turns().cancel_turn(rollback).await.unwrap();
    let rest = to_end(&mut stream).await;
    [seen, head, rest, newcomer(&host, "s").await].concat()
}

/// All endings of a turn other than a cancel: a limit, a filter, an empty response.
async fn endings() -> Vec<pb::Event> {
    let said = |reason: &str| json!([{"text": "Well."}, {"finish": {"reason": reason}}]);
    let script = json!({"steps": [
        {"when": {"user_contains": "length"}, "say": said("length")},
        {"when": {"user_contains": "filter"}, "say": said("content_filter")},
        {"when": {"user_contains": "refuse"}, "say": said("refusal")},
        {"when": {"user_contains": "slowly"}, "say": [{"text": "Well"}, {"stall": true}]},
        {"when": {"user_contains": "silence"}, "say": [{"reasoning": "Hm."}]},
        {"say": [call("look")]},
    ]});
    let host = Host::with(Options::default().script("it", script.to_string())).await;
    let mut seen = Vec::new();
    for words in ["length", "filter", "refuse", "silence"] {
        seen.extend(host.ask("s", words).await);
    }
    let timed = pb::TurnLimits { turn_timeout: seconds(1), ..pb::TurnLimits::default() };
    seen.extend(host.run(pb::ExecuteTurnRequest { limits: Some(timed), ..turn("s", MODEL, "slowly") }).await);
    let steps = pb::TurnLimits { max_steps: 1, ..pb::TurnLimits::default() };
    let tokens = pb::TurnLimits { max_total_tokens: 1, ..pb::TurnLimits::default() };
    for limits in [steps, tokens] {
        let asks = pb::ExecuteTurnRequest { limits: Some(limits), tools: tools(&["look"]), ..turn("s", MODEL, "Look") };
        seen.extend(host.run_with(asks, |call| result(&call.call_id, "There.")).await);
    }
    // A call that times out, and a turn that ends while a call is open.
    let impatient = pb::Tool { timeout: seconds(1), ..tool("look") };
    let host_tools = Some(pb::ToolSet { host_tools: vec![impatient], ..pb::ToolSet::default() });
    let once = pb::ExecuteTurnRequest { limits: Some(steps), tools: host_tools, ..turn("s", MODEL, "Look") };
    seen.extend(host.run(once).await);
    let ends = pb::ExecuteTurnRequest { limits: Some(timed), tools: tools(&["look"]), ..turn("s", MODEL, "Look") };
    seen.extend(host.run(ends).await);
    seen
}

/// A context that is nearly full, and a stream without activity.
async fn nearly_full_and_alive() -> Vec<pb::Event> {
    let host = Host::with(compaction::options(&compaction::in_short())).await;
    compaction::session(&host, 11_000, pb::CompactionPolicy::default(), &[4_600, 4_600]).await;
    let mut seen = host.ask("s", "Well?").await;
    let stream = Some(pb::StreamOptions { heartbeat_interval: seconds(1), ..pb::StreamOptions::default() });
    let request = pb::WatchEventsRequest { session_id: "s".to_owned(), follow: true, stream, ..Default::default() };
    let mut watch = host.turns().watch_events(request).await.unwrap().into_inner();
    seen.extend(until(&mut watch, |payload| matches!(payload, Payload::Heartbeat(_))).await);
    seen
}
