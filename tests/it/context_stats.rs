//! GetContextStats through the public API: the size of the next prompt, its composition, and what was used.

use contextd::{
    model::{TenantId, config::ContextPolicy},
    pb::{self, ContextCategory as C, TokenBasis, event::Payload, model_service_client::ModelServiceClient},
};
use serde_json::{Value, json};
use tonic::Code;

use crate::harness::{
    Host, Options, as_worker,
    events::{TEST_TIMEOUT, all, requested, until, until_action, until_written},
    host::{MODEL, answering, call, refusal, until as eventually},
    log::Logged,
    requests::{result, text, tools, turn},
    transcripts::{message, one_turn},
};

fn says(words: &str, input: u32, output: u32) -> Value {
    json!([{"text": words}, {"finish": {"reason": "stop", "usage": {"input": input, "output": output}}}])
}

/// Appends a user message of this size.
async fn append(host: &Host, session: &str, tokens: usize) -> pb::AppendMessagesResponse {
    // A message costs 4 tokens, plus one per 4 letters.
    let message = pb::InputMessage {
        role: pb::Role::User.into(),
        parts: vec![text(&"x".repeat(4 * (tokens - 4)))],
        ..pb::InputMessage::default()
    };
    let request = pb::AppendMessagesRequest {
        session_id: session.to_owned(),
        messages: vec![message],
        ..pb::AppendMessagesRequest::default()
    };
    host.sessions().append_messages(request).await.unwrap().into_inner()
}

async fn update(host: &Host, session: pb::Session) {
    let request = pb::UpdateSessionRequest { session: Some(session), ..pb::UpdateSessionRequest::default() };
    host.sessions().update_session(request).await.unwrap();
}

fn session(id: &str) -> pb::Session {
    pb::Session { session_id: id.to_owned(), ..pb::Session::default() }
}

fn of(stats: &pb::ContextStats, category: C) -> i32 {
    stats.categories.iter().filter(|share| share.category() == category).map(|share| share.tokens).sum()
}

fn used(stats: &pb::ContextStats) -> (i32, TokenBasis) {
    let used = stats.used.clone().unwrap();
    (used.tokens, used.basis())
}

fn assert_adds_up(stats: &pb::ContextStats) {
    let total: i32 = stats.categories.iter().filter(|share| share.in_total).map(|share| share.tokens).sum();
    assert_eq!(total, used(stats).0, "{stats:?}");
}

/// Rows A3, A4, A7 and I6
#[tokio::test(flavor = "multi_thread")]
async fn context_size_is_the_anchor_plus_new_messages_and_drives_the_triggers() {
    let host = Host::scripted(&[says("Hello.", 5_000, 100)]).await;
    let before = host.replica.engine.prompts.rules.models.default_model.clone();
    assert_eq!(before, "scripted/demo");
    let first = turn("s", "", "Hi");
    let first = pb::ExecuteTurnRequest {
        session: Some(pb::Session { model: MODEL.to_owned(), ..Default::default() }),
        ..first
    };
    host.run(first).await;
    let stats = host.stats("s").await;
    assert_eq!(used(&stats), (5_100, TokenBasis::Actual));
    let receipt = append(&host, "s", 20).await;
    let stats = host.stats("s").await;
    assert_eq!(used(&stats), (5_120, TokenBasis::Heuristic));
    let basis = pb::SizeBasis { last_input_tokens: 5_000, last_output_tokens: 100, new_tokens: 20 };
    assert_eq!(stats.size_basis, Some(basis));
    assert_eq!((receipt.context_tokens.unwrap().tokens, stats.context_version), (5_120, receipt.context_version));
    assert_adds_up(&stats);
    // The turn reports the same size for its prompt, plus its input of 16 letters.
    let events = host.run(turn("s", "", "four times four.")).await;
    let started = events.iter().find_map(|event| match &event.payload {
        Some(Payload::StepStarted(step)) => step.context_tokens.clone(),
        _ => None,
    });
    assert_eq!(started.unwrap().tokens, 5_128);
}

