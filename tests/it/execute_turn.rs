//! ExecuteTurn: the steps of a turn, the conditions that end it, the state after it, and the response to a repeated
//! request.

use std::time::Duration;

use crate::harness::{
    Host, Options,
    events::{
        all, closed, completed, content, durable, kinds, message_text, messages, next, outline, requested, results,
        seqs, turn_id, turn_state, until, until_written,
    },
    host::{MODEL, answering, call, finish, refusal},
    requests::{result, tools, turn},
};
use contextd::pb::{
    self, Admission, CompletionReason, FinishReason, ToolCallCancelReason, ToolOutcome, TurnState, event::Payload,
};
use serde_json::json;
use tonic::Code;

fn asks(session: &str, names: &[&str], limits: pb::TurnLimits) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(names), limits: Some(limits), ..turn(session, MODEL, "Go on.") }
}

fn fine(call: &pb::ToolCall) -> pb::ToolResult {
    result(&call.call_id, "fine")
}

fn admission(event: &pb::Event) -> Admission {
    match &event.payload {
        Some(Payload::Admitted(admitted)) => admitted.admission(),
        other => panic!("not admitted: {other:?}"),
    }
}

// --- What ends a turn
// ----------------------------------------------------------------------------------------------

/// Row D1
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_with_the_first_answer_without_calls() {
    let host = Host::scripted(&[json!([call("look")]), json!([{"text": "Done."}]), json!([{"text": "Never."}])]).await;
    let seen = host.run_with(asks("s", &["look"], pb::TurnLimits::default()), fine).await;
    let end = completed(&seen);
    assert_eq!(end.reason(), CompletionReason::Stop);
    let result = end.result.as_ref().unwrap();
    assert_eq!((result.step_count, result.finish_reason()), (2, FinishReason::Stop));
    assert_eq!(result.final_message_id, messages(&seen).last().unwrap().message_id);
    assert_eq!(message_text(messages(&seen).last().unwrap()), "Done.");
}

