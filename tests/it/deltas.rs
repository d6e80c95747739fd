//! Streaming of responses: deltas before the commit, the open message for a reader that joins late, and separate
//! reasoning.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::harness::{
    Host, Options,
    events::{
        TEST_TIMEOUT, all, completed, content, durable, extend, kind, kinds, message_text, messages, outline,
        requested, seqs, turn_id, until, until_written, written,
    },
    host::{MODEL, answering, until as eventually},
    requests::{result, tools, turn},
    upstream::{Reply, Upstream, event, finished},
};
use contextd::{
    config::StreamConfig,
    grpc::{decode, stream::Reader},
    model::{Delta, MessageId, Seq, SessionId, SessionKey, TenantId, TurnId, delta::DeltaKind, event::StepPosition},
    pb::{self, event::Payload},
    turn::{
        live::hub::{LiveKind, LiveOutput},
        run::execute::{Admitted, StreamEnd},
    },
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
    // A slow reader gets the message without its deltas, so the commit waits here until all deltas are read.
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
async fn the_caller_gets_every_delta_of_the_turn_it_starts() {
    let host = Host::scripted(&[json!([{"text": "One two three four."}, {"wait_for": "go"}])]).await;
    let engine = &host.replica.engine;
    let (command, options) = decode::decode(turn("s", MODEL, "Hello"), decode::StoredBlobs::new()).unwrap();
    let Admitted { key, stream_end, admission: _, after, subscription } =
        engine.execute(TenantId::new("default"), command, None).await.unwrap();
    let StreamEnd::Turn(turn) = stream_end else { panic!("no turn was started") };
    let channel = engine.live.hub.enter(&key);
    eventually("all of it to be said", || async {
        let open = channel.subscribe().open_message(|_| true);
        open.is_some_and(|open| open.parts.get(&0).is_some_and(|(_, text)| text == "One two three four."))
    })
    .await;
    let reader = Reader {
        engine: Arc::clone(engine),
        key,
        only: None,
        ends_with: Some(turn),
        awaited_message: None,
        cursor: after,
        has_ended: false,
        replay_until: Seq(0),
        sync: false,
        follow: true,
        options,
        admitted: None,
        subscription,
    };
    let mut stream = reader.open(StreamConfig { reader_events: 64, reader_bytes: 64 * 1024 }, |event| event);
    let mut seen = Vec::new();
    while kinds(&seen) != ["turn_started", "message_committed", "step_started"] || written(&seen).is_empty() {
        seen.push(tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.expect("no word came").unwrap().unwrap());
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
async fn a_new_reader_gets_the_open_message_and_then_its_deltas() {
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
    assert_eq!(message_text(messages(&rest)[0]), text);
    let own = [before, all(&mut stream).await].concat();
    assert_eq!(seqs(&own), seqs(&[head, rest].concat()));
}

/// Row D21
#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_stored_and_counted_separately() {
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
async fn a_fast_long_answer_is_sent_in_few_deltas_with_the_first_at_once() {
    // After the first delta, only the size of the pending text triggers a delta.
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

// --- Hidden parts
// --------------------------------------------------------------------------------------------------

/// Reasoning that a service hides, then a response in two words. It continues when "more" and "end" are released.
fn hides_its_reasoning() -> Reply {
    let hidden = json!({"type": "reasoning.encrypted", "data": "c2VjcmV0", "format": "openai-responses-v1", "id": "rs_1", "index": 0});
    Reply::events(event(&json!({"role": "assistant", "content": "", "reasoning_details": [hidden]})))
        .then(event(&json!({"content": "Hello"})))
        .hold("more")
        .then(event(&json!({"content": " world"})))
        .hold("end")
        .then(finished("stop"))
}

/// Row D3: a hidden part has an index and no deltas.
#[tokio::test(flavor = "multi_thread")]
async fn text_after_hidden_reasoning_is_streamed_completely_on_every_replica() {
    let upstream = Upstream::start().await;
    upstream.answer(hides_its_reasoning());
    let host = Host::with(upstream.options("openrouter")).await;
    let other = host.beside(Options::default()).await;
    let mut own = host.execute(turn("s", "main/gpt-4o", "Hello")).await;
    let mut seen = until_written(&mut own, "Hello").await;
    let mut remote = other.watch("s", "", 0).await;
    let mut seen_there = until_written(&mut remote, "Hello").await;
    let mut late = host.watch("s", "", 0).await;
    let head = until(&mut late, |payload| matches!(payload, Payload::Sync(_))).await;
    let Some(Payload::Sync(sync)) = &head.last().unwrap().payload else { unreachable!() };
    let open = sync.open_message.as_ref().expect("an open message");
    let redacted = |part: &pb::Part| matches!(&part.content, Some(pb::part::Content::Reasoning(it)) if it.redacted);
    assert!(redacted(&open.parts[0]), "{:?}", open.parts);
    assert_eq!((open.parts.len(), content(&open.parts[1])), (2, "Hello"));

    let ends = |payload: &Payload| matches!(payload, Payload::TextDelta(delta) if delta.text.ends_with("world"));
    upstream.release("more");
    seen.extend(until(&mut own, ends).await);
    seen_there.extend(until(&mut remote, ends).await);
    let mut seen_late = [head, until(&mut late, ends).await].concat();
    upstream.release("end");
    seen.extend(all(&mut own).await);
    let is_over = |payload: &Payload| matches!(payload, Payload::TurnCompleted(_));
    seen_there.extend(until(&mut remote, is_over).await);
    seen_late.extend(until(&mut late, is_over).await);

    let message = messages(&seen)[1].clone();
    assert!(redacted(&message.parts[0]), "{:?}", message.parts);
    assert_eq!(content(&message.parts[1]), "Hello world");
    let whole: BTreeMap<_, _> = [((message.message_id, 1), "Hello world".to_owned())].into();
    assert_eq!(shown(&seen), whole, "on the replica that runs the turn");
    assert_eq!(shown(&seen_there), whole, "on another replica");
    assert_eq!(shown(&seen_late), whole, "for a reader that came late");
}

/// What a client shows of an unfinished message: the text of the open message plus the deltas. Parts without text are
/// omitted.
fn shown(events: &[pb::Event]) -> BTreeMap<(String, i32), String> {
    let mut shown = BTreeMap::new();
    for event in events {
        if let Some(Payload::Sync(sync)) = &event.payload {
            let open = sync.open_message.iter().flat_map(|open| {
                let parts = open.parts.iter().zip(0..);
                parts.map(|(part, index)| ((open.message_id.clone(), index), content(part).to_owned()))
            });
            shown = open.filter(|(_, text)| !text.is_empty()).collect();
        }
        extend(&mut shown, std::slice::from_ref(event));
    }
    shown
}

// --- Settled messages
// ----------------------------------------------------------------------------------------------

/// The lock for which the read of the turn's owner waits while [`waits`] is in force.
const LOOK: i64 = 7_031;

/// Makes the owner wait for [`LOOK`] before it reads what is committed.
fn waits(sql: &'static str) -> &'static str {
    if sql.starts_with("-- store::turn_read::owned\n") {
        let waiting = format!(
            "with look as materialized (select pg_advisory_xact_lock_shared({LOOK})), found as ({sql})
            select found.* from look, found"
        );
        Box::leak(waiting.into_boxed_str())
    } else {
        sql
    }
}

/// A stream with a heartbeat each second: when one arrives, everything before it was sent.
fn lively() -> Option<pb::StreamOptions> {
    let heartbeat_interval = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    Some(pb::StreamOptions { heartbeat_interval, ..pb::StreamOptions::default() })
}

/// The messages that have deltas.
fn deltas(events: &[pb::Event]) -> BTreeSet<String> {
    written(events).into_keys().map(|(message, _)| message).collect()
}

/// Row D3: the second turn begins while the channel still contains the first response, and its model is called a moment
/// later.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_does_not_stream_the_previous_turns_answer() {
    // The first response blocks until it is seen, so that it is not only shown by its commit.
    let answer = json!([{"reasoning": "Hm."}, {"text": "One two."}, {"wait_for": "seen"}]);
    // No worker cleans up the channel.
    let host =
        Host::with(Options { session_memory: 0, replace: Some(waits), workers: false, ..answering(&[answer]) }).await;
    // A second reader keeps the channel open, as at the end of a long turn.
    host.create(pb::Session { session_id: "s".to_owned(), model: MODEL.to_owned(), ..pb::Session::default() }).await;
    let _keeps = host.watch("s", "", 0).await;
    let mut stream = host.execute(turn("s", "", "Hello")).await;
    let mut first = until_written(&mut stream, "One two.").await;
    host.release("seen");
    first.extend(all(&mut stream).await);
    assert_eq!(deltas(&first).len(), 1);
    let locked = host.database.client().await;
    locked.execute("select pg_advisory_lock($1)", &[&LOOK]).await.unwrap();
    let mut stream = host.execute(pb::ExecuteTurnRequest { stream: lively(), ..turn("s", "", "Again") }).await;
    let mut seen = until(&mut stream, |payload| matches!(payload, Payload::Heartbeat(_))).await;
    assert_eq!(kinds(&seen), ["turn_started", "message_committed", "step_started"]);
    locked.execute("select pg_advisory_unlock($1)", &[&LOOK]).await.unwrap();
    seen.extend(all(&mut stream).await);
    let repeated: Vec<_> = deltas(&first).intersection(&deltas(&seen)).cloned().collect();
    assert_eq!(repeated, Vec::<String>::new(), "a message that was committed before the turn began is streamed again");
}

/// Row D3: a stream that begins after a response was committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_past_a_commit_is_not_sent_its_message_as_open() {
    // No worker cleans up the channel.
    let host = Host::with(Options { workers: false, ..answering(&[json!([{"text": "One two."}])]) }).await;
    let session = pb::Session { session_id: "s".to_owned(), model: MODEL.to_owned(), ..pb::Session::default() };
    host.create(session).await;
    let _keeps = host.watch("s", "", 0).await;
    let seen = host.run(turn("s", "", "Hello")).await;
    let last = *seqs(&seen).last().unwrap();
    let turn = turn_id(&seen);
    let again = async || {
        let request = pb::WatchEventsRequest {
            session_id: "s".to_owned(),
            after_seq: last,
            follow: true,
            stream: lively(),
            ..pb::WatchEventsRequest::default()
        };
        let mut stream = host.turns().watch_events(request).await.unwrap().into_inner();
        let seen = until(&mut stream, |payload| matches!(payload, Payload::Heartbeat(_))).await;
        let Some(Payload::Sync(sync)) = &seen[0].payload else { panic!("no sync") };
        assert_eq!(sync.open_message, None);
        assert_eq!(deltas(&seen), BTreeSet::new());
    };
    again().await;
    // The channel is notified of a commit a moment later than the table: here it still considers the message open.
    let key = SessionKey::new(TenantId::new("default"), SessionId::new("s"));
    let channel = host.replica.engine.live.hub.get(&key).expect("it has a reader");
    let delta = Delta {
        message: MessageId::new(messages(&seen)[1].message_id.clone()),
        part: 0,
        offset: 0,
        text: "One two.".to_owned(),
        kind: DeltaKind::Text,
    };
    let step = durable(&seen).into_iter().find(|event| kind(event) == "step_started").unwrap().seq;
    let now = Instant::now();
    channel.tidy(now);
    channel.tidy(now + Duration::from_secs(1));
    channel.show(LiveOutput {
        after: Seq(step),
        turn: TurnId::new(turn),
        at: StepPosition { step: 1, attempt: 1 },
        kind: LiveKind::Delta(delta),
    });
    again().await;
}
