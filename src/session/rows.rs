//! What a write adds to a session: events, messages and parts. Where they stand in it is known only
//! when they are written.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::counters::Shift;
use crate::model::{
    Applied, MessageId, ModelResponse, Payload, Role, event::StepPosition, message::StoredPart,
};

/// A message to be written: with its id, and its parts with their sizes, which an `InputMessage`
/// does not have yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// Its id.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// Its content with sizes.
    pub parts: Vec<StoredPart>,
    /// Tokens that the message costs beside its parts.
    pub overhead: u32,
    /// Compactions leave it alone.
    pub pinned: bool,
    /// The host's labels.
    pub metadata: BTreeMap<String, String>,
    /// The model call that produced it.
    pub response: Option<ModelResponse>,
    /// The queued messages that it is made of.
    pub queued: Vec<Applied>,
    /// When an appended message was written. `None` means now.
    pub created_at: Option<Timestamp>,
}

/// A part of a message that another write commits: the result of a call that is not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlyPart {
    /// The message.
    pub message: MessageId,
    /// Its place in it.
    pub position: usize,
    /// The part.
    pub part: StoredPart,
}

/// A message, and the event that commits it.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The position of the event, from 0.
    pub event: usize,
    /// The step that made the message.
    pub step: u32,
    /// It stands for messages that a compaction left out, and belongs to no turn.
    pub is_summary: bool,
    /// The message.
    pub message: NewMessage,
}

/// Rows in the order of their events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    /// The events.
    pub events: Vec<(StepPosition, Payload)>,
    /// The messages that they commit.
    pub messages: Vec<Placed>,
    /// Parts of messages that they do not commit.
    pub early: Vec<EarlyPart>,
    /// Who counted the sizes.
    pub estimator: String,
    /// What the size of a prompt has beside that of the transcript.
    pub offset: i64,
}

impl Rows {
    /// No rows yet.
    pub fn new(estimator: &str, offset: i64) -> Self {
        Self {
            estimator: estimator.to_owned(),
            offset,
            ..Self::default()
        }
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
        self.messages.push(Placed {
            event,
            step: at.step,
            is_summary: false,
            message,
        });
    }

    /// Adds the event of a compaction with the summary that stands in the transcript from there on.
    pub fn summary(&mut self, payload: Payload, summary: NewMessage) {
        self.messages.push(Placed {
            event: self.events.len(),
            step: 0,
            is_summary: true,
            message: summary,
        });
        self.event(payload, StepPosition::default());
    }

    /// Adds a part of a message that another write commits.
    pub fn early_part(&mut self, message: &MessageId, position: usize, part: StoredPart) {
        self.early.push(EarlyPart {
            message: message.clone(),
            position,
            part,
        });
    }

    /// How many events these rows are.
    pub fn count(&self) -> i64 {
        i64::try_from(self.events.len()).unwrap_or(i64::MAX)
    }

    /// All parts, with their messages and their places in them.
    pub fn parts(&self) -> impl Iterator<Item = (&MessageId, usize, &StoredPart)> {
        let committed = self.messages.iter().flat_map(|Placed { message, .. }| {
            let parts = message.parts.iter().enumerate();
            parts.map(|(position, part)| (&message.id, position, part))
        });
        let early = self.early.iter();
        committed.chain(early.map(|it| (&it.message, it.position, &it.part)))
    }

    /// What they change in the counters.
    pub fn shift(&self) -> Shift {
        let mut shift = Shift::default();
        for Placed { message, .. } in &self.messages {
            message.count(&mut shift);
        }
        for early in &self.early {
            count(&early.part, &mut shift);
        }
        shift
    }
}

impl NewMessage {
    /// What it adds to the counters.
    pub fn count(&self, shift: &mut Shift) {
        shift.messages(1, i64::from(self.overhead));
        for part in &self.parts {
            count(part, shift);
        }
    }
}

fn count(StoredPart { size, .. }: &StoredPart, shift: &mut Shift) {
    shift.count(size.category.into(), 1, i64::from(size.tokens));
}
