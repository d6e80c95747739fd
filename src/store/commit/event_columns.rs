//! The events of a change, as parameters of its commit.

use jiff::Timestamp;

use crate::{
    codec::{self, event::kind},
    model::{
        CallId, MessageId, Seq, TurnId, UsageTotals,
        event::{StepPosition, StoredEvent, WaitsFor},
    },
    session::change::{Change, Event},
    store::{pipeline::Param, queue_numbers::withdrawn_kind, rows::signed},
};

/// All columns of the events.
pub(super) struct EventColumns {
    first_seq: i64,
    kinds: Vec<&'static str>,
    payloads: Vec<Vec<u8>>,
    sizes: Vec<Option<i64>>,
    steps: Vec<i32>,
    attempts: Vec<i32>,
    of_turn: Vec<bool>,
    /// The position of the event that ends the turn.
    end: Option<usize>,
    refs: Vec<String>,
    /// The number of the event that each reference belongs to, from 1.
    ref_events: Vec<i32>,
}

impl From<&Change<'_>> for EventColumns {
    fn from(change: &Change<'_>) -> Self {
        let mut columns = Self {
            first_seq: change.first_seq().0,
            kinds: Vec::new(),
            payloads: Vec::new(),
            sizes: Vec::new(),
            steps: Vec::new(),
            attempts: Vec::new(),
            of_turn: Vec::new(),
            end: None,
            refs: Vec::new(),
            ref_events: Vec::new(),
        };
        if let Some(rows) = change.rows {
            for (at, payload) in &rows.events {
                let codec::event::EncodedEvent { kind, refs, payload } = codec::event::encode(payload);
                let prompt = change.session.context_tokens() + rows.offset;
                let size = (kind == kind::STEP_STARTED).then_some(prompt);
                let written = EventRow { kind, refs, size, payload };
                columns.push(*at, written);
            }
        }
        for (at, event) in &change.events {
            columns.push(*at, event_row(event));
        }
        // Events after the end of the turn do not belong to the turn.
        let end = change.seq_of_end();
        columns.end = end.and_then(|end| usize::try_from(end.0 - columns.first_seq).ok());
        let is_of_turn = |at: usize| columns.end.is_none_or(|end| at <= end);
        columns.of_turn = (0..columns.kinds.len()).map(is_of_turn).collect();
        columns
    }
}

impl EventColumns {
    fn push(&mut self, at: StepPosition, EventRow { kind, refs, size, payload }: EventRow) {
        self.kinds.push(kind);
        self.payloads.push(payload);
        self.sizes.push(size);
        self.steps.push(signed(at.step));
        self.attempts.push(signed(at.attempt));
        let n = i32::try_from(self.kinds.len()).unwrap_or(i32::MAX);
        self.ref_events.extend(refs.iter().map(|_| n));
        self.refs.extend(refs);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The events of this turn, as they are read after a commit at `at`. `totals` is the total usage of the turn.
    pub(super) fn stored(&self, turn: Option<&TurnId>, at: Timestamp, totals: Option<UsageTotals>) -> Vec<StoredEvent> {
        let mut refs = self.ref_events.iter().zip(&self.refs).peekable();
        let mut events = Vec::with_capacity(self.kinds.len());
        for (position, (seq, n)) in (self.first_seq..).zip(1..).enumerate().take(self.kinds.len()) {
            let mut own_refs = Vec::new();
            while let Some((_, id)) = refs.next_if(|(event, _)| **event == n) {
                own_refs.push(id.clone());
            }
            events.push(StoredEvent {
                seq: Seq(seq),
                turn: turn.filter(|_| self.of_turn[position]).cloned(),
                step: self.steps[position].unsigned_abs(),
                attempt: self.attempts[position].unsigned_abs(),
                at,
                kind: self.kinds[position].to_owned(),
                refs: own_refs,
                size: self.sizes[position],
                totals: totals.filter(|_| self.end == Some(position)),
                payload: self.payloads[position].clone(),
            });
        }
        events
    }

    pub(super) fn values(&self) -> [(&'static str, Param<'_>); 9] {
        [
            ("first_seq", &self.first_seq),
            ("event_kinds", &self.kinds),
            ("event_payloads", &self.payloads),
            ("event_sizes", &self.sizes),
            ("event_steps", &self.steps),
            ("event_attempts", &self.attempts),
            ("event_of_turn", &self.of_turn),
            ("refs", &self.refs),
            ("ref_events", &self.ref_events),
        ]
    }
}

/// An event as its row stores it.
struct EventRow {
    kind: &'static str,
    refs: Vec<String>,
    size: Option<i64>,
    payload: Vec<u8>,
}

impl EventRow {
    fn new(kind: &'static str, refs: Vec<String>, payload: Vec<u8>) -> Self {
        Self { kind, refs, size: None, payload }
    }