/// Rows A5, A2 and L8
#[tokio::test(flavor = "current_thread")]
async fn each_call_reports_predicted_and_actual_tokens_and_the_last_is_stored() {
    // The whole server runs on this thread.
    let logged = Logged::default();
    let _logging = logged.begin();
    let answers = [
        json!([call("look"), {"finish": {"reason": "tool_calls", "usage": {"input": 5_000, "output": 100}}}]),
        says("Done.", 5_115, 7),
    ];
    let host = Host::scripted(&answers).await;
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Look") };
    // 20 tokens since the call: 4 for the message, 16 for 64 letters. The call itself is part of the reported output.
    let events = host.run_with(request, |call| result(&call.call_id, &"x".repeat(64))).await;
    let estimates: Vec<pb::CallEstimate> = events
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::UsageRecorded(recorded)) => recorded.estimate,
            _ => None,
        })
        .collect();
    assert_eq!((estimates.len(), requested(&events).len()), (2, 1));
    let [_, second] = estimates[..] else { panic!("{estimates:?}") };
    assert_eq!((second.estimated_tokens, second.actual_tokens, second.error_tokens), (5_120, 5_115, 5));
    assert!((second.error_ratio - 5.0 / 5_115.0).abs() < 1e-12, "{second:?}");
    let lines = logged.lines("model call measured");
    assert_eq!(lines.len(), 2, "one for each call: {lines:?}");
    let line = &lines[1];
    let fields = &lines[1]["fields"];
    assert_eq!((&line["level"], &fields["model"]), (&json!("INFO"), &json!(MODEL)));
    assert_eq!((&fields["tokens.estimated"], &fields["tokens.actual"]), (&json!(5_120), &json!(5_115)));
    assert_eq!((&fields["tokens.deviation"], &fields["tokens.deviation_percent"]), (&json!(5), &json!("+0.1")));
    let stats = host.stats("s").await;
    assert_eq!(stats.last_estimate, Some(second));
    let request = pb::GetContextStatsRequest {
        session_id: "s".to_owned(),
        format: pb::StatsFormat::Text.into(),
        ..Default::default()
    };
    let shown = host.contexts().get_context_stats(request).await.unwrap().into_inner().text;
    assert!(shown.contains("Last estimate 5,120 against 5,115 reported: +5 (+0.1%)"), "{shown}");
    let totals = stats.usage[0].usage.unwrap();
    assert_eq!(
        (stats.usage.len(), stats.usage[0].model.as_str(), stats.usage[0].purpose()),
        (1, MODEL, pb::UsagePurpose::Turn)
    );
    assert_eq!((totals.calls, totals.input_tokens, totals.output_tokens), (2, 10_115, 107));
    let [recent] = &stats.recent_turns[..] else { panic!("{stats:?}") };
    assert_eq!((recent.step_count, recent.total_usage), (2, Some(totals)));
}

