//! Messages and parts as columns, and the key of a session.

use jiff::Timestamp;

use super::{
    pipeline::Param,
    row::{category_number, role_number},
};
use crate::{
    codec,
    model::{MessageId, Part, Role, SessionKey, message::StoredPart},
    session::{
        change::ResultMessage,
        rows::{MessageRow, NewMessage, Rows},
    },
};

/// Messages as columns.
#[derive(Debug, Default)]
pub(super) struct MessageColumns<'a> {
    /// The number of the event that commits each message, from 1.
    events: Vec<i32>,
    ids: Vec<&'a str>,
    roles: Vec<i16>,
    steps: Vec<i32>,
    tokens: Vec<i32>,
    pinned: Vec<bool>,
    summaries: Vec<bool>,
    times: Vec<Option<Timestamp>>,
    infos: Vec<Vec<u8>>,
    transcript_versions: Vec<Option<i64>>,
}

impl<'a> MessageColumns<'a> {
    /// Adds the messages of these rows. `behind` is the version of the transcript to which the first one was appended.
    pub(super) fn add(&mut self, rows: &'a Rows, mut behind: Option<i64>) {
        for MessageRow { event, step, is_summary, message } in &rows.messages {
            self.push(*event, &message.id, message.role, (*step, message.overhead));
            self.pinned.push(message.pinned);
            self.summaries.push(*is_summary);
            self.times.push(message.created_at);
            self.transcript_versions.push(behind.take());
            self.infos.push(message_info(message));
        }
    }

    /// Adds the message that holds tool results. `event` is the position of its event, from 0.
    pub(super) fn results(&mut self, event: usize, message: &'a ResultMessage) {
        let ResultMessage { id, step, overhead } = message;
        self.push(event, id, Role::Tool, (*step, *overhead));
        self.pinned.push(false);
        self.summaries.push(false);
        self.times.push(None);
        self.transcript_versions.push(None);
        self.infos.push(Vec::new());
    }

    fn push(&mut self, event: usize, id: &'a MessageId, role: Role, (step, overhead): (u32, u32)) {
        self.events.push(i32::try_from(event + 1).unwrap_or(i32::MAX));
        self.ids.push(id.as_str());
        self.roles.push(role_number(role));
        self.steps.push(signed(step));
        self.tokens.push(signed(overhead));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Size in bytes of a message without its parts.
    pub(super) fn info_bytes(&self, message: &str) -> usize {
        let at = self.ids.iter().position(|id| *id == message);
        at.map_or(0, |at| self.infos[at].len())
    }

    pub(super) fn values(&self) -> [(&'static str, Param<'_>); 10] {
        [
            ("message_events", &self.events),
            ("message_ids", &self.ids),
            ("message_roles", &self.roles),
            ("message_steps", &self.steps),
            ("message_tokens", &self.tokens),
            ("message_pinned", &self.pinned),
            ("message_summaries", &self.summaries),
            ("message_times", &self.times),
            ("message_behind", &self.transcript_versions),
            ("message_infos", &self.infos),
        ]
    }
}

/// Bytes counted per part in addition to its content, where pages are limited in bytes.
const PART_BYTES: usize = 64;

/// Parts as columns.
#[derive(Debug, Default)]
pub(super) struct PartColumns<'a> {
    messages: Vec<&'a str>,
    positions: Vec<i32>,
    kinds: Vec<String>,
    calls: Vec<Option<String>>,
    names: Vec<Option<String>>,
    outcomes: Vec<Option<i16>>,
    bodies: Vec<String>,
    rests: Vec<Option<Vec<u8>>>,
    tokens: Vec<i32>,
    categories: Vec<i16>,
}

impl<'a> PartColumns<'a> {
    /// Adds the parts of these rows.
    pub(super) fn add(&mut self, rows: &'a Rows) {
        for (message, position, part) in rows.parts() {
            let position = i32::try_from(position).unwrap_or(i32::MAX);
            self.push((message, position), part);
        }
    }

    /// Adds a part at its place.
    pub(super) fn push(&mut self, (message, position): (&'a MessageId, i32), part: &StoredPart) {
        let StoredPart { part, size, estimator: _, pruned: _ } = part;
        let row = part_row(part);
        self.messages.push(message.as_str());
        self.positions.push(position);
        self.kinds.push(row.kind);
        self.calls.push(row.call);
        self.names.push(row.name);
        self.outcomes.push(row.outcome);
        self.bodies.push(row.body);
        self.rests.push(row.rest);
        self.tokens.push(signed(size.tokens));
        self.categories.push(category_number(size.category));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Size in bytes of the parts of a message, or of the result of a call, as pages count them.
    pub(super) fn bytes_of(&self, id: &str) -> usize {
        self.bytes(id).map(|bytes| bytes + PART_BYTES).sum()
    }

    /// Size in bytes of their content only.
    pub(super) fn content_bytes(&self, id: &str) -> usize {
        self.bytes(id).sum()
    }

    /// Size in bytes of each part of a message, or of the result of a call.
    fn bytes(&self, id: &str) -> impl Iterator<Item = usize> {
        let calls = self.kinds.iter().zip(&self.calls);
        let result_of = calls.map(|(kind, call)| call.as_deref().filter(|_| kind == codec::part::TOOL_RESULT));
        let contents = self.bodies.iter().zip(&self.rests);
        let parts = self.messages.iter().zip(result_of).zip(contents);
        parts
            .filter(move |((message, call), _)| **message == id || *call == Some(id))
            .map(|(_, (body, rest))| body.len() + rest.as_ref().map_or(0, Vec::len))
    }

    /// The media parts, by message and position. The body of a media part is the id of the blob with its content.
    pub(super) fn media(&self) -> impl Iterator<Item = (&'a str, i32, &str)> {
        let places = self.messages.iter().zip(&self.positions);
        let contents = self.kinds.iter().zip(&self.bodies);
        places
            .zip(contents)
            .filter(|(_, (kind, _))| *kind == codec::part::MEDIA)
            .map(|((message, position), (_, blob))| (*message, *position, blob.as_str()))
    }

    pub(super) fn values(&self) -> [(&'static str, Param<'_>); 10] {
        [
            ("part_messages", &self.messages),
            ("part_positions", &self.positions),
            ("part_kinds", &self.kinds),
            ("part_calls", &self.calls),
            ("part_names", &self.names),
            ("part_outcomes", &self.outcomes),
            ("part_bodies", &self.bodies),
            ("part_rests", &self.rests),
            ("part_tokens", &self.tokens),
            ("part_categories", &self.categories),
        ]
    }
}

/// The encoded info column of a message.
pub(super) fn message_info(message: &NewMessage) -> Vec<u8> {
    codec::message::encode_info(&codec::message::MessageInfo {
        response: message.response.clone(),
        metadata: message.metadata.clone(),
        queued: message.queued.clone(),
    })
}

/// The key of a session, usually parameters $1 and $2 of a statement.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) tenant: String,
    pub(super) session: String,
}

impl From<&SessionKey> for Key {
    fn from(key: &SessionKey) -> Self {
        Self { tenant: key.tenant.as_str().to_owned(), session: key.session.as_str().to_owned() }
    }
}

/// The columns of a part.
pub(super) fn part_row(part: &Part) -> codec::part::PartRow {
    codec::part::to_row(part)
}

/// A count as a column value, limited to the maximum of its type.
pub(super) fn signed(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
