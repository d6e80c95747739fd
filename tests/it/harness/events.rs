//! Reads streams of events.

use std::{collections::BTreeMap, time::Duration};

use contextd::pb::{self, event::Payload};
use tonic::{Status, Streaming};

/// No test waits longer than this for anything.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream message that carries an event.
pub trait Carrier {
    fn event(self) -> pb::Event;
}

impl Carrier for pb::ExecuteTurnResponse {
    fn event(self) -> pb::Event {
        self.event.unwrap()
    }
}

impl Carrier for pb::WatchEventsResponse {
    fn event(self) -> pb::Event {
        self.event.unwrap()
    }
}

/// The next event. Returns `None` at the end of the stream.
pub async fn next<T: Carrier>(stream: &mut Streaming<T>) -> Result<Option<pb::Event>, Status> {
    let message = tokio::time::timeout(TEST_TIMEOUT, stream.message()).await.expect("the stream fell silent")?;
    Ok(message.map(Carrier::event))
}

/// Fails if a stream sends only heartbeats, for which a test would otherwise wait forever.
#[derive(Debug, Default)]
pub struct HeartbeatGuard(usize);

impl HeartbeatGuard {
    /// Counts heartbeats in a row.
    pub fn check(&mut self, event: &pb::Event) {
        const MOST: usize = 4;
        self.0 = if matches!(event.payload, Some(Payload::Heartbeat(_))) { self.0 + 1 } else { 0 };
        assert!(self.0 < MOST, "nothing but heartbeats");
    }
}

/// All events until the stream ends.
pub async fn all<T: Carrier>(stream: &mut Streaming<T>) -> Vec<pb::Event> {
    let mut events = Vec::new();
    let mut pulse = HeartbeatGuard::default();
    while let Some(event) = next(stream).await.unwrap() {
        pulse.check(&event);
        events.push(event);
    }
    events
}

/// All events up to and including the first event that `wanted` accepts.
pub async fn until<T: Carrier>(stream: &mut Streaming<T>, wanted: impl Fn(&Payload) -> bool) -> Vec<pb::Event> {
    let mut events = Vec::new();
    let mut pulse = HeartbeatGuard::default();
    loop {
        let event = next(stream).await.unwrap().expect("the stream ended too early");
        pulse.check(&event);
        let found = event.payload.as_ref().is_some_and(&wanted);
        events.push(event);
        if found {
            return events;
        }
    }
}

/// The durable events.
pub fn durable(events: &[pb::Event]) -> Vec<&pb::Event> {
    events.iter().filter(|event| event.seq > 0).collect()
}

/// The ids of the calls that were requested, in order.
pub fn requested(events: &[pb::Event]) -> Vec<String> {
    events
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::ToolCallRequested(pending)) => Some(pending.call.as_ref().unwrap().call_id.clone()),
            _ => None,
        })
        .collect()
}

/// The time from each request for a call or approval to its deadline, in the order of the events.
pub fn allowed(events: &[pb::Event]) -> Vec<Duration> {
    let nanos = |time: prost_types::Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    events
        .iter()
        .filter_map(|event| {
            let deadline = match &event.payload {
                Some(Payload::ToolCallRequested(pending)) => pending.deadline?,
                Some(Payload::ApprovalRequested(pending)) => pending.deadline?,
                _ => return None,
            };
            let left = nanos(deadline) - nanos(event.time?);
            Some(Duration::from_nanos(u64::try_from(left).unwrap()))
        })
        .collect()
}

/// The sum of the usage that the events of a turn record.
pub fn accounted<'a>(events: impl IntoIterator<Item = &'a pb::Event>, turn: &str) -> pb::UsageTotals {
    let mut sum = pb::UsageTotals::default();
    for event in events.into_iter().filter(|event| event.turn_id == turn) {
        let Some(Payload::UsageRecorded(call)) = &event.payload else {
            continue;
        };
        sum.calls += 1;
        if let Some(usage) = &call.usage {
            sum.input_tokens += i64::from(usage.input_tokens);
            sum.output_tokens += i64::from(usage.output_tokens);
            sum.reasoning_tokens += i64::from(usage.reasoning_tokens);
            sum.cache_read_tokens += i64::from(usage.cache_read_tokens);
            sum.cache_write_tokens += i64::from(usage.cache_write_tokens);
        }
    }
    sum.total_tokens = sum.input_tokens + sum.output_tokens;
    sum
}

