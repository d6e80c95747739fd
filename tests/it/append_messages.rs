//! AppendMessages: adds messages of a host to the transcript of a session, atomically.

use std::cell::Cell;

use contextd::pb::{self, MessageView, event::Payload, part::Content};
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::json;
use tonic::{Code, Status};

use crate::harness::{
    Host, Options,
    errors::refusal,
    events::{self, completed, content, messages, outline},
    host::{MODEL, answering},
    requests::{result, submit, tool, tools, turn},
    transcripts::{append, calls, check_counters, ids, message, results, says},
};

/// A model that completes each turn immediately.
fn talks() -> Options {
    answering(&[json!([{"text": "Fine."}])])
}

async fn host() -> Host {
    let host = Host::with(talks()).await;
    host.create(session("chat")).await;
    host
}

fn session(id: &str) -> pb::Session {
    pb::Session { session_id: id.to_owned(), model: MODEL.to_owned(), ..pb::Session::default() }
}

fn reason(result: Result<impl std::fmt::Debug, Status>) -> String {
    refusal(&result.unwrap_err()).reason
}

/// A conversation with every kind of message that can be appended.
fn conversation() -> Vec<pb::InputMessage> {
    let part = |content| pb::Part { content: Some(content), ..pb::Part::default() };
    let reasoning = pb::Reasoning { text: "They want to know.".to_owned(), redacted: false };
    let signed = pb::Part {
        provider_metadata_json: r#"{"anthropic":{"signature":"EqQB"}}"#.to_owned(),
        ..part(Content::Reasoning(reasoning))
    };
    let mut asks = calls(&["c1", "c2"]);
    asks.parts.insert(0, signed);
    asks.response = Some(pb::ModelResponse {
        provider: "elsewhere".to_owned(),
        model: "elsewhere/large".to_owned(),
        finish_reason: pb::FinishReason::ToolCalls.into(),
        usage: Some(pb::Usage { input_tokens: 70, output_tokens: 30, total_tokens: 100, ..pb::Usage::default() }),
        elapsed: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        ..pb::ModelResponse::default()
    });
    let mut first = says(pb::Role::User, "What is there?");
    first.create_time = Some(prost_types::Timestamp { seconds: 1_000_000_000, nanos: 0 });
    first.metadata = [("origin".to_owned(), "old".to_owned())].into();
    let mut pinned = says(pb::Role::User, "Never forget this.");
    pinned.pinned = true;
    let refused = message(pb::Role::Assistant, vec![part(Content::Refusal("No.".to_owned()))]);
    let system = says(pb::Role::System, "Be brief.");
    vec![system, first, asks, results(&["c2"]), results(&["c1"]), says(pb::Role::Assistant, "A tree."), pinned, refused]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_appended_conversation_is_stored_listed_and_sent_to_the_model() {
    let host = host().await;
    let appended = host.append("chat", conversation()).await;
    let listed = host.messages("chat").await;
    assert_eq!(ids(&listed), appended.message_ids);
    assert_eq!(listed.iter().map(|message| message.seq).collect::<Vec<_>>(), (1..=8).collect::<Vec<i64>>());
    assert!(listed.iter().all(|message| message.turn_id.is_empty() && message.step == 0));
    for (kept, sent) in listed.iter().zip(conversation()) {
        assert_eq!((kept.role(), kept.pinned, &kept.metadata), (sent.role(), sent.pinned, &sent.metadata));
        assert_eq!(kept.response, sent.response);
        for (kept, sent) in kept.parts.iter().zip(&sent.parts) {
            assert_eq!((content(kept), &kept.provider_metadata_json), (content(sent), &sent.provider_metadata_json));
        }
    }
    assert_eq!(listed[1].create_time, conversation()[1].create_time);
    let Some(Content::ToolResult(answered)) = &listed[3].parts[0].content else { panic!("no result") };
    assert_eq!((answered.tool_name.as_str(), answered.outcome()), ("look", pb::ToolOutcome::Success));
    check_counters(&host.database.client().await, "chat").await;

    let seen = host.ask("chat", "And now?").await;
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    let told: Vec<&str> = prompt.transcript.messages().iter().map(|message| message.id.as_str()).collect();
    assert_eq!(told[..8], appended.message_ids);
    let said = messages(&seen)[0].tokens.as_ref().unwrap().tokens;
    let before = appended.context_tokens.unwrap();
    assert_eq!(i64::from(before.tokens + said), i64::from(prompt.size.tokens));
    assert_eq!(before.basis(), pb::TokenBasis::Heuristic);
}

#[tokio::test(flavor = "multi_thread")]
async fn appended_messages_are_events_without_a_turn_and_reach_remote_readers() {
    let host = host().await;
    let other = host.beside(talks()).await;
    let mut stream = other.watch("chat", "", 0).await;
    events::until(&mut stream, |payload| matches!(payload, Payload::Sync(_))).await;
    let appended = host.append("chat", conversation()).await;
    let mut seen = Vec::new();
    while seen.len() < 8 {
        seen.extend(events::next(&mut stream).await.unwrap().filter(|event| event.seq > 0));
    }
    assert!(seen.iter().all(|event| (event.turn_id.as_str(), event.step, event.attempt) == ("", 0, 0)));
    let committed: Vec<pb::Message> = messages(&seen).into_iter().cloned().collect();
    assert_eq!(ids(&committed), appended.message_ids);
    assert_eq!(committed, host.messages("chat").await);
    assert_eq!(host.session("chat").await.last_seq, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_which_anything_was_replaced_are_flagged() {
    let host = Host::with(talks()).await;
    host.create(session("json")).await;
    let json = r#"[{"role": "user", "content": "half \ud83d of one"}, {"role": "assistant", "content": "whole"},
                   {"role": "user", "content": [{"type": "text", "text": "whole"}, {"type": "text", "text": "\ude00"}]}]"#;
    let request = pb::AppendMessagesRequest {
        session_id: "json".to_owned(),
        messages_json: json.to_owned(),
        messages_format: pb::PromptFormat::OpenaiChat.into(),
        ..pb::AppendMessagesRequest::default()
    };
    host.sessions().append_messages(request).await.unwrap();
    let flags = async |session: &str| {
        let parts = host.messages(session).await.into_iter();
        let parts = parts.flat_map(|message| message.parts);
        parts.map(|part| part.sanitized).collect::<Vec<_>>()
    };
    assert_eq!(flags("json").await, [true, false, false, true]);
    host.create(session("cited")).await;
    let cited = |title: &str| pb::Part {
        content: Some(Content::Text("As they say.".to_owned())),
        citations: vec![pb::Citation { title: title.to_owned(), ..pb::Citation::default() }],
        ..pb::Part::default()
    };
    let said = message(pb::Role::Assistant, vec![cited("They"), cited("Th\0y")]);
    host.append("cited", vec![said]).await;
    assert_eq!(flags("cited").await, [false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn appended_results_are_sanitized_and_truncated_as_in_a_turn() {
    let host = Host::with(talks()).await;
    let mut short = tool("look");
    short.output_limits = Some(pb::ToolOutputLimits { max_lines: 2, ..pb::ToolOutputLimits::default() });
    let tools = pb::ToolSet { host_tools: vec![short], ..pb::ToolSet::default() };
    host.create(pb::Session { tools: Some(tools), ..session("chat") }).await;
    let part =
        |words: &str| pb::Part { content: Some(Content::ToolResult(result("c1", words))), ..pb::Part::default() };
    let answer = message(pb::Role::Tool, vec![part("\u{1b}[31mone\u{1b}[0m\r\ntwo\nthree\0\nfour")]);
    host.append("chat", vec![calls(&["c1"]), answer]).await;
    let listed = host.messages("chat").await;
    let Some(Content::ToolResult(cut)) = &listed[1].parts[0].content else { panic!("no result") };
    assert_eq!(content(&cut.parts[0]), "one\ntwo\n\n[Output truncated - exceeded maximum length]");
    assert!(listed[1].parts[0].sanitized);
    let whole = cut.truncation.as_ref().unwrap().full_output.as_ref().unwrap();
    let request = pb::GetBlobRequest { blob_id: whole.blob_id.clone(), ..pb::GetBlobRequest::default() };
    let (_, bytes) = host.replica.blob(request).await;
    assert_eq!(String::from_utf8(bytes).unwrap(), "one\ntwo\nthree\u{fffd}\nfour");
    let client = host.database.client().await;
    let kept = client.query_one("select count(*) from part_blobs where session_id = 'chat'", &[]).await.unwrap();
    assert_eq!(kept.get::<_, i64>(0), 1);
    check_counters(&client, "chat").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_appended_calls_only_their_results_are_accepted() {
    let host = host().await;
    host.append("chat", vec![says(pb::Role::User, "Look."), calls(&["c1", "c2"])]).await;
    let client = host.database.client().await;
    check_counters(&client, "chat").await;
    let before = host.database.contents(&client).await;
    let open = |status: Status| {
        let refusal = refusal(&status);
        assert_eq!((refusal.code, refusal.reason.as_str()), (Code::FailedPrecondition, "TRANSCRIPT_OPEN"));
        refusal.metadata["call_ids"].clone()
    };
    assert_eq!(open(host.try_execute(turn("chat", MODEL, "Hello")).await.unwrap_err()), "c1,c2");
    let says_on = append("chat", vec![says(pb::Role::User, "Well?")]);
    assert_eq!(open(host.try_append(says_on).await.unwrap_err()), "c1,c2");
    let half = append("chat", vec![results(&["c2"]), says(pb::Role::User, "Well?")]);
    assert_eq!(open(host.try_append(half).await.unwrap_err()), "c1");
    let submitted = refusal(&host.try_submit(submit("chat", vec![result("c1", "seen")])).await.unwrap_err());
    assert_eq!(submitted.fields, [("results[0].call_id".to_owned(), "UNSUPPORTED".to_owned())]);
    assert_eq!(host.database.contents(&client).await, before);
    assert_eq!(host.session("chat").await.state(), pb::SessionState::Idle);

    host.append("chat", vec![results(&["c2"])]).await;
    check_counters(&client, "chat").await;
    assert_eq!(open(host.try_execute(turn("chat", MODEL, "Hello")).await.unwrap_err()), "c1");
    host.append("chat", vec![results(&["c1"]), says(pb::Role::Assistant, "Both.")]).await;
    check_counters(&client, "chat").await;
    completed(&host.ask("chat", "Hello").await);
    check_counters(&client, "chat").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_does_not_fit_is_named_by_its_field() {
    let host = host().await;
    host.append("chat", vec![calls(&["c1"]), results(&["c1"])]).await;
    let user = || says(pb::Role::User, "Hello");
    let pinned = || pb::InputMessage { pinned: true, ..results(&["n"]) };
    let table = [
        (vec![user(), results(&["none"])], "messages[1].parts[0].tool_result.call_id", "UNKNOWN"),
        (vec![results(&["c1"])], "messages[0].parts[0].tool_result.call_id", "CONFLICT"),
        (vec![calls(&["n"]), results(&["n", "n"])], "messages[1].parts[1].tool_result.call_id", "CONFLICT"),
        (vec![calls(&["n", "c1"])], "messages[0].parts[1].tool_call.call_id", "CONFLICT"),
        (vec![calls(&["n", "n"])], "messages[0].parts[1].tool_call.call_id", "CONFLICT"),
        (vec![calls(&["n"]), user()], "messages[0].parts[0].tool_call", "INVALID"),
        (vec![calls(&["n"]), pinned()], "messages[1].pinned", "CONFLICT"),
    ];
    let client = host.database.client().await;
    let before = host.database.contents(&client).await;
    for (messages, field, reason) in table {
        let refused = refusal(&host.try_append(append("chat", messages)).await.unwrap_err());
        assert_eq!(refused.reason, "INVALID_REQUEST", "{field}");
        assert_eq!(refused.fields, [(field.to_owned(), reason.to_owned())]);
    }
    assert_eq!(host.database.contents(&client).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_prepared_before_another_change_is_refused() {
    let host = host().await;
    let versioned = |version| pb::AppendMessagesRequest {
        context_version: version,
        ..append("chat", vec![says(pb::Role::User, "Hello")])
    };
    let now = |status: Status| {
        let refused = refusal(&status);
        assert_eq!((refused.code, refused.reason.as_str()), (Code::Aborted, "CONTEXT_CHANGED"));
        refused.metadata["context_version"].parse::<i64>().unwrap()
    };
    let fresh = now(host.try_append(versioned(99)).await.unwrap_err());
    assert!(fresh > 0, "0 would mean any version");
    let first = host.try_append(versioned(fresh)).await.unwrap().context_version;
    assert!(first > fresh);
    assert_eq!(now(host.try_append(versioned(fresh)).await.unwrap_err()), first);
    host.ask("chat", "And?").await;
    let after_turn = now(host.try_append(versioned(first)).await.unwrap_err());
    assert!(after_turn > first);
    let second = host.try_append(versioned(after_turn)).await.unwrap().context_version;
    assert!(second > after_turn);
    assert!(host.try_append(versioned(0)).await.unwrap().context_version > second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_append_returns_the_first_response_even_concurrently() {
    let host = host().await;
    let other = host.beside(talks()).await;
    let once = |round: usize, words: &str| {
        let call = format!("c{round}");
        pb::AppendMessagesRequest {
            request_id: format!("once-{round}"),
            ..append("chat", vec![says(pb::Role::User, words), calls(&[&call]), results(&[&call])])
        }
    };
    let mut first = None;
    for round in 0..30 {
        let (one, two) = tokio::join!(host.try_append(once(round, "Hello")), other.try_append(once(round, "Hello")));
        let one = one.unwrap();
        let two = two.unwrap();
        assert_eq!(one, two);
        first.get_or_insert(one);
    }
    host.ask("chat", "And?").await;
    assert_eq!(other.try_append(once(0, "Hello")).await.unwrap(), first.unwrap());
    assert_eq!(reason(host.try_append(once(0, "Bye")).await), "IDEMPOTENCY_MISMATCH");
    assert_eq!(host.messages("chat").await.len(), 30 * 3 + 2);
    check_counters(&host.database.client().await, "chat").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn append_is_refused_during_a_turn_with_its_turn_id() {
    let waits = answering(&[json!([{"text": "One"}, {"wait_for": "go"}])]);
    let host = Host::with(waits).await;
    let mut stream = host.execute(turn("chat", MODEL, "Hello")).await;
    let seen = events::until_written(&mut stream, "One").await;
    let refused = refusal(&host.try_append(append("chat", vec![says(pb::Role::User, "Me too")])).await.unwrap_err());
    assert_eq!((refused.code, refused.reason.as_str()), (Code::FailedPrecondition, "TURN_IN_PROGRESS"));
    assert_eq!(refused.metadata["turn_id"], events::turn_id(&seen));
    host.release("go");
    completed(&events::all(&mut stream).await);
    host.append("chat", vec![says(pb::Role::User, "Me too")]).await;
    assert_eq!(outline(&host.messages("chat").await), [r#"USER: "Hello""#, r#"ASSISTANT: "One""#, r#"USER: "Me too""#]);
}

/// Concurrent appends and turns on two replicas, in many rounds: a turn is never interrupted, calls get their results
/// before anything else follows, and every acknowledged message is in the transcript.
#[tokio::test(flavor = "multi_thread")]
async fn appends_and_turns_on_two_replicas_never_interleave() {
    let script = || answering(&[json!([{"tool_call": {"name": "look"}}]), json!([{"text": "Fine."}])]);
    let host = Host::with(script()).await;
    let other = host.beside(script()).await;
    host.create(session("chat")).await;
    let client = host.database.client().await;
    let mut appended = Vec::new();
    let mut ran = 0;
    let mut refused = std::collections::BTreeMap::<String, usize>::new();
    let mut open: Option<String> = None;
    for round in 0..60 {
        let call = format!("c{round}");
        let messages = match &open {
            Some(open) => vec![results(&[open])],
            None if round % 3 == 0 => vec![says(pb::Role::User, "Look."), calls(&[&call])],
            None => vec![says(pb::Role::User, "Hello"), calls(&[&call]), results(&[&call])],
        };
        let leaves_open = open.is_none() && round % 3 == 0;
        // The delay before the turns varies between rounds.
        let run = async |host: &Host| {
            for _ in 0..round % 5 {
                host.session("chat").await;
            }
            let asks = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("chat", MODEL, "Go") };
            let mut stream = host.try_execute(asks).await?;
            events::until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
            Ok::<_, Status>(stream)
        };
        let (mine, one, two) = tokio::join!(host.try_append(append("chat", messages)), run(&host), run(&other));
        for outcome in [one, two] {
            match outcome {
                Ok(mut stream) => {
                    ran += 1;
                    // Another append while the calls are pending.
                    let late = append("chat", vec![says(pb::Role::User, "Late")]);
                    assert_eq!(reason(other.try_append(late).await), "TURN_IN_PROGRESS");
                    check_counters(&client, "chat").await;
                    let pending = client
                        .query_one("select call_id::text from tool_calls where session_id = 'chat' and status = 0", &[])
                        .await
                        .unwrap();
                    host.submit("chat", vec![result(pending.get(0), "seen")]).await;
                    completed(&events::all(&mut stream).await);
                }
                Err(status) => *refused.entry(refusal(&status).reason).or_default() += 1,
            }
        }
        match mine {
            Ok(answer) => {
                appended.extend(answer.message_ids);
                open = leaves_open.then_some(call);
            }
            Err(status) => *refused.entry(format!("append: {}", refusal(&status).reason)).or_default() += 1,
        }
        host.at_rest().await;
        check_counters(&client, "chat").await;
    }
    let between = "select count(*) from messages m join turns t using (tenant_id, session_id)
                    where m.turn_id is null and m.seq between t.first_seq and t.last_seq";
    assert_eq!(client.query_one(between, &[]).await.unwrap().get::<_, i64>(0), 0);
    let listed = host.listed("chat", MessageView::All, 0, false, 0).await;
    let kept: Vec<String> =
        listed.iter().filter(|message| message.turn_id.is_empty()).map(|message| message.message_id.clone()).collect();
    assert_eq!(kept, appended);
    let met = |reason: &str| refused.get(reason).copied().unwrap_or_default();
    assert!(ran > 0 && !appended.is_empty(), "{ran} turns, {refused:?}");
    assert!(met("TURN_IN_PROGRESS") > 0 && met("TRANSCRIPT_OPEN") > 0, "the race was none: {refused:?}");
}

/// Messages of an append: text, calls with their results, calls without results, and results of earlier calls.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Say,
    Call(usize),
    Answer(usize),
    CallAndAnswer(usize),
    Orphan,
    Pin,
}

fn deeds() -> impl Strategy<Value = Vec<Vec<Deed>>> {
    let deed = prop_oneof![
        4 => Just(Deed::Say),
        2 => (1_usize..4).prop_map(Deed::Call),
        3 => (1_usize..4).prop_map(Deed::Answer),
        3 => (1_usize..4).prop_map(Deed::CallAndAnswer),
        1 => Just(Deed::Orphan),
        1 => Just(Deed::Pin),
    ];
    proptest::collection::vec(proptest::collection::vec(deed, 1..5), 1..8)
}

async fn act(host: &Host, client: &tokio_postgres::Client, session_id: &str, appends: &[Vec<Deed>]) {
    host.create(session(session_id)).await;
    let mut made = 0;
    let mut waiting: Vec<String> = Vec::new();
    let mut kept = 0;
    for deeds in appends {
        let mut messages = Vec::new();
        let mut open = waiting.clone();
        let mut fits = true;
        for deed in deeds {
            let mut name = |count: usize| -> Vec<String> {
                made += count;
                (made - count..made).map(|n| format!("c{n}")).collect()
            };
            let refs = |names: &[String]| names.iter().map(String::as_str).map(str::to_owned).collect::<Vec<_>>();
            match *deed {
                Deed::Say | Deed::Pin => {
                    fits &= open.is_empty();
                    let pinned = matches!(deed, Deed::Pin);
                    messages.push(pb::InputMessage { pinned, ..says(pb::Role::User, "Some words") });
                }
                Deed::Call(count) | Deed::CallAndAnswer(count) => {
                    fits &= open.is_empty();
                    let names = name(count);
                    let named: Vec<&str> = names.iter().map(String::as_str).collect();
                    messages.push(calls(&named));
                    if matches!(deed, Deed::CallAndAnswer(_)) {
                        messages.extend(named.iter().rev().map(|call| results(&[call])));
                    } else {
                        open = refs(&names);
                    }
                }
                Deed::Answer(count) => {
                    let answered: Vec<String> = open.drain(..count.min(open.len())).collect();
                    if !answered.is_empty() {
                        messages.push(results(&answered.iter().map(String::as_str).collect::<Vec<_>>()));
                    }
                }
                Deed::Orphan => {
                    fits = false;
                    messages.push(results(&["nobody"]));
                }
            }
        }
        if messages.is_empty() {
            continue;
        }
        let count = messages.len();
        let outcome = host.try_append(append(session_id, messages)).await;
        assert_eq!(outcome.is_ok(), fits, "{deeds:?} of {appends:?}: {outcome:?}");
        if outcome.is_ok() {
            (waiting, kept) = (open, kept + count);
        }
        check_counters(client, session_id).await;
        assert_eq!(host.messages(session_id).await.len(), kept, "{appends:?}");
    }
}

#[test]
fn after_any_appends_counters_equal_a_recount_and_batches_are_closed() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (host, client) = runtime.block_on(async {
        let host = Host::with(talks()).await;
        let client = host.database.client().await;
        (host, client)
    });
    let sessions = Cell::new(0);
    let config =
        ProptestConfig { cases: 25, max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&deeds(), |appends| {
            sessions.set(sessions.get() + 1);
            runtime.block_on(act(&host, &client, &format!("s{}", sessions.get()), &appends));
            Ok(())
        })
        .unwrap();
}