/// Row A12
#[tokio::test(flavor = "multi_thread")]
async fn calibration_of_a_model_survives_a_restart_and_corrects_counts() {
    let options = || answering(&[says("Fine.", 1_000, 2)]);
    let host = Host::with(Options { workers: false, ..options() }).await;
    let words = "hello ".repeat(594);
    let request = pb::CountTokensRequest {
        model: MODEL.to_owned(),
        messages: vec![message(pb::Role::User, vec![text(&words)])],
        ..pb::CountTokensRequest::default()
    };
    let count =
        async |host: &Host| host.contexts().count_tokens(request.clone()).await.unwrap().into_inner().total.unwrap();
    let told = async |host: &Host, session: &str| {
        let made = pb::Session { model: MODEL.to_owned(), ..pb::Session::default() };
        let request = pb::ExecuteTurnRequest { session: Some(made), ..turn(session, "", &words) };
        let events = host.run(request).await;
        let told = events.iter().find_map(|event| match &event.payload {
            Some(Payload::UsageRecorded(recorded)) => Some(recorded.calibration_ratio),
            _ => None,
        });
        // The calibration is updated in the background, so the statistics may still have the old value.
        (told.unwrap(), host.stats(session).await.calibration_ratio)
    };
    let plain = count(&host).await;
    host.create(pb::Session { session_id: "s0".to_owned(), model: MODEL.to_owned(), ..pb::Session::default() }).await;
    assert_eq!((plain.basis(), host.stats("s0").await.calibration_ratio), (TokenBasis::Heuristic, 1.0));
    assert_eq!(told(&host, "s1").await.0, 1.0, "the call itself teaches nothing about its own ratio");
    told(&host, "s2").await;
    told(&host, "s3").await;
    let tenant = TenantId::new("default");
    eventually("three calls have taught something", || async {
        let engine = &host.replica.engine;
        let known = as_worker(engine.prompts.calibrations(&tenant, &[MODEL])).await;
        known.unwrap().get(MODEL).is_some_and(|it| it.calls == 3)
    })
    .await;
    host.replica.drain(TEST_TIMEOUT).await;

    let next = host.beside(options()).await;
    drop(host);
    let (ratio, shown) = told(&next, "s4").await;
    let expected = 1_000.0 / f64::from(plain.tokens);
    assert!((ratio - expected).abs() < 0.02 && (1.5..1.8).contains(&ratio), "{ratio}, not {expected}");
    assert_eq!(shown, ratio);
    let corrected = count(&next).await;
    assert_eq!(corrected.basis(), TokenBasis::Calibrated);
    assert_eq!(corrected.tokens, (f64::from(plain.tokens) * ratio).round() as i32);
    let request = pb::GetModelRequest { model: MODEL.to_owned() };
    let mut models = ModelServiceClient::new(next.replica.channel().await);
    let model = models.get_model(request).await.unwrap().into_inner().model.unwrap();
    assert_eq!(model.calibration_ratio, ratio);
}

/// Row A10
#[tokio::test(flavor = "multi_thread")]
async fn context_stats_count_each_category_and_the_free_window() {
    let host = Host::with(as_shipped(answering(&[says("Hello.", 5_000, 100)]))).await;
    let block = |name: &str, category: C, letters: usize| pb::PinnedBlock {
        name: name.to_owned(),
        text: "x".repeat(letters),
        category: category.into(),
    };
    let tagged = |name: &str, category: C, letters: usize, deferred: bool| pb::Tool {
        name: name.to_owned(),
        description: "x".repeat(letters),
        category: category.into(),
        deferred,
        ..pb::Tool::default()
    };
    let host_tools = vec![
        tagged("look", C::Tools, 396, false),
        tagged("mcp_find", C::McpTools, 792, false),
        tagged("mcp_later", C::McpTools, 3_991, true),
        tagged("skill", C::Skills, 1_195, false),
        tagged("agent", C::Agents, 1_595, false),
    ];
    let policy = |enabled| pb::Policy {
        context_window: Some(20_000),
        output_reserve: Some(2_000),
        compaction: Some(pb::CompactionPolicy { enabled: Some(enabled), ..Default::default() }),
        ..pb::Policy::default()
    };
    let made = pb::Session {
        model: MODEL.to_owned(),
        system_prompt: "x".repeat(2_000),
        tools: Some(pb::ToolSet { host_tools, ..pb::ToolSet::default() }),
        pinned_blocks: vec![
            block("notes", C::Memory, 2_400),
            block("how", C::Skills, 2_800),
            block("who", C::Agents, 3_200),
            block("plan", C::Pinned, 3_600),
        ],
        policy_overrides: Some(policy(false)),
        ..session("s")
    };
    host.create(made).await;
    append(&host, "s", 250).await;
    let stats = host.stats("s").await;
    let around = |exact: i32| exact..=exact + 6; // the headings of the blocks, and the beginning of the response
    let expected = [
        (C::SystemPrompt, 500),
        (C::Tools, 100),
        (C::McpTools, 200),
        (C::Skills, 300 + 700),
        (C::Agents, 400 + 800),
        (C::Memory, 600),
        (C::Pinned, 900),
        (C::User, 250),
    ];
    for (category, tokens) in expected {
        assert!(around(tokens).contains(&of(&stats, category)), "{category:?}: {stats:?}");
    }
    let deferred: Vec<_> = stats.categories.iter().filter(|share| share.category() == C::DeferredTools).collect();
    let [deferred] = deferred[..] else { panic!("{stats:?}") };
    assert_eq!((deferred.tokens, deferred.count, deferred.in_total), (1_000, 1, false));
    assert!(stats.tools.iter().all(|tool| tool.tool_name != "mcp_later"), "{:?}", stats.tools);
    assert_adds_up(&stats);
    let size = used(&stats).0;
    assert!((4_750..4_800).contains(&size), "without the deferred tool: {size}");
    assert_eq!(stats.auto_compact_buffer, 500, "nothing is compacted by itself");
    assert_eq!(stats.free_tokens, 20_000 - size - 500);

    update(&host, pb::Session { policy_overrides: Some(policy(true)), ..session("s") }).await;
    let stats = host.stats("s").await;
    assert_eq!((stats.compaction_threshold, stats.auto_compact_buffer), (18_001, 2_000), "what is kept for the answer");
    assert_eq!(stats.free_tokens, 20_000 - size - 2_000);
    append(&host, "s", 16_000).await;
    let stats = host.stats("s").await;
    assert_eq!((used(&stats).0 > 20_000, stats.free_tokens), (true, 0), "never below nothing");
}