/// The kind of an event by its name in the proto, for example `turn_started`.
pub fn kind(event: &pb::Event) -> &'static str {
    match event.payload.as_ref().expect("an event without payload") {
        Payload::TextDelta(_) => "text_delta",
        Payload::ReasoningDelta(_) => "reasoning_delta",
        Payload::ToolInputDelta(_) => "tool_input_delta",
        Payload::Heartbeat(_) => "heartbeat",
        Payload::Admitted(_) => "admitted",
        Payload::Sync(_) => "sync",
        Payload::TurnStarted(_) => "turn_started",
        Payload::StepStarted(_) => "step_started",
        Payload::MessageCommitted(_) => "message_committed",
        Payload::ToolCallRequested(_) => "tool_call_requested",
        Payload::ApprovalRequested(_) => "approval_requested",
        Payload::ToolCallCompleted(_) => "tool_call_completed",
        Payload::ToolCallCancelled(_) => "tool_call_cancelled",
        Payload::ActionRequired(_) => "action_required",
        Payload::UsageRecorded(_) => "usage_recorded",
        Payload::UnsupportedInput(_) => "unsupported_input",
        Payload::TurnRetrying(_) => "turn_retrying",
        Payload::TurnRecovered(_) => "turn_recovered",
        Payload::ModelSwitched(_) => "model_switched",
        Payload::ModelFallback(_) => "model_fallback",
        Payload::SessionUpdated(_) => "session_updated",
        Payload::MessageQueued(_) => "message_queued",
        Payload::MessagesApplied(_) => "messages_applied",
        Payload::QueuedMessageCancelled(_) => "queued_message_cancelled",
        Payload::QueuedMessageExpired(_) => "queued_message_expired",
        Payload::QueuedMessageDropped(_) => "queued_message_dropped",
        Payload::ContextPruned(_) => "context_pruned",
        Payload::ContextRestored(_) => "context_restored",
        Payload::CompactionStarted(_) => "compaction_started",
        Payload::CompactionCompleted(_) => "compaction_completed",
        Payload::CompactionFailed(_) => "compaction_failed",
        Payload::CompactionReverted(_) => "compaction_reverted",
        Payload::TurnCompleted(_) => "turn_completed",
        Payload::TurnCancelled(_) => "turn_cancelled",
        Payload::TurnFailed(_) => "turn_failed",
        Payload::Thinking(_) => "thinking",
        Payload::Notice(_) => "notice",
    }
}

/// The kinds of the durable events, in order.
pub fn kinds(events: &[pb::Event]) -> Vec<&'static str> {
    durable(events).into_iter().map(kind).collect()
}

/// The committed messages, in order.
pub fn messages(events: &[pb::Event]) -> Vec<&pb::Message> {
    events
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::MessageCommitted(committed)) => committed.message.as_ref(),
            _ => None,
        })
        .collect()
}

/// The text of a message's text parts.
pub fn message_text(message: &pb::Message) -> String {
    message
        .parts
        .iter()
        .filter_map(|part| match &part.content {
            Some(pb::part::Content::Text(text)) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// The turn id of a stream.
pub fn turn_id(events: &[pb::Event]) -> String {
    events.iter().map(|event| event.turn_id.clone()).find(|id| !id.is_empty()).expect("no event of a turn")
}

/// The seqs of the durable events.
pub fn seqs(events: &[pb::Event]) -> Vec<i64> {
    durable(events).into_iter().map(|event| event.seq).collect()
}

/// The last event, which must be `turn_completed`.
pub fn completed(events: &[pb::Event]) -> &pb::TurnCompleted {
    match events.last().and_then(|event| event.payload.as_ref()) {
        Some(Payload::TurnCompleted(completed)) => completed,
        other => panic!("not completed: {other:?}"),
    }
}

/// The last event, which must be `turn_failed`.
pub fn failed(events: &[pb::Event]) -> &pb::TurnFailed {
    match events.last().and_then(|event| event.payload.as_ref()) {
        Some(Payload::TurnFailed(failed)) => failed,
        other => panic!("not failed: {other:?}"),
    }
}

/// The last event, which must be `turn_cancelled`.
pub fn cancelled(events: &[pb::Event]) -> &pb::TurnCancelled {
    match events.last().and_then(|event| event.payload.as_ref()) {
        Some(Payload::TurnCancelled(cancelled)) => cancelled,
        other => panic!("not cancelled: {other:?}"),
    }
}

/// The calls that were closed without being run, with the reason.
pub fn closed(events: &[pb::Event]) -> Vec<(String, pb::ToolCallCancelReason)> {
    events
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::ToolCallCancelled(closed)) => Some((closed.tool_name.clone(), closed.reason())),
            _ => None,
        })
        .collect()
}

/// The results of the completed calls, in order.
pub fn results(events: &[pb::Event]) -> Vec<&pb::ToolResult> {
    events
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::ToolCallCompleted(completed)) => completed.result.as_ref(),
            _ => None,
        })
        .collect()
}

/// The message, part, offset and text of a delta of any kind.
fn piece(event: &pb::Event) -> Option<(&str, i32, i32, &str)> {
    Some(match event.payload.as_ref()? {
        Payload::TextDelta(delta) => (&delta.message_id, delta.part_index, delta.byte_offset, &delta.text),
        Payload::ReasoningDelta(delta) => (&delta.message_id, delta.part_index, delta.byte_offset, &delta.text),
        Payload::ToolInputDelta(delta) => (&delta.message_id, delta.part_index, delta.byte_offset, &delta.text),
        _ => return None,
    })
}

/// The text of all deltas, by message and part. Each delta must begin where the one before it ended.
pub fn written(events: &[pb::Event]) -> BTreeMap<(String, i32), String> {
    let mut written = BTreeMap::new();
    extend(&mut written, events);
    written
}

