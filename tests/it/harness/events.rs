//! Reading streams of events.

use std::time::Duration;

use contextd::pb::{self, event::Payload};
use tonic::{Status, Streaming};

/// No test waits longer than this for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A stream's message that carries an event.
pub trait Carrier {
    /// The event.
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

/// The next event; none at the end of the stream.
pub async fn next<T: Carrier>(stream: &mut Streaming<T>) -> Result<Option<pb::Event>, Status> {
    let message = tokio::time::timeout(PATIENCE, stream.message()).await.expect("the stream fell silent")?;
    Ok(message.map(Carrier::event))
}

/// Everything until the stream ends.
pub async fn all<T: Carrier>(stream: &mut Streaming<T>) -> Vec<pb::Event> {
    let mut events = Vec::new();
    while let Some(event) = next(stream).await.unwrap() {
        events.push(event);
    }
    events
}

/// Everything up to and including the first event that `wanted` accepts.
pub async fn until<T: Carrier>(stream: &mut Streaming<T>, wanted: impl Fn(&Payload) -> bool) -> Vec<pb::Event> {
    let mut events = Vec::new();
    loop {
        let event = next(stream).await.unwrap().expect("the stream ended too early");
        let found = event.payload.as_ref().is_some_and(&wanted);
        events.push(event);
        if found {
            return events;
        }
    }
}

/// The durable ones.
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

/// The kind of an event, as the proto names it, e.g. `turn_started`.
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
        Payload::ToolCallCompleted(_) => "tool_call_completed",
        Payload::ToolCallCancelled(_) => "tool_call_cancelled",
        Payload::ActionRequired(_) => "action_required",
        Payload::UsageRecorded(_) => "usage_recorded",
        Payload::TurnRetrying(_) => "turn_retrying",
        Payload::TurnRecovered(_) => "turn_recovered",
        Payload::TurnCompleted(_) => "turn_completed",
        Payload::TurnCancelled(_) => "turn_cancelled",
        Payload::TurnFailed(_) => "turn_failed",
        Payload::Thinking(_) => "thinking",
        other => panic!("an event that this version does not send: {other:?}"),
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
pub fn said(message: &pb::Message) -> String {
    message
        .parts
        .iter()
        .filter_map(|part| match &part.content {
            Some(pb::part::Content::Text(text)) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}