/// Row D1
#[tokio::test(flavor = "multi_thread")]
async fn max_steps_1_with_one_tool_call_stores_the_result_and_stops() {
    let host = Host::scripted(&[json!([call("look")]), json!([{"text": "Never."}])]).await;
    let limits = pb::TurnLimits { max_steps: 1, ..pb::TurnLimits::default() };
    let seen = host.run_with(asks("s", &["look"], limits), fine).await;
    assert_eq!(
        kinds(&seen),
        [
            "turn_started",
            "message_committed",
            "step_started",
            "message_committed",
            "usage_recorded",
            "tool_call_requested",
            "action_required",
            "tool_call_completed",
            "message_committed",
            "turn_completed",
        ]
    );
    assert_eq!(completed(&seen).reason(), CompletionReason::MaxSteps);
    assert_eq!(completed(&seen).result.as_ref().unwrap().step_count, 1);
    assert_eq!(
        outline(&host.messages("s").await),
        ["USER: \"Go on.\"", "ASSISTANT: call look", "TOOL: result look \"fine\""]
    );
    let stored = host.turn("s", &turn_id(&seen)).await;
    assert_eq!((stored.state(), stored.completion_reason()), (TurnState::Completed, CompletionReason::MaxSteps));
    assert_eq!(host.session("s").await.state(), pb::SessionState::Idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_answer_is_continued_by_the_next_step() {
    let host = Host::scripted(&[
        json!([{"text": "I search."}, finish("paused")]),
        json!([{"text": "Found."}]),
        json!([{"text": "Still searching."}, finish("paused")]),
        json!([{"text": "Never."}]),
    ])
    .await;
    let seen = host.ask("s", "Search.").await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let said_in: Vec<(i32, String, FinishReason)> = messages(&seen)
        .into_iter()
        .filter_map(|message| {
            let response = message.response.as_ref()?;
            Some((message.step, message_text(message), response.finish_reason()))
        })
        .collect();
    assert_eq!(
        said_in,
        [(1, "I search.".to_owned(), FinishReason::Paused), (2, "Found.".to_owned(), FinishReason::Stop),]
    );
    let sent = host.replica.scripted.prompts();
    let newest = sent[1].transcript.messages().last().unwrap().role;
    assert_eq!(newest, contextd::model::Role::Assistant, "nothing between");
    let one_step = pb::ExecuteTurnRequest {
        limits: Some(pb::TurnLimits { max_steps: 1, ..pb::TurnLimits::default() }),
        ..turn("s", MODEL, "Once more.")
    };
    let seen = host.run(one_step).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::MaxSteps);
    host.assert_counted("s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_another_provider_runs_are_left_out_and_reported() {
    let host = Host::scripted(&[json!([{"text": "Well."}])]).await;
    let hosted = |provider: &str| pb::ProviderTool {
        provider: provider.to_owned(),
        definition_json: r#"{"type":"web_search"}"#.to_owned(),
    };
    let provider_tools = vec![hosted("scripted"), hosted("anthropic")];
    let asks = pb::ExecuteTurnRequest {
        tools: Some(pb::ToolSet { provider_tools: provider_tools.clone(), ..pb::ToolSet::default() }),
        ..turn("s", MODEL, "Search.")
    };
    let seen = host.run(asks).await;
    let left_out: Vec<&pb::UnsupportedInput> = seen
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::UnsupportedInput(left_out)) => Some(left_out),
            _ => None,
        })
        .collect();
    let [left_out] = left_out[..] else { panic!("one event: {left_out:?}") };
    assert_eq!(left_out.field, "tools.provider_tools");
    assert!(left_out.errors[0].ends_with("the model: anthropic."), "{left_out:?}");
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    assert_eq!(prompt.provider_tools, [r#"{"type":"web_search"}"#]);
}

/// Rows D1 and I11
#[tokio::test(flavor = "multi_thread")]
async fn max_steps_bounds_the_model_calls() {
    let host = Host::scripted(&[json!([call("look")]), json!([call("look")]), json!([call("look")])]).await;
    for most in [2, 3] {
        let session = format!("s{most}");
        let limits = pb::TurnLimits { max_steps: most, ..pb::TurnLimits::default() };
        let seen = host.run_with(asks(&session, &["look"], limits), fine).await;
        assert_eq!(completed(&seen).reason(), CompletionReason::MaxSteps);
        assert_eq!(completed(&seen).result.as_ref().unwrap().step_count, most);
        let begun = kinds(&seen).iter().filter(|kind| **kind == "step_started").count();
        assert_eq!((begun, results(&seen).len()), (most.try_into().unwrap(), most.try_into().unwrap()));
    }
}

/// Row D1
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_an_unfinished_answer_are_closed_and_never_requested() {
    let table = [
        ("length", CompletionReason::Length, FinishReason::Length),
        ("content_filter", CompletionReason::ContentFilter, FinishReason::ContentFilter),
        ("refusal", CompletionReason::ContentFilter, FinishReason::Refusal),
    ];
    for (word, reason, finished) in table {
        let host =
            Host::scripted(&[json!([{"text": "Hm."}, call("look"), finish(word)]), json!([{"text": "Never."}])]).await;
        let seen = host.run(asks("s", &["look"], pb::TurnLimits::default())).await;
        assert_eq!(closed(&seen), [("look".to_owned(), ToolCallCancelReason::Incomplete)], "{word}");
        assert_eq!(requested(&seen), Vec::<String>::new(), "{word}");
        assert_eq!(completed(&seen).reason(), reason, "{word}");
        let stored = host.messages("s").await;
        assert_eq!(stored.len(), 3, "{word}: {:?}", outline(&stored));
        assert_eq!(stored[1].response.as_ref().unwrap().finish_reason(), finished, "{word}");
        let Some(pb::part::Content::ToolResult(closed)) = &stored[2].parts[0].content else { panic!("no result") };
        assert_eq!(closed.outcome(), ToolOutcome::Error, "{word}");
        assert_eq!(host.replica.scripted.prompts().len(), 1, "{word}");
    }
}

/// Row D1
#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_answer_without_calls_ends_the_turn_with_its_reason() {
    let table = [
        ("stop", CompletionReason::Stop),
        ("length", CompletionReason::Length),
        ("content_filter", CompletionReason::ContentFilter),
        ("refusal", CompletionReason::ContentFilter),
    ];
    for (word, reason) in table {
        let host = Host::scripted(&[json!([{"text": "Well"}, finish(word)])]).await;
        let seen = host.ask("s", "Hello").await;
        assert_eq!(completed(&seen).reason(), reason, "{word}");
        assert_eq!(outline(&host.messages("s").await)[1], "ASSISTANT: \"Well\"", "{word}");
    }
}