/// Adds deltas to the text read before.
pub fn extend(written: &mut BTreeMap<(String, i32), String>, events: &[pb::Event]) {
    for (message, part, offset, text) in events.iter().filter_map(piece) {
        let so_far: &mut String = written.entry((message.to_owned(), part)).or_default();
        assert_eq!(usize::try_from(offset), Ok(so_far.len()), "a gap or an overlap before {text:?}");
        so_far.push_str(text);
    }
}

/// Reads until a part has this text: from deltas, from the text that existed when the reader connected, or from a
/// message that was committed before the reader received any of it.
pub async fn until_written<T: Carrier>(stream: &mut Streaming<T>, text: &str) -> Vec<pb::Event> {
    let mut events = Vec::new();
    let mut pulse = HeartbeatGuard::default();
    while !there(&events, text) && !written(&events).values().any(|so_far| so_far == text) {
        let event = next(stream).await.unwrap().expect("the stream ended too early");
        pulse.check(&event);
        events.push(event);
    }
    events
}

fn there(events: &[pb::Event], text: &str) -> bool {
    let whole = events.iter().filter_map(|event| match &event.payload {
        Some(Payload::Sync(sync)) => sync.open_message.as_ref(),
        Some(Payload::MessageCommitted(committed)) => committed.message.as_ref(),
        _ => None,
    });
    whole
        .filter(|message| message.role() == pb::Role::Assistant)
        .flat_map(|message| &message.parts)
        .any(|part| content(part) == text)
}

/// The text of a part of any kind.
pub fn content(part: &pb::Part) -> &str {
    match part.content.as_ref() {
        Some(pb::part::Content::Text(text) | pb::part::Content::Refusal(text)) => text,
        Some(pb::part::Content::Reasoning(reasoning)) => &reasoning.text,
        Some(pb::part::Content::ToolCall(call)) => &call.arguments_json,
        Some(pb::part::Content::ToolResult(result)) => result.parts.first().map_or("", content),
        other => panic!("an unexpected part: {other:?}"),
    }
}

/// The durable events of a turn with two concurrent tool calls and two steps.
pub const TWO_TOOLS: [&str; 15] = [
    "turn_started",
    "message_committed",
    "step_started",
    "message_committed",
    "usage_recorded",
    "tool_call_requested",
    "tool_call_requested",
    "action_required",
    "tool_call_completed",
    "tool_call_completed",
    "message_committed",
    "step_started",
    "message_committed",
    "usage_recorded",
    "turn_completed",
];

/// A summary of a transcript: the role of each message and the content of each part, for example `TOOL: result look
/// "fine"`.
pub fn outline(messages: &[pb::Message]) -> Vec<String> {
    let part = |part: &pb::Part| match &part.content {
        Some(pb::part::Content::ToolCall(call)) => format!("call {}", call.tool_name),
        Some(pb::part::Content::ToolResult(result)) => {
            format!("result {} {:?}", result.tool_name, content(part))
        }
        Some(pb::part::Content::Reasoning(_)) => format!("reasoning {:?}", content(part)),
        _ => format!("{:?}", content(part)),
    };
    let line = |message: &pb::Message| {
        let parts: Vec<String> = message.parts.iter().map(part).collect();
        format!("{}: {}", message.role().as_str_name().trim_start_matches("ROLE_"), parts.join(", "))
    };
    messages.iter().map(line).collect()
}

/// The trailer with the state in which the turn ended, after the stream has ended.
pub async fn turn_state<T: Carrier>(stream: &mut Streaming<T>) -> String {
    let trailers = stream.trailers().await.unwrap().expect("no trailers");
    trailers.get("contextd-turn-state").expect("no contextd-turn-state").to_str().unwrap().to_owned()
}

/// Reads a turn until the host must act. Returns the pending results and approvals of the last event.
pub async fn until_action<T: Carrier>(stream: &mut Streaming<T>) -> (Vec<pb::Event>, [Vec<String>; 2]) {
    let events = until(stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    match events.last().and_then(|event| event.payload.clone()) {
        Some(Payload::ActionRequired(action)) => (events, [action.result_call_ids, action.approval_call_ids]),
        other => panic!("no action is required: {other:?}"),
    }
}

/// The ids of a turn's pending calls: those that wait for a result, and those that wait for an approval.
pub fn pending(turn: &pb::Turn) -> [Vec<String>; 2] {
    let id = |call: &Option<pb::ToolCall>| call.as_ref().expect("a call").call_id.clone();
    [
        turn.pending_calls.iter().map(|pending| id(&pending.call)).collect(),
        turn.pending_approvals.iter().map(|pending| id(&pending.call)).collect(),
    ]
}

/// The ids of all calls in the latest assistant message.
pub fn calls_made(events: &[pb::Event]) -> Vec<String> {
    let last = messages(events).into_iter().rfind(|message| message.role() == pb::Role::Assistant);
    let parts = last.expect("an assistant's message").parts.iter();
    parts
        .filter_map(|part| match &part.content {
            Some(pb::part::Content::ToolCall(call)) => Some(call.call_id.clone()),
            _ => None,
        })
        .collect()
}
