//! A change of a session: its new row, and the rows that are added or closed with it.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Session,
    compaction_rows::CompactionChange,
    config_rows::NewConfig,
    cost::{self, StepCost},
    counters::{Counter, TokenCounters},
    fork_rows::Forked,
    import_rows::ImportRows,
    mark_rows::Marks,
    new_calls::Batch,
    queue_rows::{QueueChange, Withdrawal},
    rows::Rows,
};
use crate::model::{
    Anchor, BlobId, CallId, Category, CompactionId, Content, Ending, MessageId, Part, PartSize, Payload, RequestId,
    Seq, StepPosition, ToolOutcome, ToolResult, TurnId, TurnResult, UsagePurpose, UsageTotals,
    command::TurnRequest,
    event::{CallCancelReason, WaitsFor},
    message::StoredPart,
};

/// A change, committed in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Change<'a> {
    /// The session after the change.
    pub session: Session,
    /// The turn that the change's rows belong to. `None` if they belong to no turn.
    pub turn_id: Option<TurnId>,
    /// Duration of the owner's lease from the commit on; zero ends the lease. `None` leaves it unchanged.
    pub lease: Option<Duration>,
    /// The open calls have to be checked at the latest this long after the commit, or at the time in the session if
    /// that is earlier.
    pub wake_within: Option<Duration>,
    /// Timeout of the turn from the commit on. `None` leaves it unchanged.
    pub turn_ends_within: Option<Duration>,
    /// Rows created by the owner. Their events come first.
    pub rows: Option<&'a Rows>,
    /// The events after those of `rows`.
    pub events: Vec<(StepPosition, Event)>,
    /// The message with the results of the last batch, and the index of its event.
    pub message: Option<(usize, ResultMessage)>,
    pub closed: Vec<ClosedCall<'a>>,
    /// Calls that are handed out: to the host, to an MCP server, or to a user for approval.
    pub requested_calls: Vec<RequestedCall>,
    /// Calls that the model made.
    pub batch: Option<&'a Batch>,
    /// The row of a new turn.
    pub begins: Option<TurnRow<'a>>,
    /// Update of the turn's row.
    pub turn: TurnChange<'a>,
    pub queue: QueueChange<'a>,
    /// Cost of model calls.
    pub usage: Option<ModelUsage<'a>>,
    /// When the session's anchor was measured.
    pub anchor_time: AnchorTime,
    /// Encoded data about a model call that the host made, and the message that the call produced.
    pub host_model_call: Option<(&'a MessageId, &'a [u8])>,
    /// The configuration of a new revision.
    pub config: Option<NewConfig<'a>>,
    /// Tool results that are pruned or restored.
    pub marks: Option<Marks<'a>>,
    /// Compactions that begin or end.
    pub compactions: Vec<CompactionChange<'a>>,
    /// Calls, answers and blobs of messages that a host appends.
    pub imports: Option<ImportRows<'a>>,
    /// Rows that a fork copies from its source.
    pub fork: Option<Forked<'a>>,
    /// Change of the context counters.
    pub counter_change: TokenCounters,
    /// The message being streamed is committed or voided, so its stored partial content is removed.
    pub drops_partial: bool,
    /// The change is a use of the session, which postpones its expiry.
    pub is_use: bool,
    /// The session is new.
    pub creates: bool,
    /// The session is deleted: it is no longer listed, and its last epoch is stored for a later session with the same
    /// id.
    pub deletes: bool,
    /// The turn's messages are rolled back.
    pub rolls_back: bool,
    /// The turn that starts immediately after, in the same transaction.
    pub next: Option<Box<Self>>,
}

/// The row of a new turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TurnRow<'a> {
    /// The request that started it.
    pub request_id: Option<&'a RequestId>,
    /// Overrides of its session's settings.
    pub request: &'a TurnRequest,
    /// Model reference.
    pub model: &'a str,
}

/// Values to set in the row of the session's turn. `None` leaves a column unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TurnChange<'a> {
    pub step_count: Option<u32>,
    /// The newest assistant message.
    pub final_message: Option<&'a MessageId>,
    /// The turn's overrides.
    pub request: Option<&'a TurnRequest>,
    /// The ending of the turn, and its result.
    pub end: Option<(&'a Ending, &'a TurnResult)>,
}