/// Rows A6 and A8
#[tokio::test(flavor = "multi_thread")]
async fn context_stats_of_a_large_context_add_up() {
    let host = Host::scripted(&[says("Hello.", 50_000, 2_000)]).await;
    let tool = pb::Tool { name: "look".to_owned(), description: "x".repeat(31_996), ..pb::Tool::default() };
    let policy = pb::Policy { context_window: Some(200_000), output_reserve: Some(16_000), ..pb::Policy::default() };
    let made = pb::Session {
        model: MODEL.to_owned(),
        system_prompt: "x".repeat(15_984),
        tools: Some(pb::ToolSet { host_tools: vec![tool], ..pb::ToolSet::default() }),
        policy_overrides: Some(policy),
        ..pb::Session::default()
    };
    host.run(pb::ExecuteTurnRequest { session: Some(made), ..turn("s", "", "Hi") }).await;
    append(&host, "s", 100).await;
    let request = pb::GetContextStatsRequest {
        session_id: "s".to_owned(),
        format: pb::StatsFormat::Text.into(),
        ..Default::default()
    };
    let answer = host.contexts().get_context_stats(request).await.unwrap().into_inner();
    let stats = answer.stats.unwrap();
    assert_eq!((used(&stats).0, stats.context_window, stats.output_reserve), (52_100, 200_000, 16_000));
    assert_eq!((of(&stats, C::SystemPrompt), of(&stats, C::Tools)), (4_000, 8_000));
    assert_eq!(of(&stats, C::User) + of(&stats, C::Assistant), 40_100);
    assert!((stats.used_ratio - 0.2605).abs() < 1e-9, "{}", stats.used_ratio);
    // The largest size that is not compacted leaves the reserve free.
    assert_eq!((stats.free_tokens, stats.auto_compact_buffer), (131_900, 16_000));
    assert_adds_up(&stats);
    assert_eq!(
        stats.tools,
        [pb::ToolTokens { tool_name: "look".to_owned(), tokens: 8_000, category: C::Tools.into() }]
    );
    for words in [
        "52,100 of 200,000 tokens (26%) (partly estimated)\n[####################",
        "  System prompt                        4,000    2.0%\n",
        "  Tools (1)                            8,000    4.0%\n",
        "  Free                               131,900   66.0%\n",
        "  Auto-compact buffer                 16,000    8.0%\n",
        "Computed from 50,000 last input + 2,000 last output + 100 new\n",
        "against 50,000 reported: ",
    ] {
        assert!(answer.text.contains(words), "{words} in {}", answer.text);
    }
    assert!(answer.text.lines().all(|line| line.chars().count() <= 80), "{}", answer.text);
}

