//! Records what happened in a run, in order: calls and output of the host, messages sent to it, faults.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prost::Message as _;
use serde::Deserialize;

use super::frames::Frames;
use contextd_proto as pb;

/// The paths of the RPCs that are decoded.
const EXECUTE: &str = "/contextd.v1.TurnService/ExecuteTurn";
const WATCH: &str = "/contextd.v1.TurnService/WatchEvents";
const SUBMIT: &str = "/contextd.v1.TurnService/SubmitToolResults";

/// A call of the host.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Execute(Box<pb::ExecuteTurnRequest>),
    Watch(pb::WatchEventsRequest),
    Submit(pb::SubmitToolResultsRequest),
    Other,
}

impl Call {
    /// Whether the response is a stream of events.
    pub(super) fn streams(&self) -> bool {
        matches!(self, Self::Execute(_) | Self::Watch(_))
    }
}

/// Decodes a call. Returns `Call::Other` if it cannot be decoded: the server reports the error.
pub(super) fn call(path: &str, body: &[u8]) -> Call {
    let mut frames = Frames::default();
    frames.push(body);
    let message = frames.next().unwrap_or_default();
    let read = match path {
        EXECUTE => pb::ExecuteTurnRequest::decode(message).map(|it| Call::Execute(Box::new(it))),
        WATCH => pb::WatchEventsRequest::decode(message).map(Call::Watch),
        SUBMIT => pb::SubmitToolResultsRequest::decode(message).map(Call::Submit),
        _ => return Call::Other,
    };
    read.unwrap_or(Call::Other)
}

/// A line of the driver's standard output, as described in docs/conformance.md.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Line {
    pub(super) text: Option<String>,
    pub(super) reset: bool,
    pub(super) tool: Option<String>,
    pub(super) call: String,
    pub(super) args: serde_json::Value,
    pub(super) end: Option<End>,
    pub(super) error: Option<String>,
}

/// The end of a turn, as the driver reports it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct End {
    pub(super) state: String,
    pub(super) reason: Option<String>,
    pub(super) text: Option<String>,
    pub(super) turn: Option<String>,
}

/// A record entry.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    /// The host made a call.
    Call(Call),
    /// An event was sent to the host.
    Sent(Box<pb::Event>),
    /// The kit injected a fault. The text describes it and is printed after the word "after".
    Fault(String),
    /// The host's stream fell silent; the host may wait for this long.
    Silent(Duration),
    /// The host closed the silent stream.
    Left,
    /// The driver wrote a line.
    Line(Line),
    /// The driver wrote invalid output.
    Garbage(String),
}

/// Entries with their time since the start of the run.
pub(super) type Entries = Vec<(Duration, Entry)>;

/// The record of a run.
#[derive(Debug)]
pub(super) struct Record {
    start: Instant,
    entries: Mutex<Entries>,
}

impl Record {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), entries: Mutex::default() }
    }

    pub(super) fn push(&self, entry: Entry) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push((self.start.elapsed(), entry));
    }

    /// All entries so far.
    pub(super) fn entries(&self) -> Entries {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.clone()
    }
}

/// The number of events sent to the host.
pub(super) fn sent(entries: &Entries) -> usize {
    let sent = entries.iter();
    sent.filter(|(_, entry)| matches!(entry, Entry::Sent(_))).count()
}
