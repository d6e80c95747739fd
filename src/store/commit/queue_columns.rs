//! Changes to the queue, as parameters of a commit.

use crate::{
    model::{Delivery, MessageId, RequestId},
    session::queue_rows::{NewQueuedMessage, QueueChange, QueueEnd, RemovedMessage, Withdrawal},
    store::{
        pipeline::Param,
        queue_numbers::{APPLIED, delivery_number, reason_number, withdrawn_status},
    },
};

/// All columns of a change to the queue.
pub(super) struct QueueColumns<'a> {
    joins: JoiningColumns<'a>,
    leaving: LeavingColumns<'a>,
    hurried: Vec<&'a str>,
    asap: i16,
    calmed: Vec<&'a str>,
}

impl<'a> From<&'a QueueChange<'_>> for QueueColumns<'a> {
    fn from(change: &'a QueueChange<'_>) -> Self {
        let QueueChange { added: joins, removed: leave, promoted_to_asap: hurried, cleared_turn_starts: calmed } =
            change;
        Self {
            joins: JoiningColumns::from(*joins),
            leaving: LeavingColumns::from(leave.as_slice()),
            hurried: hurried.iter().map(MessageId::as_str).collect(),
            asap: delivery_number(Delivery::Asap),
            calmed: calmed.iter().map(MessageId::as_str).collect(),
        }
    }
}

impl QueueColumns<'_> {
    pub(super) fn values(&self) -> Vec<(&'static str, Param<'_>)> {
        let mut values = self.joins.values().to_vec();
        values.extend(self.leaving.values());
        values.extend([("hurried", &self.hurried as Param<'_>), ("asap", &self.asap), ("calmed", &self.calmed)]);
        values
    }

    /// Whether the named statement has something to write. Returns `None` if the statement does not belong to these
    /// columns.
    pub(super) fn need(&self, statement: &str) -> Option<bool> {
        match statement {
            "queued" => Some(self.joins.joins),
            "leave_queue" => Some(!self.leaving.ids.is_empty()),
            "hurry" => Some(!self.hurried.is_empty()),
            "calm" => Some(!self.calmed.is_empty()),
            _ => None,
        }
    }
}

#[derive(Default)]
struct JoiningColumns<'a> {
    joins: bool,
    message: &'a str,
    body: &'a [u8],
    delivery: i16,
    starts_turn: bool,
    from_execute: bool,
    execute: Option<&'a [u8]>,
    ttl: Option<f64>,
    request: Option<&'a str>,
}

impl<'a> From<Option<NewQueuedMessage<'a>>> for JoiningColumns<'a> {
    fn from(joins: Option<NewQueuedMessage<'a>>) -> Self {
        let Some(NewQueuedMessage { message, body, blobs: _, delivery, starts_turn, execute, ttl, request }) = joins
        else {
            return Self::default();
        };
        Self {
            joins: true,
            message: message.as_str(),
            body,
            delivery: delivery_number(delivery),
            starts_turn,
            from_execute: execute.is_some(),
            execute,
            ttl: ttl.map(|ttl| ttl.as_secs_f64()),
            request: request.map(RequestId::as_str),
        }
    }
}

impl JoiningColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 8] {
        [
            ("queued", &self.message),
            ("queued_body", &self.body),
            ("queued_delivery", &self.delivery),
            ("starts_turn", &self.starts_turn),
            ("from_execute", &self.from_execute),
            ("execute", &self.execute),
            ("ttl", &self.ttl),
            ("queued_by", &self.request),
        ]
    }
}

#[derive(Default)]
struct LeavingColumns<'a> {
    ids: Vec<&'a str>,
    statuses: Vec<i16>,
    events: Vec<i32>,
    into: Vec<Option<&'a str>>,
    reasons: Vec<Option<i16>>,
}

impl<'a> From<&'a [RemovedMessage]> for LeavingColumns<'a> {
    fn from(leaving: &'a [RemovedMessage]) -> Self {
        let mut columns = Self::default();
        for RemovedMessage { message, end, event } in leaving {
            let (status, into, reason) = match end {
                QueueEnd::Applied(into) => (APPLIED, Some(into.as_str()), None),
                QueueEnd::Withdrawn(why) => (withdrawn_status(*why), None, dropped_for(*why)),
            };
            columns.ids.push(message.as_str());
            columns.statuses.push(status);
            columns.events.push(i32::try_from(*event).unwrap_or(i32::MAX));
            columns.into.push(into);
            columns.reasons.push(reason);
        }
        columns
    }
}

impl LeavingColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 5] {
        [
            ("leaving", &self.ids),
            ("leaving_statuses", &self.statuses),
            ("leaving_events", &self.events),
            ("leaving_into", &self.into),
            ("drop_reasons", &self.reasons),
        ]
    }
}

fn dropped_for(why: Withdrawal) -> Option<i16> {
    match why {
        Withdrawal::Dropped(reason) => Some(reason_number(reason)),
        Withdrawal::Cancelled | Withdrawal::Expired => None,
    }
}