/// Rows A7 and D30
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_system_prompt_keeps_the_anchor_and_another_model_estimates() {
    let host = Host::with(as_shipped(answering(&[says("Hello.", 5_000, 100)]))).await;
    let made = pb::Session { model: MODEL.to_owned(), system_prompt: "x".repeat(400), ..pb::Session::default() };
    host.run(pb::ExecuteTurnRequest { session: Some(made), ..turn("s", "", "Hi") }).await;
    assert_eq!(used(&host.stats("s").await), (5_100, TokenBasis::Actual));
    update(&host, pb::Session { system_prompt: "x".repeat(480), ..session("s") }).await;
    assert_eq!(used(&host.stats("s").await), (5_120, TokenBasis::Heuristic), "20 tokens more, estimated");
    update(&host, pb::Session { system_prompt: "x".repeat(400), ..session("s") }).await;
    assert_eq!(used(&host.stats("s").await), (5_100, TokenBasis::Actual));
    update(&host, pb::Session { model: "scripted/demo".to_owned(), ..session("s") }).await;
    let stats = host.stats("s").await;
    assert_eq!((stats.model.as_str(), stats.context_window), ("scripted/demo", 16_000));
    let (tokens, basis) = used(&stats);
    assert!(tokens < 200 && basis == TokenBasis::Heuristic, "{stats:?}");
    assert_eq!(stats.size_basis.unwrap().new_tokens, tokens);
    let request =
        pb::GetContextStatsRequest { session_id: "s".to_owned(), model: MODEL.to_owned(), ..Default::default() };
    let as_before = host.contexts().get_context_stats(request).await.unwrap().into_inner().stats.unwrap();
    assert_eq!(used(&as_before), (5_100, TokenBasis::Actual), "as if it had stayed");
    assert_adds_up(&as_before);
}

/// Row A7
#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_usage_keeps_the_previous_anchor() {
    let silent = json!([{"text": "four times four."}, {"finish": {"reason": "stop", "usage": null}}]);
    let first = json!({"when": {"user_contains": "first"}, "say": says("Hello.", 5_000, 100)});
    let script = json!({"steps": [first, {"say": silent}]});
    let host = Host::with(Options::default().script("it", script.to_string())).await;
    let made = pb::Session { model: MODEL.to_owned(), ..pb::Session::default() };
    host.run(pb::ExecuteTurnRequest { session: Some(made), ..turn("s", "", "first") }).await;
    host.run(turn("s", "", "four times four.")).await;
    let stats = host.stats("s").await;
    assert_eq!(used(&stats), (5_116, TokenBasis::Heuristic), "two messages of 8 tokens since");
    assert_eq!(stats.usage[0].usage.unwrap().calls, 2);
}

/// Row S4
#[tokio::test(flavor = "multi_thread")]
async fn context_stats_report_nearly_full_above_nine_tenths() {
    let full = json!({"when": {"user_contains": "full"}, "say": says("Hello.", 8_900, 101)});
    let script = json!({"steps": [full, {"say": says("Hello.", 8_900, 100)}]});
    let host = Host::with(Options::default().script("it", script.to_string())).await;
    let policy = pb::Policy { context_window: Some(20_000), output_reserve: Some(10_000), ..pb::Policy::default() };
    for (id, nearly) in [("even", false), ("full", true)] {
        let policy_overrides = Some(policy.clone());
        let made = pb::Session { model: MODEL.to_owned(), policy_overrides, ..pb::Session::default() };
        host.run(pb::ExecuteTurnRequest { session: Some(made), ..turn(id, "", id) }).await;
        assert_eq!(host.stats(id).await.approaching_limit, nearly, "{id}");
    }
}

/// Row S4
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_window_is_assumed_or_refused() {
    let host = Host::with(unknown_window()).await;
    let made = |id: &str, policy| pb::CreateSessionRequest {
        session: Some(pb::Session { model: "vague/model".to_owned(), policy_overrides: Some(policy), ..session(id) }),
        ..pb::CreateSessionRequest::default()
    };
    let refuse = pb::Policy { unknown_window: pb::UnknownWindow::Refuse.into(), ..pb::Policy::default() };
    for (id, policy) in [("assumes", pb::Policy::default()), ("refuses", refuse.clone())] {
        host.sessions().create_session(made(id, policy)).await.unwrap();
    }
    let told = pb::Policy { context_window: Some(32_000), ..refuse };
    host.sessions().create_session(made("told", told)).await.unwrap();
    let stats = host.stats("assumes").await;
    assert_eq!((stats.context_window, stats.output_reserve), (16_000, 4_096));
    assert_eq!(host.stats("told").await.context_window, 32_000);
    let request = pb::GetContextStatsRequest { session_id: "refuses".to_owned(), ..Default::default() };
    let refused = host.contexts().get_context_stats(request).await.unwrap_err();
    let expected = (Code::FailedPrecondition, "CONTEXT_WINDOW_UNKNOWN".to_owned(), "vague/model".to_owned());
    assert_eq!(refusal(&refused, "model"), expected);
    let refused = host.try_execute(turn("refuses", "", "Hello")).await;
    assert_eq!(refusal(&refused.unwrap_err(), "model"), expected);
}

