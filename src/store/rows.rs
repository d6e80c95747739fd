//! The rows of one write: events, messages and parts as columns, the way the shared tail of the
//! statements takes them.

use super::{
    pipeline::Param,
    row::{category_number, role_number},
};
use crate::{
    codec,
    model::{MessageId, Part, Payload, SessionKey, event::StepPosition, message::StoredPart},
    session::rows::{NewMessage, Placed, Rows},
};

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

/// The rows of a write as columns.
#[derive(Debug, Default)]
pub(super) struct RowColumns<'a> {
    kinds: Vec<&'static str>,
    payloads: Vec<Vec<u8>>,
    refs: Vec<String>,
    steps: Vec<i32>,
    attempts: Vec<i32>,
    message_events: Vec<i32>,
    message_ids: Vec<&'a str>,
    message_roles: Vec<i16>,
    message_steps: Vec<i32>,
    message_tokens: Vec<i32>,
    message_pinned: Vec<bool>,
    message_infos: Vec<Vec<u8>>,
    part_messages: Vec<&'a str>,
    part_positions: Vec<i32>,
    part_kinds: Vec<String>,
    part_calls: Vec<Option<String>>,
    part_names: Vec<Option<String>>,
    part_outcomes: Vec<Option<i16>>,
    part_bodies: Vec<String>,
    part_rests: Vec<Option<Vec<u8>>>,
    part_tokens: Vec<i32>,
    part_categories: Vec<i16>,
    estimator: &'a str,
    offset: i64,
}

impl<'a> From<&'a Rows> for RowColumns<'a> {
    fn from(rows: &'a Rows) -> Self {
        let mut columns = Self {
            estimator: &rows.estimator,
            offset: rows.offset,
            ..Self::default()
        };
        for (at, payload) in &rows.events {
            columns.event(*at, payload);
        }
        for placed in &rows.messages {
            columns.message(placed);
        }
        for (message, position, part) in rows.parts() {
            columns.part(message, position, part);
        }
        columns
    }
}

impl<'a> RowColumns<'a> {
    fn event(&mut self, at: StepPosition, payload: &Payload) {
        let codec::event::Encoded {
            kind,
            refs,
            payload,
        } = codec::event::encode(payload);
        self.kinds.push(kind);
        self.payloads.push(payload);
        self.refs.push(refs.into_iter().next().unwrap_or_default());
        self.steps.push(signed(at.step));
        self.attempts.push(signed(at.attempt));
    }

    fn message(
        &mut self,
        Placed {
            event,
            step,
            message,
        }: &'a Placed,
    ) {
        self.message_events
            .push(i32::try_from(event + 1).unwrap_or(i32::MAX));
        self.message_ids.push(message.id.as_str());
        self.message_roles.push(role_number(message.role));
        self.message_steps.push(signed(*step));
        self.message_tokens.push(signed(message.overhead));
        self.message_pinned.push(message.pinned);
        self.message_infos.push(message_info(message));
    }

    fn part(&mut self, message: &'a MessageId, position: usize, part: &StoredPart) {
        let StoredPart {
            part,
            size,
            estimator: _,
            pruned: _,
        } = part;
        let row = part_row(part);
        self.part_messages.push(message.as_str());
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
    pub(super) fn values<'v>(&'v self, key: &'v Key) -> Vec<(&'static str, Param<'v>)> {
        let values: [Param<'v>; 26] = [
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

/// What a message's row has beside its columns.
pub(super) fn message_info(message: &NewMessage) -> Vec<u8> {
    codec::message::encode_info(&codec::message::MessageInfo {
        response: message.response.clone(),
        metadata: message.metadata.clone(),
        queued: message.queued.clone(),
    })
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