/// Row D1
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_cannot_run_gets_an_error_result_and_the_turn_continues() {
    let broken = json!({"tool_call": {"name": "look", "raw_arguments": "{\"a\":"}});
    let table = [
        (json!([call("fly")]), "fly", ToolCallCancelReason::UnknownTool, "[There is no tool named fly.]"),
        (
            json!([broken]),
            "look",
            ToolCallCancelReason::Incomplete,
            "[The call was not run: it was not complete, or its arguments are not a JSON object.]",
        ),
    ];
    for (answer, tool, reason, words) in table {
        let host = Host::scripted(&[answer, json!([{"text": format!("So: {{{{result:{tool}}}}}")}])]).await;
        let seen = host.run(asks("s", &["look"], pb::TurnLimits::default())).await;
        assert_eq!(closed(&seen), [(tool.to_owned(), reason)]);
        assert_eq!(requested(&seen), Vec::<String>::new());
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
        let stored = host.messages("s").await;
        let Some(pb::part::Content::ToolResult(closed)) = &stored[2].parts[0].content else { panic!("no result") };
        assert_eq!((closed.outcome(), content(&stored[2].parts[0])), (ToolOutcome::Error, words));
        assert_eq!(message_text(&stored[3]), format!("So: {words}"), "the model sees why");
    }
}

/// Row D1
#[tokio::test(flavor = "multi_thread")]
async fn valid_calls_are_requested_alongside_an_invalid_one() {
    let host = Host::scripted(&[json!([call("fly"), call("look")]), json!([{"text": "Done."}])]).await;
    let seen = host.run_with(asks("s", &["look"], pb::TurnLimits::default()), fine).await;
    assert_eq!(closed(&seen), [("fly".to_owned(), ToolCallCancelReason::UnknownTool)]);
    assert_eq!(requested(&seen).len(), 1);
    assert_eq!(
        outline(&host.messages("s").await),
        [
            "USER: \"Go on.\"",
            "ASSISTANT: call fly, call look",
            "TOOL: result fly \"[There is no tool named fly.]\", result look \"fine\"",
            "ASSISTANT: \"Done.\"",
        ]
    );
}

/// Row D1
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_stops_at_its_token_budget_after_the_results_are_in() {
    let spends = |tokens: i64| json!({"finish": {"reason": "tool_calls", "usage": {"input": tokens, "output": 10}}});
    let host = Host::scripted(&[
        json!([call("look"), spends(40)]),
        json!([call("look"), spends(39)]),
        json!([{"text": "Never."}]),
    ])
    .await;
    for (most, steps) in [(50, 1), (51, 2), (99, 2)] {
        let session = format!("s{most}");
        let limits = pb::TurnLimits { max_total_tokens: most, ..pb::TurnLimits::default() };
        let seen = host.run_with(asks(&session, &["look"], limits), fine).await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Budget, "{most}");
        assert_eq!(completed(&seen).result.as_ref().unwrap().step_count, steps, "{most}");
        assert_eq!(results(&seen).len(), usize::try_from(steps).unwrap(), "{most}");
        assert!(outline(&host.messages(&session).await).last().unwrap().starts_with("TOOL: "), "{most}");
    }
}

/// Row D1
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_timeout_keeps_the_partial_answer() {
    let host = Host::scripted(&[json!([{"text": "So far so good"}, {"wait_for": "never"}])]).await;
    let limits = pb::TurnLimits { turn_timeout: Some(brief(400)), ..pb::TurnLimits::default() };
    let seen = host.run(asks("s", &[], limits)).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Deadline);
    assert_eq!(completed(&seen).result.as_ref().unwrap().finish_reason(), FinishReason::Cancelled);
    let stored = host.messages("s").await;
    assert_eq!(outline(&stored), ["USER: \"Go on.\"", "ASSISTANT: \"So far so good\""]);
    assert_eq!(stored[1].response.as_ref().unwrap().finish_reason(), FinishReason::Cancelled);
    assert_eq!(completed(&seen).result.as_ref().unwrap().final_message_id, stored[1].message_id);
}