/// Row S4
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_model_gets_an_unknown_window_fails_where_the_policy_refuses_one() {
    let answers = [json!([call("look")]), json!([{"text": "Never."}])];
    let script = crate::harness::host::script(&answers);
    let host = Host::with(unknown_window().script("it", script)).await;
    let create = pb::CreateSessionRequest {
        session: Some(pb::Session {
            model: MODEL.to_owned(),
            policy_overrides: Some(pb::Policy {
                unknown_window: pb::UnknownWindow::Refuse.into(),
                ..pb::Policy::default()
            }),
            ..session("s")
        }),
        ..pb::CreateSessionRequest::default()
    };
    host.sessions().create_session(create).await.unwrap();
    let mut stream = host.execute(pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", "", "Go") }).await;
    let (_, [calls, _]) = until_action(&mut stream).await;
    let update = pb::UpdateSessionRequest {
        session: Some(pb::Session { model: "vague/model".to_owned(), ..session("s") }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["model".to_owned()] }),
        ..pb::UpdateSessionRequest::default()
    };
    host.sessions().update_session(update).await.unwrap();
    host.submit("s", vec![result(&calls[0], "Seen.")]).await;
    let rest = all(&mut stream).await;
    let Some(Payload::TurnFailed(failed)) = rest.last().and_then(|it| it.payload.clone()) else {
        panic!("not failed: {rest:?}")
    };
    let failure = failed.failure.unwrap();
    assert_eq!(failure.reason(), pb::FailureReason::ContextOverflow);
    assert!(failure.message.contains("vague/model") && failure.message.contains("is unknown"), "{}", failure.message);
}

/// Row A2
#[tokio::test(flavor = "multi_thread")]
async fn context_stats_report_cached_tokens_and_a_step_forecast() {
    let finish = |reason: &str, input: u32, cached: u32| json!({"finish": {"reason": reason, "usage": {"input": input, "output": 10, "cache_read": cached}}});
    let answers = [
        json!([call("look"), finish("tool_calls", 1_000, 0)]),
        json!([{"text": "Done."}, finish("stop", 1_500, 1_000)]),
    ];
    let host = Host::with(answering(&answers)).await;
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Look") };
    host.run_with(request, |call| result(&call.call_id, "fine")).await;
    let stats = host.stats("s").await;
    assert!((stats.cache_hit_ratio - 0.4).abs() < 1e-9, "{}", stats.cache_hit_ratio);
    let client = host.database.client().await;
    let sql = "select growth from session_run where session_id = 's'";
    let growth: f64 = client.query_one(sql, &[]).await.unwrap().get(0);
    assert!((growth - 500.0).abs() < 1e-9, "{growth}");
}

/// Row A2
#[tokio::test(flavor = "multi_thread")]
async fn definitions_of_a_services_own_tools_are_counted_for_its_models() {
    let host = Host::with(answering(&[says("Hello.", 10, 1)])).await;
    let definition = json!({"type": "web_search", "allowed_domains": ["x".repeat(4_000)]});
    let mut sizes = Vec::new();
    for provider in ["scripted", "other"] {
        let own = pb::ProviderTool { provider: provider.to_owned(), definition_json: definition.to_string() };
        host.create(pb::Session {
            session_id: provider.to_owned(),
            model: MODEL.to_owned(),
            tools: Some(pb::ToolSet { provider_tools: vec![own], ..pb::ToolSet::default() }),
            ..pb::Session::default()
        })
        .await;
        let stats = host.stats(provider).await;
        let shares = stats.categories.iter();
        let tools = shares.filter(|share| share.category() == C::Tools);
        let tools: i32 = tools.map(|share| share.tokens).sum();
        sizes.push((stats.used.unwrap().tokens, tools));
    }
    let [(with, tools), (without, no_tools)] = sizes[..] else { panic!("{sizes:?}") };
    assert_eq!((with - without, no_tools), (tools, 0));
    assert!((1_000..1_100).contains(&tools), "{tools}");
}