    /// Sets the number that is stored with the event.
    fn sized(self, size: Option<i64>) -> Self {
        Self { size, ..self }
    }
}

fn recovery_cause(handed_over: bool) -> &'static str {
    if handed_over { kind::HANDED_OVER } else { kind::LEASE_EXPIRED }
}

fn event_row(event: &Event) -> EventRow {
    match event {
        Event::CallCompleted(call) => {
            let refs = vec![call.to_string()];
            EventRow::new(kind::TOOL_CALL_COMPLETED, refs, Vec::new())
        }
        Event::CallRequested { call, waits_for, request } => {
            let kind = match waits_for {
                WaitsFor::Result { edited: _ } => kind::TOOL_CALL_REQUESTED,
                WaitsFor::Approval => kind::APPROVAL_REQUESTED,
            };
            EventRow::new(kind, vec![call.to_string()], request.clone())
        }
        Event::CallCancelled { call, tool, reason } => {
            let refs = vec![call.to_string(), tool.clone()];
            let payload = codec::event::encode_call_cancelled(*reason);
            EventRow::new(kind::TOOL_CALL_CANCELLED, refs, payload)
        }
        Event::ActionRequired { calls, to_run } => {
            let refs = calls.iter().map(CallId::to_string).collect();
            EventRow::new(kind::ACTION_REQUIRED, refs, Vec::new()).sized(i64::try_from(*to_run).ok())
        }
        Event::MessageCommitted(message) => {
            let refs = vec![message.to_string()];
            EventRow::new(kind::MESSAGE_COMMITTED, refs, Vec::new())
        }
        Event::StepStarted { revision, prompt_tokens, started } => {
            let refs = vec![revision.to_string()];
            EventRow::new(kind::STEP_STARTED, refs, started.clone()).sized(Some(*prompt_tokens))
        }
        Event::TurnRecovered { handed_over, takeovers } => {
            let cause = recovery_cause(*handed_over).to_owned();
            EventRow::new(kind::TURN_RECOVERED, vec![cause], Vec::new()).sized(Some(i64::from(*takeovers)))
        }
        Event::Complete { payload, size } => {
            let codec::event::EncodedEvent { kind, refs, payload } = codec::event::encode(payload);
            EventRow::new(kind, refs, payload).sized(*size)
        }
        Event::CompactionExpired(compaction) => {
            let refs = vec![compaction.to_string()];
            let lost = codec::event::encode_compaction_lost();
            EventRow::new(kind::COMPACTION_FAILED, refs, lost)
        }
        Event::CompactionReverted(compaction) => {
            let refs = vec![compaction.to_string()];
            EventRow::new(kind::COMPACTION_REVERTED, refs, Vec::new())
        }
        Event::Withdrawn { message, why, payload } => {
            let refs = vec![message.to_string()];
            EventRow::new(withdrawn_kind(*why), refs, payload.clone())
        }
        Event::TurnEnded { ended, waiting } => {
            let codec::event::EncodedEvent { kind, payload, .. } = codec::event::encode(ended);
            let refs = waiting.iter().map(MessageId::to_string).collect();
            EventRow::new(kind, refs, payload)
        }
    }
}