/// Row D1
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_timeout_closes_unanswered_calls() {
    let host = Host::scripted(&[json!([call("look")]), json!([{"text": "Never."}])]).await;
    let limits = pb::TurnLimits { turn_timeout: Some(brief(400)), ..pb::TurnLimits::default() };
    let seen = host.run(asks("s", &["look"], limits)).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Deadline);
    assert_eq!(closed(&seen), [("look".to_owned(), ToolCallCancelReason::TurnEnded)]);
    let stored = host.messages("s").await;
    let Some(pb::part::Content::ToolResult(result)) = &stored[2].parts[0].content else { panic!("no result") };
    assert_eq!(result.outcome(), ToolOutcome::Cancelled);
}

fn brief(millis: u64) -> prost_types::Duration {
    Duration::from_millis(millis).try_into().unwrap()
}

// --- What is stored and shown
// --------------------------------------------------------------------------------------

/// Row D2
#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_turn_are_stored_in_order() {
    let host = Host::scripted(&[
        json!([{"text": "First."}, call("look"), call("list")]),
        json!([{"text": "Second."}, call("look")]),
        json!([{"text": "Last."}]),
    ])
    .await;
    let request = pb::ExecuteTurnRequest { tools: tools(&["look", "list"]), ..turn("s", MODEL, "Hello") };
    let mut stream = host.execute(request).await;
    let first = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let calls = requested(&first);
    // The second call gets its result first. The results are still stored in the order of the calls.
    host.submit("s", vec![result(&calls[1], "b")]).await;
    host.submit("s", vec![result(&calls[0], "a")]).await;
    let second = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    host.submit("s", vec![result(&requested(&second)[0], "c")]).await;
    let third = all(&mut stream).await;
    let stored = host.messages("s").await;
    assert_eq!(
        outline(&stored),
        [
            "USER: \"Hello\"",
            "ASSISTANT: \"First.\", call look, call list",
            "TOOL: result look \"a\", result list \"b\"",
            "ASSISTANT: \"Second.\", call look",
            "TOOL: result look \"c\"",
            "ASSISTANT: \"Last.\"",
        ]
    );
    assert_eq!(stored.iter().map(|message| message.step).collect::<Vec<_>>(), [0, 1, 1, 2, 2, 3]);
    let seen = [first, second, third].concat();
    assert_eq!(stored.iter().collect::<Vec<_>>(), messages(&seen), "what was announced is what is stored");
    assert!(stored.is_sorted_by_key(|message| message.seq));
    for event in durable(&seen) {
        if let Some(Payload::MessageCommitted(committed)) = &event.payload {
            assert_eq!(committed.message.as_ref().unwrap().seq, event.seq);
        }
    }
    assert_eq!(seqs(&seen), (1..=seen.iter().map(|event| event.seq).max().unwrap()).collect::<Vec<_>>());
}