/// With the built-in windows of models.
fn as_shipped(options: Options) -> Options {
    Options { context: ContextPolicy::default(), ..options }
}

fn unknown_window() -> Options {
    use std::{collections::BTreeMap, sync::Arc};

    use contextd::{
        config::HttpConfig,
        model::DeclaredModel,
        provider::{
            http::Settings,
            openai::{OpenAi, dialect::COMPATIBLE},
        },
    };
    let settings =
        Settings { base_url: "http://127.0.0.1:9/v1".to_owned(), headers: Vec::new(), http: HttpConfig::default() };
    let models = BTreeMap::from([("model".to_owned(), DeclaredModel::default())]);
    as_shipped(Options::default())
        .provider("vague", Arc::new(OpenAi::new("vague", settings, &COMPATIBLE, models).unwrap()))
}

/// Row L8
#[tokio::test(flavor = "multi_thread")]
async fn context_stats_are_available_at_any_time() {
    let calls =
        |stats: &pb::ContextStats| stats.usage.iter().map(|by_model| by_model.usage.unwrap().calls).sum::<i64>();
    let answers = [json!([call("look")]), json!([{"text": "Once"}, {"wait_for": "go"}, {"text": "."}])];
    let host = Host::scripted(&answers).await;
    let mut stream =
        host.execute(pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Look.") }).await;
    let (_, [open, _]) = until_action(&mut stream).await;
    let waiting = host.stats("s").await;
    assert_eq!(calls(&waiting), 1, "while results are awaited");
    host.submit("s", vec![result(&open[0], "There.")]).await;
    until_written(&mut stream, "Once").await;
    let streaming = host.stats("s").await;
    assert_eq!(calls(&streaming), 1, "while the model speaks");
    assert!(streaming.used.unwrap().tokens > waiting.used.unwrap().tokens);
    host.release("go");
    until(&mut stream, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    assert_eq!(calls(&host.stats("s").await), 2);
}

/// Rows A7 and A9
#[tokio::test(flavor = "multi_thread")]
async fn after_a_compaction_and_after_a_prune_the_size_is_estimated_until_the_next_call() {
    let host = Host::scripted(&[says("Fine.", 5_000, 100)]).await;
    host.create(pb::Session { model: MODEL.to_owned(), ..session("s") }).await;
    for call in ["c1", "c2", "c3"] {
        host.append("s", one_turn(call, 2_000)).await;
    }
    for change in ["compact", "prune"] {
        host.ask("s", "Well?").await;
        let stats = host.stats("s").await;
        assert_eq!(stats.size_basis.unwrap().last_input_tokens, 5_000, "before: {change}");
        assert_eq!(stats.used.unwrap().basis(), TokenBasis::Actual);
        if change == "compact" {
            let request = pb::CompactRequest {
                session_id: "s".to_owned(),
                strategy: pb::CompactionStrategy::MiddleRemoval.into(),
                target_tokens: 4_000,
                wait: true,
                ..Default::default()
            };
            let made = host.contexts().compact(request).await.unwrap().into_inner().compaction.unwrap();
            assert_eq!(made.state(), pb::CompactionState::Applied, "{:?}", made.failure);
        } else {
            let request = pb::PruneToolOutputsRequest {
                session_id: "s".to_owned(),
                minimum_tokens: Some(0),
                protect_tokens: Some(0),
                ..Default::default()
            };
            let report = host.contexts().prune_tool_outputs(request).await.unwrap().into_inner().report.unwrap();
            assert!(report.outputs_pruned > 0);
        }
        let stats = host.stats("s").await;
        let used = stats.used.unwrap();
        let basis = stats.size_basis.unwrap();
        assert_eq!((basis.last_input_tokens, basis.last_output_tokens), (0, 0), "after: {change}");
        assert_eq!((basis.new_tokens, used.basis()), (used.tokens, TokenBasis::Heuristic), "after: {change}");
    }
}
