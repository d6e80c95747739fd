//! The rows of one write: events, messages and parts as columns, the way the shared tail of the
//! statements takes them.

use super::{
    pipeline::Param,
    row::{category_number, role_number},
};
use crate::{
    codec,
    model::{
        Applied, MessageId, ModelResponse, Part, Payload, Role, SessionKey, event::StepPosition,
        message::StoredPart,
    },
};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// The names of the parameters that the rows of a write are.
pub const PARAMETERS: [&str; 26] = [
    "tenant",
    "session",
    "kinds",
    "payloads",
    "refs",
    "steps",
    "attempts",
    "message_events",
    "message_ids",
    "message_roles",
    "message_steps",
    "message_tokens",
    "message_pinned",
    "message_infos",
    "part_messages",
    "part_positions",
    "part_kinds",
    "part_calls",
    "part_names",
    "part_outcomes",
    "part_bodies",
    "part_rests",
    "part_tokens",
    "part_categories",
    "estimator",
    "offset",
];

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

/// Rows in the order of their events. Positions in the session are given by the statement that
/// writes them.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    kinds: Vec<&'static str>,
    payloads: Vec<Vec<u8>>,
    refs: Vec<String>,
    steps: Vec<i32>,
    attempts: Vec<i32>,
    message_events: Vec<i32>,
    message_ids: Vec<String>,
    message_roles: Vec<i16>,
    message_steps: Vec<i32>,
    message_tokens: Vec<i32>,
    message_pinned: Vec<bool>,
    message_infos: Vec<Vec<u8>>,
    part_messages: Vec<String>,
    part_positions: Vec<i32>,
    part_kinds: Vec<String>,
    part_calls: Vec<Option<String>>,
    part_names: Vec<Option<String>>,
    part_outcomes: Vec<Option<i16>>,
    part_bodies: Vec<String>,
    part_rests: Vec<Option<Vec<u8>>>,
    part_tokens: Vec<i32>,
    part_categories: Vec<i16>,
    estimator: String,
    offset: i64,
}

impl Rows {
    /// No rows yet. Sizes were counted by `estimator`; `offset` is what the size of a prompt has
    /// beside that of the transcript.
    pub fn new(estimator: &str, offset: i64) -> Self {
        Self {
            estimator: estimator.to_owned(),
            offset,
            ..Self::default()
        }
    }

    /// Adds an event.
    pub fn event(&mut self, payload: &Payload, at: StepPosition) {
        let codec::event::Encoded {
            kind,
            refs,
            payload,
        } = codec::event::encode(payload);
        self.encoded_event(
            kind,
            refs.into_iter().next().unwrap_or_default(),
            payload,
            at,
        );
    }

    /// Adds an event that is encoded already; `reference` is the id it refers to, or empty.
    pub fn encoded_event(
        &mut self,
        kind: &'static str,
        reference: String,
        payload: Vec<u8>,
        at: StepPosition,
    ) {
        self.kinds.push(kind);
        self.payloads.push(payload);
        self.refs.push(reference);
        self.steps.push(signed(at.step));
        self.attempts.push(signed(at.attempt));
    }

    /// Adds a message with the event that commits it.
    pub fn message(&mut self, message: NewMessage, at: StepPosition) {
        let NewMessage {
            id,
            role,
            parts,
            overhead,
            pinned,
            metadata,
            response,
            queued,
            created_at: _,
        } = message;
        self.event(
            &Payload::MessageCommitted {
                message: id.clone(),
            },
            at,
        );
        self.message_events
            .push(i32::try_from(self.kinds.len()).unwrap_or(i32::MAX));
        self.message_ids.push(id.as_str().to_owned());
        self.message_roles.push(role_number(role));
        self.message_steps.push(signed(at.step));
        self.message_tokens.push(signed(overhead));
        self.message_pinned.push(pinned);
        self.message_infos
            .push(codec::message::encode_info(&codec::message::MessageInfo {
                response,
                metadata,
                queued,
            }));
        for (position, part) in parts.iter().enumerate() {
            self.part(&id, position, part);
        }
    }

    /// Adds a part of a message that is committed by another statement: the result of a call that
    /// is not run.
    pub fn early_part(&mut self, message: &MessageId, position: usize, part: &StoredPart) {
        self.part(message, position, part);
    }

    /// How many events these rows are.
    pub fn events(&self) -> i64 {
        i64::try_from(self.kinds.len()).unwrap_or(i64::MAX)
    }

    fn part(&mut self, message: &MessageId, position: usize, part: &StoredPart) {
        let StoredPart {
            part,
            size,
            estimator: _,
            pruned: _,
        } = part;
        let row = part_row(part);
        self.part_messages.push(message.as_str().to_owned());
        self.part_positions
            .push(i32::try_from(position).unwrap_or(i32::MAX));
        self.part_kinds.push(row.kind);
        self.part_calls.push(row.call);
        self.part_names.push(row.name);
        self.part_outcomes.push(row.outcome);
        self.part_bodies.push(row.body);
        self.part_rests.push(row.rest);
        self.part_tokens.push(signed(size.tokens));
        self.part_categories.push(category_number(size.category));
    }

    /// The values of [`PARAMETERS`].
    pub(super) fn values<'a>(&'a self, key: &'a Key) -> Vec<(&'static str, Param<'a>)> {
        let values: [Param<'a>; 26] = [
            &key.tenant,
            &key.session,
            &self.kinds,
            &self.payloads,
            &self.refs,
            &self.steps,
            &self.attempts,
            &self.message_events,
            &self.message_ids,
            &self.message_roles,
            &self.message_steps,
            &self.message_tokens,
            &self.message_pinned,
            &self.message_infos,
            &self.part_messages,
            &self.part_positions,
            &self.part_kinds,
            &self.part_calls,
            &self.part_names,
            &self.part_outcomes,
            &self.part_bodies,
            &self.part_rests,
            &self.part_tokens,
            &self.part_categories,
            &self.estimator,
            &self.offset,
        ];
        PARAMETERS.into_iter().zip(values).collect()
    }

    /// Whether a statement of that name has a row to write.
    pub(super) fn need(&self, statement: &str) -> bool {
        match statement {
            "store::rows::events" => !self.kinds.is_empty(),
            "store::rows::messages" => !self.message_ids.is_empty(),
            "store::rows::parts" => !self.part_messages.is_empty(),
            "store::rows::context" => {
                !self.message_ids.is_empty() || !self.part_messages.is_empty()
            }
            "store::rows::media" => self.part_kinds.iter().any(|kind| kind == "media"),
            _ => true,
        }
    }
}

/// A session's key as parameters $1 and $2 of a statement.
#[derive(Debug, Clone)]
pub(super) struct Key {
    /// $1
    pub(super) tenant: String,
    /// $2
    pub(super) session: String,
}

impl From<&SessionKey> for Key {
    fn from(key: &SessionKey) -> Self {
        Self {
            tenant: key.tenant.as_str().to_owned(),
            session: key.session.as_str().to_owned(),
        }
    }
}

/// A part as its columns.
pub(super) fn part_row(part: &Part) -> codec::part::PartRow {
    codec::part::to_row(part)
}

/// A count as the database keeps it; what is larger is at its limit.
pub(super) fn signed(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
