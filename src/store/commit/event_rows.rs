//! The events of a change as rows.

use jiff::Timestamp;

use crate::{
    codec::{
        self,
        event::{EncodedEvent, kind},
    },
    model::{
        CallId, MessageId, Payload, Seq, TurnId, UsageTotals,
        event::{StepPosition, StoredEvent, WaitsFor},
    },
    session::{
        change::{Change, Event},
        queue_rows::Withdrawal,
    },
};

/// An event of a change.
pub(super) struct EventRow {
    pub(super) seq: Seq,
    pub(super) at: StepPosition,
    pub(super) event: EncodedEvent,
    /// The number that is stored with the event.
    pub(super) size: Option<i64>,
    /// Whether it belongs to the turn. Events after the end of the turn do not.
    pub(super) of_turn: bool,
    ends_turn: bool,
}

/// The events of a change, in order.
pub(super) fn event_rows(change: &Change<'_>) -> Vec<EventRow> {
    let of_rows = change.rows.iter().flat_map(|rows| {
        rows.events.iter().map(|(at, payload)| {
            let prompt = change.session.context_tokens() + rows.offset;
            let size = matches!(payload, Payload::StepStarted(_)).then_some(prompt);
            (*at, codec::event::encode(payload), size)
        })
    });
    let own = change.events.iter().map(|(at, event)| (*at, encoded(event), size(event)));
    let end = change.seq_of_end();
    let seqs = (change.first_seq().0..).map(Seq);
    seqs.zip(of_rows.chain(own))
        .map(|(seq, (at, event, size))| EventRow {
            seq,
            at,
            event,
            size,
            of_turn: end.is_none_or(|end| seq <= end),
            ends_turn: end == Some(seq),
        })
        .collect()
}

impl EventRow {
    /// The event of this turn, as it is read after a commit at `at`. `totals` is the total usage of the turn.
    pub(super) fn stored(&self, turn: Option<&TurnId>, at: Timestamp, totals: Option<UsageTotals>) -> StoredEvent {
        let EncodedEvent { kind, refs, payload } = &self.event;
        StoredEvent {
            seq: self.seq,
            turn: turn.filter(|_| self.of_turn).cloned(),
            step: self.at.step,
            attempt: self.at.attempt,
            at,
            kind: (*kind).to_owned(),
            refs: refs.clone(),
            size: self.size,
            totals: totals.filter(|_| self.ends_turn),
            payload: payload.clone(),
        }
    }
}

/// The number that is stored with an event.
fn size(event: &Event) -> Option<i64> {
    match event {
        Event::ActionRequired { to_run, .. } => i64::try_from(*to_run).ok(),
        Event::StepStarted { prompt_tokens, .. } => Some(*prompt_tokens),
        Event::TurnRecovered { takeovers, .. } => Some(i64::from(*takeovers)),
        Event::Complete { size, .. } => *size,
        Event::CallCompleted(_)
        | Event::CallRequested { .. }
        | Event::CallCancelled { .. }
        | Event::MessageCommitted(_)
        | Event::CompactionExpired(_)
        | Event::CompactionReverted(_)
        | Event::Withdrawn { .. }
        | Event::TurnEnded { .. } => None,
    }
}

fn encoded(event: &Event) -> EncodedEvent {
    match event {
        Event::CallCompleted(call) => about(kind::TOOL_CALL_COMPLETED, call, Vec::new()),
        Event::CallRequested { call, waits_for, request } => {
            let kind = match waits_for {
                WaitsFor::Result { edited: _ } => kind::TOOL_CALL_REQUESTED,
                WaitsFor::Approval => kind::APPROVAL_REQUESTED,
            };
            about(kind, call, request.clone())
        }
        Event::CallCancelled { call, tool, reason } => EncodedEvent {
            kind: kind::TOOL_CALL_CANCELLED,
            refs: vec![call.to_string(), tool.clone()],
            payload: codec::event::encode_call_cancelled(*reason),
        },
        Event::ActionRequired { calls, .. } => EncodedEvent {
            kind: kind::ACTION_REQUIRED,
            refs: calls.iter().map(CallId::to_string).collect(),
            payload: Vec::new(),
        },
        Event::MessageCommitted(message) => about(kind::MESSAGE_COMMITTED, message, Vec::new()),
        Event::StepStarted { revision, started, .. } => about(kind::STEP_STARTED, revision, started.clone()),
        Event::TurnRecovered { handed_over, .. } => {
            let cause = if *handed_over { kind::HANDED_OVER } else { kind::LEASE_EXPIRED };
            about(kind::TURN_RECOVERED, &cause, Vec::new())
        }
        Event::Complete { payload, .. } => codec::event::encode(payload),
        Event::CompactionExpired(compaction) => {
            about(kind::COMPACTION_FAILED, compaction, codec::event::encode_compaction_lost())
        }
        Event::CompactionReverted(compaction) => about(kind::COMPACTION_REVERTED, compaction, Vec::new()),
        Event::Withdrawn { message, why, payload } => {
            let kind = match why {
                Withdrawal::Cancelled => kind::QUEUED_MESSAGE_CANCELLED,
                Withdrawal::Expired => kind::QUEUED_MESSAGE_EXPIRED,
                Withdrawal::Dropped(_) => kind::QUEUED_MESSAGE_DROPPED,
            };
            about(kind, message, payload.clone())
        }
        Event::TurnEnded { ended, waiting } => {
            let refs = waiting.iter().map(MessageId::to_string).collect();
            EncodedEvent { refs, ..codec::event::encode(ended) }
        }
    }
}

/// An event that refers to one thing.
fn about(kind: &'static str, id: &impl ToString, payload: Vec<u8>) -> EncodedEvent {
    EncodedEvent { kind, refs: vec![id.to_string()], payload }
}
