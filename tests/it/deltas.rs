//! The words of an answer on their way: deltas before the commit, the open message for who comes late, reasoning apart.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::harness::{
    Host, Options,
    events::{
        PATIENCE, all, completed, content, durable, kind, kinds, messages, outline, requested, said, seqs, until,
        until_written, written,
    },
    host::{MODEL, answering, until as eventually},
    requests::{result, tools, turn},
};
use contextd::{
    grpc::{
        decode,
        stream::{Reader, Waiting},
    },
    model::{Seq, TenantId},
    pb::{self, event::Payload},
    turn::execute::{Admitted, Follows},
};
use futures_util::StreamExt as _;
use serde_json::json;

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
    let asks = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Go on.") };
    // Who reads too late gets the message and no deltas of it: the commits wait here until all is read.
    let mut stream = host.execute(asks).await;
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
    let (command, options) = decode::execute_turn(turn("s", MODEL, "Hello"), decode::Stored::new()).unwrap();
    let Admitted { key, follows, how: _, after, news } =
        engine.execute(TenantId::new("default"), command).await.unwrap();
    let Follows::Turn(turn) = follows else { panic!("no turn was started") };
    let channel = engine.hub().enter(&key);
    eventually("all of it to be said", || async {
        let open = channel.subscribe().so_far(|_| true);
        open.is_some_and(|open| open.parts.first().is_some_and(|(_, text)| text == "One two three four."))
    })
    .await;
    let reader = Reader {
        engine: Arc::clone(engine),
        key,
        only: None,
        ends_with: Some(turn),
        awaits: None,
        cursor: after,
        over: false,
        replay_until: Seq(0),
        sync: false,
        follow: true,
        options,
        admitted: None,
        news,
    };
    let mut stream = reader.open(Waiting { events: 64, bytes: 64 * 1024 }, |event| event);
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