/// Rows D22 and A2
#[tokio::test(flavor = "multi_thread")]
async fn usage_is_kept_for_each_message_and_summed_for_turn_and_session() {
    let uses = |usage: serde_json::Value| json!({"finish": {"usage": usage}});
    let host = Host::scripted(&[
        json!([
            call("look"),
            {"finish": {"reason": "tool_calls", "usage":
                {"input": 100, "output": 20, "reasoning": 5, "cache_read": 40, "cache_write": 30}}},
        ]),
        json!([{"text": "Done."}, uses(json!({"input": 130, "output": 7, "reasoning": 1, "cache_read": 90, "cache_write": 2}))]),
    ])
    .await;
    let request = |words| pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, words) };
    let first = host.run_with(request("One"), fine).await;
    let second = host.run_with(request("Two"), fine).await;

    let numbers = |usage: &pb::Usage| {
        let pb::Usage { input_tokens, output_tokens, reasoning_tokens, cache_read_tokens, cache_write_tokens, .. } =
            usage;
        [input_tokens, output_tokens, reasoning_tokens, cache_read_tokens, cache_write_tokens, &usage.total_tokens]
            .map(|number| *number)
    };
    let step_1 = [100, 20, 5, 40, 30, 120];
    let step_2 = [130, 7, 1, 90, 2, 137];
    let stored = host.messages("s").await;
    let usages: Vec<_> =
        stored.iter().filter_map(|message| message.response.as_ref()?.usage.as_ref()).map(numbers).collect();
    assert_eq!(usages, [step_1, step_2, step_1, step_2], "each message has its own call's usage, never a sum");
    for seen in [&first, &second] {
        let recorded: Vec<_> = seen
            .iter()
            .filter_map(|event| match &event.payload {
                Some(Payload::UsageRecorded(recorded)) => Some(recorded),
                _ => None,
            })
            .collect();
        assert_eq!(recorded.iter().map(|r| numbers(r.usage.as_ref().unwrap())).collect::<Vec<_>>(), [step_1, step_2]);
        let assistants = messages(seen).into_iter().filter(|message| message.role() == pb::Role::Assistant);
        assert!(recorded.iter().map(|r| &r.message_id).eq(assistants.map(|message| &message.message_id)));
        for recorded in recorded {
            let estimate = recorded.estimate.as_ref().unwrap();
            assert_eq!(estimate.actual_tokens, recorded.usage.as_ref().unwrap().input_tokens);
            assert_eq!(estimate.error_tokens, estimate.estimated_tokens - estimate.actual_tokens);
        }
        let result = completed(seen).result.as_ref().unwrap();
        assert_eq!(numbers(result.last_step_usage.as_ref().unwrap()), step_2);
        let stored = host.turn("s", &turn_id(seen)).await.result.unwrap().total_usage.unwrap();
        assert_eq!(Some(&stored), result.total_usage.as_ref());
        let pb::UsageTotals { calls, input_tokens, output_tokens, total_tokens, .. } = stored;
        assert_eq!((calls, input_tokens, output_tokens, total_tokens), (2, 230, 27, 257));
        assert_eq!((stored.reasoning_tokens, stored.cache_read_tokens, stored.cache_write_tokens), (6, 130, 32));
    }
    let totals = host
        .database
        .client()
        .await
        .query(
            "select purpose, model, calls, input_tokens, output_tokens, reasoning_tokens, cache_read_tokens,
                    cache_write_tokens from usage_totals where session_id = 's'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(totals.len(), 1);
    assert_eq!((totals[0].get::<_, i16>(0), totals[0].get::<_, &str>(1)), (1, MODEL));
    let sums: Vec<i64> = (2..8).map(|column| totals[0].get(column)).collect();
    assert_eq!(sums, [4, 460, 54, 12, 260, 64]);
    let request =
        pb::GetContextStatsRequest { session_id: "s".to_owned(), model: MODEL.to_owned(), ..Default::default() };
    let stats = host.contexts().get_context_stats(request).await.unwrap();
    let basis = stats.into_inner().stats.unwrap().size_basis.unwrap();
    assert_eq!(basis.last_input_tokens, 130, "the next prompt is counted from the last call, not from a sum");
}

/// Row A2
#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_usage_counts_as_a_call_with_zero_tokens() {
    let host = Host::scripted(&[json!([{"text": "Done."}, {"finish": {"usage": null}}])]).await;
    let seen = host.ask("s", "Hello").await;
    assert_eq!(host.messages("s").await[1].response.as_ref().unwrap().usage, None);
    let total = completed(&seen).result.as_ref().unwrap().total_usage.unwrap();
    assert_eq!(total, pb::UsageTotals { calls: 1, ..pb::UsageTotals::default() });
}

/// Row D24
#[tokio::test(flavor = "multi_thread")]
async fn no_tools_are_sent_to_a_model_without_tool_support() {
    for (supports, expected) in [(false, vec![]), (true, vec!["look".to_owned()])] {
        let script = json!({"tools": supports, "steps": [{"say": [{"text": "Hello."}]}]}).to_string();
        let host = Host::with(Options::default().script("it", script)).await;
        let seen = host.run(asks("s", &["look"], pb::TurnLimits::default())).await;
        let Some(Payload::TurnStarted(started)) = &durable(&seen)[0].payload else { panic!("not started") };
        assert_eq!(started.tool_names, expected);
        let prompts = host.replica.scripted.prompts();
        assert_eq!(prompts.len(), 1);
        assert_eq!(prompts[0].tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>(), expected);
    }
}

