//! ExecuteTurn: what a turn does, step by step, what ends it, what it leaves behind, and what a repeated request gets.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::harness::{
    Host, Options,
    events::{
        PATIENCE, all, closed, completed, content, durable, kind, kinds, messages, next, outline, requested, results,
        said, seqs, turn_id, turn_state, until, until_written, written,
    },
    host::{MODEL, answering, call, finish, refusal, until as eventually},
    requests::{result, tools, turn},
};
use contextd::{
    grpc::{decode, stream::Reader},
    model::{Seq, TenantId},
    pb::{
        self, Admission, CompletionReason, FinishReason, ToolCallCancelReason, ToolOutcome, TurnState, event::Payload,
    },
    turn::execute::Admitted,
};
use futures_util::StreamExt as _;
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

// --- What ends a turn ----------------------------------------------------------------------------------------------

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
    assert_eq!(said(messages(&seen).last().unwrap()), "Done.");
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

/// Row D1
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
async fn an_answer_that_was_cut_short_without_calls_ends_the_turn_with_its_reason() {
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
async fn a_call_that_cannot_run_is_closed_and_the_model_goes_on_with_an_error() {
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
        assert_eq!(said(&stored[3]), format!("So: {words}"), "the model sees why");
    }
}

/// Row D1
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_can_run_are_requested_beside_one_that_cannot() {
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
async fn the_deadline_keeps_what_was_said_so_far() {
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
async fn the_deadline_closes_calls_that_nobody_answers() {
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

// --- What is stored and shown --------------------------------------------------------------------------------------

/// Row D2
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_stored_in_the_order_in_which_they_belong() {
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
    // The second call is answered first: the results are stored in the order of the calls all the same.
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

/// Rows D3 and D21
#[tokio::test(flavor = "multi_thread")]
async fn deltas_come_before_the_commit_and_add_up_to_it() {
    let host = Host::scripted(&[
        json!([
            {"reasoning": "Perhaps there is a look to be had.", "chunk_chars": 5},
            {"text": "Ich sehe nach — gleich ☂.", "chunk_chars": 1},
            {"tool_call": {"name": "look", "arguments": {"where": "everywhere"}}, "chunk_chars": 4},
            {"text": "And on."},
            {"wait_for": "all of it is read"},
        ]),
        json!([{"text": "Done."}, {"wait_for": "the rest is read"}]),
    ])
    .await;
    // Who reads too late gets the message and no deltas of it: the commits wait here until all is read.
    let mut stream = host.execute(asks("s", &["look"], pb::TurnLimits::default())).await;
    let mut seen = until_written(&mut stream, "And on.").await;
    host.release("all of it is read");
    seen.extend(until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await);
    host.submit("s", vec![result(&requested(&seen)[0], "fine")]).await;
    seen.extend(until_written(&mut stream, "Done.").await);
    host.release("the rest is read");
    seen.extend(all(&mut stream).await);
    let written = written(&seen);
    let assistants: Vec<_> = messages(&seen).into_iter().filter(|m| m.role() == pb::Role::Assistant).collect();
    assert_eq!(assistants.len(), 2);
    let parts: usize = assistants.iter().map(|message| message.parts.len()).sum();
    assert_eq!((parts, written.len()), (5, 5));
    for message in &assistants {
        let committed = seen
            .iter()
            .position(|event| matches!(&event.payload, Some(Payload::MessageCommitted(c)) if c.message.as_ref() == Some(*message)))
            .unwrap();
        for (index, part) in message.parts.iter().enumerate() {
            let key = (message.message_id.clone(), i32::try_from(index).unwrap());
            assert_eq!(written.get(&key).map(String::as_str), Some(content(part)), "part {index}");
        }
        let late = seen[committed..].iter().filter(|event| match &event.payload {
            Some(Payload::TextDelta(delta)) => delta.message_id == message.message_id,
            Some(Payload::ReasoningDelta(delta)) => delta.message_id == message.message_id,
            Some(Payload::ToolInputDelta(delta)) => delta.message_id == message.message_id,
            _ => false,
        });
        assert_eq!(late.count(), 0, "a delta behind its commit");
    }
    let kinds: BTreeSet<_> = seen.iter().map(kind).collect();
    for expected in ["text_delta", "reasoning_delta", "tool_input_delta", "thinking"] {
        assert!(kinds.contains(expected), "no {expected}");
    }
    let call = requested(&seen)[0].clone();
    for event in &seen {
        if let Some(Payload::ToolInputDelta(delta)) = &event.payload {
            assert_eq!((delta.call_id.as_str(), delta.tool_name.as_str()), (call.as_str(), "look"));
        }
    }
}

/// Row D3: the stream is opened late on purpose, as on a busy machine.
#[tokio::test(flavor = "multi_thread")]
async fn who_starts_a_turn_misses_none_of_its_words_however_quick_they_are() {
    let host = Host::scripted(&[json!([{"text": "One two three four."}, {"wait_for": "go"}])]).await;
    let engine = &host.replica.engine;
    let (command, options) = decode::execute_turn(turn("s", MODEL, "Hello")).unwrap();
    let Admitted { key, turn, how: _, after, news } = engine.execute(TenantId::new("default"), command).await.unwrap();
    let channel = engine.hub().enter(&key);
    eventually("all of it to be said", || async {
        let open = channel.subscribe().open;
        open.is_some_and(|open| open.parts.first().is_some_and(|(_, text)| text == "One two three four."))
    })
    .await;
    let reader = Reader {
        engine: Arc::clone(engine),
        key,
        only: None,
        ends_with: Some(turn),
        cursor: after,
        over: false,
        replay_until: Seq(0),
        sync: false,
        follow: true,
        options,
        admitted: None,
        news,
    };
    let mut stream = reader.open(64, |event| event);
    let mut seen = Vec::new();
    while kinds(&seen) != ["turn_started", "message_committed", "step_started"] || written(&seen).is_empty() {
        seen.push(tokio::time::timeout(PATIENCE, stream.next()).await.expect("no word came").unwrap().unwrap());
    }
    host.release("go");
    while let Some(Ok(event)) = stream.next().await {
        seen.push(event);
    }
    assert_eq!(kinds(&seen).len(), 6);
    let said: Vec<String> = written(&seen).into_values().collect();
    assert_eq!(said, ["One two three four."]);
}

/// Row D3
#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_gets_the_open_message_whole_and_then_what_follows_it() {
    let host = Host::scripted(&[json!([
        {"reasoning": "Hm."}, {"text": "It is 18 °C"}, {"wait_for": "go"}, {"text": " and sunny. ☂?", "chunk_chars": 1}
    ])])
    .await;
    let mut stream = host.execute(turn("s", MODEL, "Hello")).await;
    let before = until_written(&mut stream, "It is 18 °C").await;
    assert_eq!(outline(&host.messages("s").await), ["USER: \"Hello\""], "nothing is stored before its commit");

    let mut late = host.watch("s", "", 0).await;
    let head = until(&mut late, |payload| matches!(payload, Payload::Sync(_))).await;
    let Some(Payload::Sync(sync)) = &head.last().unwrap().payload else { unreachable!() };
    let open = sync.open_message.clone().unwrap();
    assert_eq!((sync.last_seq, sync.state(), sync.caught_up), (3, pb::SessionState::Running, true));
    assert_eq!(open.role(), pb::Role::Assistant);
    assert_eq!(open.parts.iter().map(content).collect::<Vec<_>>(), ["Hm.", "It is 18 °C"]);
    assert!(durable(&head).iter().all(|event| event.replay));

    host.release("go");
    let rest = until(&mut late, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    let mut text = content(&open.parts[1]).to_owned();
    for event in &rest {
        if let Some(Payload::TextDelta(delta)) = &event.payload {
            assert_eq!((delta.message_id.as_str(), delta.part_index), (open.message_id.as_str(), 1));
            assert_eq!(usize::try_from(delta.byte_offset), Ok(text.len()));
            text.push_str(&delta.text);
        }
    }
    assert_eq!(text, "It is 18 °C and sunny. ☂?");
    assert_eq!(messages(&rest)[0].message_id, open.message_id);
    assert_eq!(said(messages(&rest)[0]), text);
    let own = [before, all(&mut stream).await].concat();
    assert_eq!(seqs(&own), seqs(&[head, rest].concat()));
}

/// Row D21
#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_stored_apart_and_its_tokens_are_counted_apart() {
    let usage = json!({"finish": {"usage": {"input": 50, "output": 30, "reasoning": 12}}});
    let host =
        Host::scripted(&[json!([{"reasoning": "Let me think."}, {"text": "42."}, {"wait_for": "go"}, usage])]).await;
    let mut stream = host.execute(turn("s", MODEL, "Hello")).await;
    let mut seen = until_written(&mut stream, "42.").await;
    host.release("go");
    seen.extend(all(&mut stream).await);
    let stored = host.messages("s").await;
    assert_eq!(outline(&stored)[1], "ASSISTANT: reasoning \"Let me think.\", \"42.\"");
    let shown: String = seen
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::ReasoningDelta(delta)) => Some(delta.text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(shown, "Let me think.");
    let usage = stored[1].response.as_ref().unwrap().usage.clone().unwrap();
    assert_eq!((usage.output_tokens, usage.reasoning_tokens, usage.total_tokens), (30, 12, 80));
    assert_eq!(completed(&seen).result.as_ref().unwrap().total_usage.as_ref().unwrap().reasoning_tokens, 12);
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
    let (step_1, step_2) = ([100, 20, 5, 40, 30, 120], [130, 7, 1, 90, 2, 137]);
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
}

/// Row A2
#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_reported_usage_is_counted_as_a_call_and_as_no_tokens() {
    let host = Host::scripted(&[json!([{"text": "Done."}, {"finish": {"usage": null}}])]).await;
    let seen = host.ask("s", "Hello").await;
    assert_eq!(host.messages("s").await[1].response.as_ref().unwrap().usage, None);
    let total = completed(&seen).result.as_ref().unwrap().total_usage.unwrap();
    assert_eq!(total, pb::UsageTotals { calls: 1, ..pb::UsageTotals::default() });
}

/// Row D24
#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_tool_support_is_told_of_no_tools() {
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

// --- Repeated requests ---------------------------------------------------------------------------------------------

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
    let (own, attached) = (all(&mut first).await, all(&mut again).await);
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
async fn a_request_without_session_finds_the_session_it_made() {
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
async fn a_busy_session_rejects_a_turn_and_says_which_one_runs() {
    let host = Host::scripted(&[json!([{"text": "Well, "}, {"wait_for": "go"}, {"text": "hello."}])]).await;
    let mut stream = host.execute(turn("s", MODEL, "Hello")).await;
    let head = until_written(&mut stream, "Well, ").await;
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

// --- Connections ---------------------------------------------------------------------------------------------------

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
async fn two_turns_of_one_session_have_one_line_of_seqs() {
    let host = Host::with(answering(&[json!([{"text": "Hello {{user}}."}])])).await;
    let first = host.ask("s", "one").await;
    let second = host.ask("s", "two").await;
    assert_eq!((seqs(&first), seqs(&second)), ((1..=6).collect(), (7..=12).collect()));
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    assert_eq!(prompt.transcript.messages().len(), 3, "the second call is given the first turn");
}

// --- Frames --------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_10_000_words_comes_in_a_few_deltas_and_the_first_word_at_once() {
    // Nothing but the size of what waits makes a delta go out, after the first.
    let answer = json!([{"text": "first "}, {"wait_for": "more"}, {"repeat": {"text": "word ", "times": 10_000}}]);
    let options = Options { delta_flush: Duration::from_secs(600), ..answering(&[answer]) };
    let host = Host::with(options).await;
    let mut stream = host.execute(turn("s", MODEL, "Go on.")).await;
    let mut seen = until(&mut stream, |payload| matches!(payload, Payload::TextDelta(_))).await;
    host.release("more");
    seen.extend(all(&mut stream).await);
    let deltas = seen.iter().filter(|event| matches!(event.payload, Some(Payload::TextDelta(_)))).count();
    assert!((2..=20).contains(&deltas), "{deltas} deltas");
    let text: String = written(&seen).into_values().collect();
    assert_eq!(text, format!("first {}", "word ".repeat(10_000)));
}