impl<'a> Change<'a> {
    /// A change of this session without any effect yet.
    pub(super) fn of(session: &Session) -> Self {
        Self {
            session: session.clone(),
            turn_id: session.live_turn().cloned(),
            lease: None,
            wake_within: None,
            turn_ends_within: None,
            rows: None,
            events: Vec::new(),
            message: None,
            closed: Vec::new(),
            requested_calls: Vec::new(),
            batch: None,
            begins: None,
            turn: TurnChange::default(),
            queue: QueueChange::default(),
            usage: None,
            anchor_time: AnchorTime::AsBefore,
            host_model_call: None,
            config: None,
            marks: None,
            compactions: Vec::new(),
            imports: None,
            fork: None,
            counter_change: TokenCounters::default(),
            drops_partial: false,
            is_use: false,
            creates: false,
            deletes: false,
            rolls_back: false,
            next: None,
        }
    }

    /// Adds rows, and adds their sizes to the context counters.
    pub(super) fn add(&mut self, rows: &'a Rows) {
        self.add_uncounted(rows);
        self.change_counters(&rows.shift());
    }

    /// Adds rows without adding their sizes to the context counters.
    pub(super) fn add_uncounted(&mut self, rows: &'a Rows) {
        self.session.next_seq.0 += rows.count();
        self.rows = Some(rows);
    }

    /// Changes the context counters.
    pub(super) fn change_counters(&mut self, shift: &TokenCounters) {
        self.counter_change = self.counter_change + *shift;
        self.session.counters = self.session.counters + *shift;
    }

    /// Adds the cost of a step's model call.
    pub(super) fn spend(&mut self, cost: &StepCost<'a>) {
        self.usage =
            cost.call.map(|_| ModelUsage { purpose: UsagePurpose::Turn, model: cost.model, totals: cost.totals() });
    }

    /// Adds the cost of a step's model call, and its measured size.
    pub(super) fn account(&mut self, cost: &StepCost<'a>) {
        self.spend(cost);
        if let Some(measured) = &cost.measured {
            self.measure(measured);
        }
    }

    /// Sets the session's anchor to a new measurement.
    pub(super) fn measure(&mut self, measured: &Anchor) {
        self.session.growth = cost::grown(&self.session, measured);
        self.session.anchor = Some(measured.clone());
        self.anchor_time = AnchorTime::Now;
    }

    /// Adds the result of a call to the context counters.
    pub(super) fn count_result(&mut self, tokens: u32) {
        let mut shift = TokenCounters::default();
        shift.count(Counter::ToolResults, 1, i64::from(tokens));
        self.change_counters(&shift);
    }

    /// Adds the message of results to the context counters.
    pub(super) fn count_message(&mut self, overhead: u32) {
        let mut shift = TokenCounters::default();
        shift.messages(1, i64::from(overhead));
        self.change_counters(&shift);
    }

    /// Adds an event that belongs to no step and whose payload is complete. `size` is the number of messages, for a
    /// change of the model.
    pub(super) fn append_event(&mut self, payload: &Payload, size: Option<i64>) {
        let complete = Event::Complete { payload: Box::new(payload.clone()), size };
        self.event_at(StepPosition::default(), complete);
    }

    /// Adds an event of the current attempt at a step.
    pub(super) fn event(&mut self, step: u32, event: Event) {
        let attempt = self.session.attempt;
        self.event_at(StepPosition { step, attempt }, event);
    }

    /// Adds an event at a position.
    pub(super) fn event_at(&mut self, at: StepPosition, event: Event) {
        self.events.push((at, event));
        self.session.next_seq.0 += 1;
    }

    /// The number of events in the change.
    pub fn count(&self) -> i64 {
        let own = i64::try_from(self.events.len()).unwrap_or(i64::MAX);
        self.rows.map_or(0, Rows::count) + own
    }

    /// The seq of its first event.
    pub fn first_seq(&self) -> Seq {
        Seq(self.session.next_seq.0 - self.count())
    }

    /// The seq of the event that ends the turn. Returns `None` if the change does not end it.
    pub fn seq_of_end(&self) -> Option<Seq> {
        let is_end = |(_, event): &(StepPosition, Event)| matches!(event, Event::TurnEnded { .. });
        let at = self.events.iter().position(is_end)?;
        let before = self.rows.map_or(0, Rows::count) + i64::try_from(at).unwrap_or(i64::MAX);
        Some(Seq(self.first_seq().0 + before))
    }
}

/// Cost of model calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelUsage<'a> {
    pub purpose: UsagePurpose,
    /// Model reference.
    pub model: &'a str,
    pub totals: UsageTotals,
}

/// The time to store as that of the session's anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnchorTime {
    /// The stored time.
    AsBefore,
    /// The time of the commit.
    Now,
    /// The time of an earlier anchor, which is current again.
    At(Timestamp),
}