// --- Repeated requests
// ---------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_attaches_to_its_turn_while_it_runs_and_after_it_ended() {
    let host = Host::scripted(&[json!([{"text": "Well, "}, {"wait_for": "go"}, {"text": "hello."}])]).await;
    let request = turn("s", MODEL, "Hello");
    let mut first = host.execute(request.clone()).await;
    let head = until_written(&mut first, "Well, ").await;
    assert_eq!(admission(&head[0]), Admission::Started);

    let mut again = host.execute(pb::ExecuteTurnRequest { after_seq: 2, ..request.clone() }).await;
    let replay = until(&mut again, |payload| matches!(payload, Payload::Sync(_))).await;
    assert_eq!(admission(&replay[0]), Admission::Attached);
    assert_eq!((kinds(&replay), seqs(&replay)), (vec!["step_started"], vec![3]));
    assert!(replay.iter().filter(|event| event.seq > 0).all(|event| event.replay));
    host.release("go");
    let own = all(&mut first).await;
    let attached = all(&mut again).await;
    assert_eq!(seqs(&own), [4, 5, 6]);
    assert_eq!(durable(&own), durable(&attached));
    assert_eq!((turn_state(&mut first).await, turn_state(&mut again).await), ("COMPLETED".into(), "COMPLETED".into()));

    for after in 0..=6 {
        let mut ended = host.execute(pb::ExecuteTurnRequest { after_seq: after, ..request.clone() }).await;
        let seen = all(&mut ended).await;
        assert_eq!(admission(&seen[0]), Admission::Attached);
        assert_eq!(seqs(&seen), (after + 1..=6).collect::<Vec<_>>());
        assert!(durable(&seen).iter().all(|event| event.replay));
        assert_eq!(turn_state(&mut ended).await, "COMPLETED");
    }
    let ahead = host.try_execute(pb::ExecuteTurnRequest { after_seq: 7, ..request }).await.unwrap_err();
    let expected = (Code::InvalidArgument, "CURSOR_AHEAD".to_owned(), "6".to_owned());
    assert_eq!(refusal(&ahead, "last_seq"), expected);
    assert_eq!(host.replica.scripted.prompts().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_with_another_body_is_refused_and_changes_nothing() {
    let host = Host::scripted(&[json!([{"text": "Hello."}])]).await;
    let request = turn("s", MODEL, "Hello");
    host.run(request.clone()).await;
    let before = host.database.row_counts().await;
    let other = pb::ExecuteTurnRequest { input: Some(crate::harness::requests::input("Bye")), ..request.clone() };
    let refused = host.try_execute(other).await.unwrap_err();
    let expected = (Code::InvalidArgument, "IDEMPOTENCY_MISMATCH".to_owned(), request.request_id);
    assert_eq!(refusal(&refused, "request_id"), expected);
    assert_eq!(host.database.row_counts().await, before);
}

/// Row F26
#[tokio::test(flavor = "multi_thread")]
async fn eight_identical_requests_at_once_make_one_turn() {
    let host = Host::scripted(&[json!([{"text": "Hello."}])]).await;
    for session in ["s", ""] {
        let mut request = turn(session, MODEL, "Hello");
        request.session = (!session.is_empty()).then(pb::Session::default);
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let mut turns = host.replica.turns().await;
            let request = request.clone();
            running.spawn(async move {
                let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
                all(&mut stream).await
            });
        }
        let streams = running.join_all().await;
        let started = streams.iter().filter(|seen| admission(&seen[0]) == Admission::Started).count();
        let attached = streams.iter().filter(|seen| admission(&seen[0]) == Admission::Attached).count();
        assert_eq!((started, attached), (1, 7), "session {session:?}");
        for seen in &streams {
            assert_eq!(turn_id(seen), turn_id(&streams[0]));
            assert_eq!(seen[0].session_id, streams[0][0].session_id);
            assert_eq!(seqs(seen), [1, 2, 3, 4, 5, 6]);
        }
        assert_eq!(host.messages(&streams[0][0].session_id).await.len(), 2);
    }
    assert_eq!(host.replica.scripted.prompts().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_without_session_id_finds_its_session() {
    let host = Host::scripted(&[json!([{"text": "Hello."}])]).await;
    let request = pb::ExecuteTurnRequest { session: None, ..turn("", MODEL, "Hello") };
    let first = host.run(request.clone()).await;
    let Some(Payload::Admitted(admitted)) = &first[0].payload else { panic!("not admitted") };
    assert!(admitted.session_created);
    let again = host.run(request.clone()).await;
    assert_eq!((&again[0].session_id, turn_id(&again)), (&first[0].session_id, turn_id(&first)));
    let other = host.run(pb::ExecuteTurnRequest { request_id: "another".to_owned(), ..request }).await;
    assert_ne!(other[0].session_id, first[0].session_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_session_refuses_a_turn_and_names_the_running_one() {
    let host = Host::scripted(&[json!([{"wait_for": "go"}, {"text": "Hello."}])]).await;
    let mut stream = host.execute(turn("s", MODEL, "Hello")).await;
    let head = until(&mut stream, |payload| matches!(payload, Payload::Thinking(_))).await; // nothing is written until the model responds
    let before = host.database.row_counts().await;
    let refused = host.try_execute(turn("s", MODEL, "And?")).await.unwrap_err();
    let expected = (Code::FailedPrecondition, "TURN_IN_PROGRESS".to_owned(), turn_id(&head));
    assert_eq!(refusal(&refused, "turn_id"), expected);
    assert_eq!(refusal(&refused, "last_seq").2, "3");
    assert_eq!(host.database.row_counts().await, before);
    host.release("go");
    assert_eq!(completed(&all(&mut stream).await).reason(), CompletionReason::Stop);
    host.ask("s", "And now?").await;
}

// --- Connections
// ---------------------------------------------------------------------------------------------------

/// Row F23
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_stream_changes_nothing() {
    let host = Host::scripted(&[json!([{"text": "Well, "}, {"wait_for": "go"}, {"text": "hello."}])]).await;
    let mut stream = host.execute(turn("s", MODEL, "Hello")).await;
    let first = next(&mut stream).await.unwrap().unwrap();
    assert_eq!(admission(&first), Admission::Started);
    drop(stream);
    host.release("go");
    let mut watch = host.watch("s", &first.turn_id, 0).await;
    let seen = all(&mut watch).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    assert_eq!(seqs(&seen), [1, 2, 3, 4, 5, 6]);
    assert_eq!(outline(&host.messages("s").await), ["USER: \"Hello\"", "ASSISTANT: \"Well, hello.\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trailer_repeats_how_the_turn_ended() {
    let script = json!({"steps": [
        {"when": {"user_contains": "fail"}, "say": [{"error": {"kind": "auth"}}]},
        {"when": {"user_contains": "cancel"}, "say": [{"text": "Well, "}, {"wait_for": "never"}]},
        {"say": [{"text": "Hello."}]},
    ]});
    let host = Host::with(Options::default().script("it", script.to_string())).await;
    for (words, state) in [("Hello", "COMPLETED"), ("fail", "FAILED"), ("cancel", "CANCELLED")] {
        let mut stream = host.execute(turn(words, MODEL, words)).await;
        if words == "cancel" {
            until_written(&mut stream, "Well, ").await;
            host.cancel(words, "").await;
        }
        all(&mut stream).await;
        assert_eq!(turn_state(&mut stream).await, state);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_of_one_session_share_one_seq_sequence() {
    let host = Host::with(answering(&[json!([{"text": "Hello {{user}}."}])])).await;
    let first = host.ask("s", "one").await;
    let second = host.ask("s", "two").await;
    assert_eq!((seqs(&first), seqs(&second)), ((1..=6).collect(), (7..=12).collect()));
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    assert_eq!(prompt.transcript.messages().len(), 3, "the second call is given the first turn");
}
