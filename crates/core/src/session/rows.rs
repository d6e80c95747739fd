//! Rows that a write adds to a session: events, messages and parts. Their seqs are assigned when they are written.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::counters::TokenCounters;
use crate::model::{AppliedMessage, MessageId, ModelResponse, Payload, Role, event::StepPosition, message::StoredPart};

/// A message to be written, with its id and the sizes of its parts, which an `InputMessage` does not have yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    pub id: MessageId,
    pub role: Role,
    /// The content with sizes.
    pub parts: Vec<StoredPart>,
    /// Tokens of the message in addition to its parts.
    pub overhead: u32,
    /// Compactions do not replace the message.
    pub pinned: bool,
    /// Labels set by the host.
    pub metadata: BTreeMap<String, String>,
    /// The model call that produced it.
    pub response: Option<ModelResponse>,
    /// The queued messages that were merged into it.
    pub queued: Vec<AppliedMessage>,
    /// When an appended message was written. `None` means now.
    pub created_at: Option<Timestamp>,
}

/// The result of a tool call that is not executed. It is stored before the message that contains it is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlyPart {
    /// The message, which a later write commits.
    pub message: MessageId,
    /// Index of the part in the message.
    pub position: usize,
    pub part: StoredPart,
}

/// A message, and the event that commits it.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageRow {
    /// Index of the event in [`Rows::events`].
    pub event: usize,
    /// The step that created the message.
    pub step: u32,
    /// It is a summary that replaces messages, and belongs to no turn.
    pub is_summary: bool,
    pub message: NewMessage,
}

/// Rows in the order of their events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    pub events: Vec<(StepPosition, Payload)>,
    /// The messages that the events commit.
    pub messages: Vec<MessageRow>,
    /// Parts of messages that are committed later.
    pub early: Vec<EarlyPart>,
    /// Name of the estimator that counted the sizes.
    pub estimator: String,
    /// Tokens to add to the transcript's tokens to get the size of a prompt.
    pub offset: i64,
}

impl Rows {
    /// Creates an empty set of rows.
    pub fn new(estimator: &str, offset: i64) -> Self {
        Self { estimator: estimator.to_owned(), offset, ..Self::default() }
    }

    /// Adds an event.
    pub fn event(&mut self, payload: Payload, at: StepPosition) {
        self.events.push((at, payload));
    }

    /// Adds a message with the event that commits it.
    pub fn message(&mut self, message: NewMessage, at: StepPosition) {
        let event = self.events.len();
        let id = message.id.clone();
        self.event(Payload::MessageCommitted { message: id }, at);
        self.messages.push(MessageRow { event, step: at.step, is_summary: false, message });
    }

    /// Adds the event of a compaction, with the summary that becomes part of the transcript.
    pub fn summary(&mut self, payload: Payload, summary: NewMessage) {
        self.messages.push(MessageRow { event: self.events.len(), step: 0, is_summary: true, message: summary });
        self.event(payload, StepPosition::default());
    }

    /// Adds a part of a message that is not committed yet.
    pub fn early_part(&mut self, message: &MessageId, position: usize, part: StoredPart) {
        self.early.push(EarlyPart { message: message.clone(), position, part });
    }

    /// The number of events.
    pub fn count(&self) -> i64 {
        i64::try_from(self.events.len()).unwrap_or(i64::MAX)
    }

    /// All parts, with their messages and their indexes.
    pub fn parts(&self) -> impl Iterator<Item = (&MessageId, usize, &StoredPart)> {
        let committed = self.messages.iter().flat_map(|MessageRow { message, .. }| {
            let parts = message.parts.iter().enumerate();
            parts.map(|(position, part)| (&message.id, position, part))
        });
        let early = self.early.iter();
        committed.chain(early.map(|it| (&it.message, it.position, &it.part)))
    }

    /// The changes that these rows make to the session's counters.
    pub fn shift(&self) -> TokenCounters {
        let mut shift = TokenCounters::default();
        for MessageRow { message, .. } in &self.messages {
            message.count(&mut shift);
        }
        for early in &self.early {
            count(&early.part, &mut shift);
        }
        shift
    }
}

impl NewMessage {
    /// Adds the message to the counters.
    pub fn count(&self, shift: &mut TokenCounters) {
        shift.messages(1, i64::from(self.overhead));
        for part in &self.parts {
            count(part, shift);
        }
    }
}

fn count(StoredPart { size, .. }: &StoredPart, shift: &mut TokenCounters) {
    shift.count(size.category.into(), 1, i64::from(size.tokens));
}