/// An event. Referenced content is in other rows; payloads are already encoded.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    CallCompleted(CallId),
    /// A call is handed out, for its result or an approval.
    CallRequested {
        call: CallId,
        waits_for: WaitsFor,
        /// The encoded event.
        request: Vec<u8>,
    },
    /// The calls that the turn waits for.
    ActionRequired {
        /// All calls, those to be run first.
        calls: Vec<CallId>,
        /// The number of calls to be run.
        to_run: usize,
    },
    /// The call is closed without a result.
    CallCancelled {
        call: CallId,
        /// Name of the tool.
        tool: String,
        reason: CallCancelReason,
    },
    MessageCommitted(MessageId),
    /// A step starts.
    StepStarted {
        /// The revision that it uses.
        revision: i64,
        /// Estimated tokens of its prompt.
        prompt_tokens: i64,
        /// The encoded event.
        started: Vec<u8>,
    },
    /// Another replica took over the turn.
    TurnRecovered {
        /// The previous owner released it; otherwise its lease expired.
        handed_over: bool,
        /// Takeovers since the last committed step.
        takeovers: u32,
    },
    /// An event whose payload is complete.
    Complete {
        payload: Box<Payload>,
        /// The number of messages, for a change of the model.
        size: Option<i64>,
    },
    /// The lease of the replica that ran this compaction expired; the compaction has failed.
    CompactionExpired(CompactionId),
    /// A rolled-back turn had messages that this compaction replaces; it is reverted with them.
    CompactionReverted(CompactionId),
    /// A message was removed from the queue without being applied.
    Withdrawn {
        message: MessageId,
        why: Withdrawal,
        /// The encoded event.
        payload: Vec<u8>,
    },
    TurnEnded {
        /// The event, with the ending and the result.
        ended: Box<Payload>,
        /// The messages that are still queued.
        waiting: Vec<MessageId>,
    },
}

/// The message with the results of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultMessage {
    pub id: MessageId,
    /// The step that made the calls.
    pub step: u32,
    /// Tokens in addition to its parts.
    pub overhead: u32,
}

/// An answer that closes a call, sanitized and truncated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub call: CallId,
    pub kind: AnswerKind,
    /// The tool result.
    pub part: Part,
    /// Size of the result.
    pub tokens: u32,
    /// The hash of the answer as submitted.
    pub hash: String,
    /// The blobs that it references, without duplicates: the whole output, if it was truncated, and media.
    pub blobs: Vec<BlobId>,
}

/// The kind of an answer. An answer that does not match the state of the call changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnswerKind {
    /// The result of a call that was handed out.
    Result {
        /// It was prepared for a call whose arguments the approver changed.
        edited: bool,
    },
    /// A user's denial of a call that waits for approval.
    Denial,
    /// A timeout: accepted only if the deadline of the call or of the turn has passed.
    Overdue,
}

/// A call that is closed with a result.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedCall<'a> {
    pub call: CallId,
    pub closed_by: ClosedBy<'a>,
    /// Name of the tool.
    pub tool: String,
    /// Index of the result in the message.
    pub position: u32,
    /// The message that contains the result.
    pub message: MessageId,
}

impl ClosedCall<'_> {
    /// The result as a part of the message, without the name of the estimator.
    pub fn result(&self) -> StoredPart {
        let (mut part, tokens) = match self.closed_by {
            ClosedBy::Answer(answer) => (answer.part.clone(), answer.tokens),
            ClosedBy::Synthetic(synthetic) => {
                let result = ToolResult {
                    call: self.call.clone(),
                    name: String::new(),
                    parts: vec![synthetic.text.into()],
                    outcome: ToolOutcome::Cancelled,
                    truncation: None,
                    display_text: String::new(),
                };
                (Part::new(Content::ToolResult(result)), synthetic.tokens)
            }
        };
        if let Content::ToolResult(result) = &mut part.content {
            result.name.clone_from(&self.tool);
        }
        StoredPart {
            part,
            size: PartSize { tokens, category: Category::ToolResults },
            estimator: String::new(),
            pruned: None,
        }
    }
}

/// How a call is closed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClosedBy<'a> {
    /// With an answer.
    Answer(&'a Answer),
    /// Without an answer, because the turn ended first.
    Synthetic(SyntheticResult<'a>),
}

/// The result of a call that is closed without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyntheticResult<'a> {
    /// The text of the result.
    pub text: &'a str,
    /// Size of the text.
    pub tokens: u32,
    /// Tokens of a message in addition to its parts.
    pub overhead: u32,
    /// The reason given in the events.
    pub reason: CallCancelReason,
}

/// A call that is handed out. Its timeout starts with the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedCall {
    pub call: CallId,
    pub waits_for: WaitsFor,
    /// The approver's arguments, which replace the model's.
    pub edited: Option<String>,
}
