//! A change of a session: how its row becomes, and the rows that are added or closed with it.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Session,
    compaction_rows::CompactionChange,
    config_rows::NewConfig,
    cost::{self, StepCost},
    counters::{Counter, Shift},
    fork_rows::Forked,
    import_rows::Imported,
    mark_rows::Marks,
    new_calls::Batch,
    queue_rows::{QueueChange, Withdrawal},
    rows::Rows,
};
use crate::model::{
    Anchor, BlobId, CallId, Category, CompactionId, Content, Counted, Ending, MessageId, Part,
    Payload, RequestId, Seq, StepPosition, ToolOutcome, ToolResult, TurnId, TurnResult,
    UsagePurpose, UsageTotals,
    command::TurnRequest,
    event::{CallCancelReason, WaitsFor},
    message::StoredPart,
};

/// A change, as it is written in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Change<'a> {
    /// The session as it becomes.
    pub session: Session,
    /// The turn that its rows belong to. `None` if they belong to no turn.
    pub about: Option<TurnId>,
    /// How long the owner has the lease from the commit on; zero ends it. `None` leaves it as it is.
    pub lease: Option<Duration>,
    /// The open calls are due to be checked this long after the commit at the latest. The time in the session is
    /// another bound.
    pub wake_within: Option<Duration>,
    /// How long the turn may take from the commit on. `None` leaves it as it is.
    pub turn_ends_within: Option<Duration>,
    /// Rows that the owner made. Their events come first.
    pub rows: Option<&'a Rows>,
    /// The events after those.
    pub events: Vec<(StepPosition, Event)>,
    /// The message that holds the results of the last batch, by the position of its event.
    pub message: Option<(usize, ResultMessage)>,
    /// Calls that are closed.
    pub closed: Vec<ClosedCall<'a>>,
    /// Calls that are handed out: to the host, to an MCP server, or to a person.
    pub asked: Vec<AskedCall>,
    /// Calls that the model made.
    pub batch: Option<&'a Batch>,
    /// The row of a turn that begins.
    pub begins: Option<TurnRow<'a>>,
    /// What becomes of the turn's row.
    pub turn: TurnChange<'a>,
    /// What becomes of the queue.
    pub queue: QueueChange<'a>,
    /// What model calls cost.
    pub spent: Option<Spent<'a>>,
    /// When the session's anchor was measured.
    pub measured: Measured,
    /// What is kept of a call that the host made, encoded, in the message that it wrote.
    pub described: Option<(&'a MessageId, &'a [u8])>,
    /// The configuration of a new revision.
    pub config: Option<NewConfig<'a>>,
    /// Tool results that are hidden from the model, or shown again.
    pub marks: Option<Marks<'a>>,
    /// Compactions that begin or end.
    pub compactions: Vec<CompactionChange<'a>>,
    /// Calls, answers and blobs of messages that a host appends.
    pub imports: Option<Imported<'a>>,
    /// What a fork gets from its source.
    pub fork: Option<Forked<'a>>,
    /// What changes in the counters of the context.
    pub shift: Shift,
    /// What was shown of a message before it was written is committed or void.
    pub drops_partial: bool,
    /// It counts as a use of the session, which postpones its expiry.
    pub is_use: bool,
    /// The session is new.
    pub creates: bool,
    /// The session is deleted: it is no longer listed, and its last epoch is stored for a later session with
    /// the same id.
    pub deletes: bool,
    /// The turn's messages are rolled back.
    pub takes_back: bool,
    /// The turn that begins right after it, in the same transaction.
    pub next: Option<Box<Self>>,
}

/// The row of a new turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TurnRow<'a> {
    /// The request that asked for it.
    pub request_id: Option<&'a RequestId>,
    /// What it does differently from its session.
    pub request: &'a TurnRequest,
    /// Model reference.
    pub model: &'a str,
}

/// What a change sets in the row of the session's turn. What is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TurnChange<'a> {
    /// Its steps.
    pub step_count: Option<u32>,
    /// Its newest assistant message.
    pub final_message: Option<&'a MessageId>,
    /// What it was asked for.
    pub request: Option<&'a TurnRequest>,
    /// How the turn ended, and its result.
    pub end: Option<(&'a Ending, &'a TurnResult)>,
}

impl<'a> Change<'a> {
    /// A change of this session that changes nothing yet.
    pub(super) fn of(session: &Session) -> Self {
        Self {
            session: session.clone(),
            about: session.live_turn().cloned(),
            lease: None,
            wake_within: None,
            turn_ends_within: None,
            rows: None,
            events: Vec::new(),
            message: None,
            closed: Vec::new(),
            asked: Vec::new(),
            batch: None,
            begins: None,
            turn: TurnChange::default(),
            queue: QueueChange::default(),
            spent: None,
            measured: Measured::AsBefore,
            described: None,
            config: None,
            marks: None,
            compactions: Vec::new(),
            imports: None,
            fork: None,
            shift: Shift::default(),
            drops_partial: false,
            is_use: false,
            creates: false,
            deletes: false,
            takes_back: false,
            next: None,
        }
    }

    /// Adds rows, and counts them in the size of the context.
    pub(super) fn add(&mut self, rows: &'a Rows) {
        self.add_uncounted(rows);
        self.shift_by(&rows.shift());
    }

    /// Adds rows without counting them in the size of the context.
    pub(super) fn add_uncounted(&mut self, rows: &'a Rows) {
        self.session.next_seq.0 += rows.count();
        self.rows = Some(rows);
    }

    /// Changes the size of the context.
    pub(super) fn shift_by(&mut self, shift: &Shift) {
        self.shift = self.shift + *shift;
        self.session.counters = self.session.counters + *shift;
    }

    /// Adds what model calls cost.
    pub(super) fn spend(&mut self, cost: &StepCost<'a>) {
        self.spent = cost.call.map(|_| Spent {
            purpose: UsagePurpose::Turn,
            model: cost.model,
            totals: cost.totals(),
        });
    }

    /// The same, and what they measured.
    pub(super) fn account(&mut self, cost: &StepCost<'a>) {
        self.spend(cost);
        if let Some(measured) = &cost.measured {
            self.measure(measured);
        }
    }

    /// The session's newest call is measured.
    pub(super) fn measure(&mut self, measured: &Anchor) {
        self.session.growth = cost::grown(&self.session, measured);
        self.session.anchor = Some(measured.clone());
        self.measured = Measured::Now;
    }

    /// Adds the result of a call to the size of the transcript.
    pub(super) fn count_result(&mut self, tokens: u32) {
        let mut shift = Shift::default();
        shift.count(Counter::ToolResults, 1, i64::from(tokens));
        self.shift_by(&shift);
    }

    /// Adds the message of results to the size of the transcript.
    pub(super) fn count_message(&mut self, overhead: u32) {
        let mut shift = Shift::default();
        shift.messages(1, i64::from(overhead));
        self.shift_by(&shift);
    }

    /// Adds an event that belongs to no step and whose payload is complete. `size`: for a change of the model, how many
    /// messages there are.
    pub(super) fn append_event(&mut self, payload: &Payload, size: Option<i64>) {
        let complete = Event::Complete {
            payload: Box::new(payload.clone()),
            size,
        };
        self.event_at(StepPosition::default(), complete);
    }

    /// Adds the next event, of this attempt at a step.
    pub(super) fn event(&mut self, step: u32, event: Event) {
        let attempt = self.session.attempt;
        self.event_at(StepPosition { step, attempt }, event);
    }

    /// Adds the next event.
    pub(super) fn event_at(&mut self, at: StepPosition, event: Event) {
        self.events.push((at, event));
        self.session.next_seq.0 += 1;
    }

    /// How many events it makes.
    pub fn count(&self) -> i64 {
        let own = i64::try_from(self.events.len()).unwrap_or(i64::MAX);
        self.rows.map_or(0, Rows::count) + own
    }

    /// The seq of its first event.
    pub fn first_seq(&self) -> Seq {
        Seq(self.session.next_seq.0 - self.count())
    }

    /// The seq of the event that ends the turn.
    pub fn seq_of_end(&self) -> Option<Seq> {
        let is_end = |(_, event): &(StepPosition, Event)| matches!(event, Event::TurnEnded { .. });
        let at = self.events.iter().position(is_end)?;
        let before = self.rows.map_or(0, Rows::count) + i64::try_from(at).unwrap_or(i64::MAX);
        Some(Seq(self.first_seq().0 + before))
    }
}

/// What model calls cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spent<'a> {
    /// What they were made for.
    pub purpose: UsagePurpose,
    /// Model reference.
    pub model: &'a str,
    /// The calls and their tokens.
    pub totals: UsageTotals,
}

/// The time that is stored as that of the session's anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// The stored one stays.
    AsBefore,
    /// The time of the commit.
    Now,
    /// The time of an earlier anchor, which is in force again.
    At(Timestamp),
}

/// An event. What it is about stands in the rows; payloads are encoded already.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A call has its result.
    CallCompleted(CallId),
    /// A call is handed out, for its result or an approval.
    CallAsked {
        /// Which.
        call: CallId,
        /// For what.
        waits_for: WaitsFor,
        /// The encoded event.
        request: Vec<u8>,
    },
    /// What the turn waits for now.
    ActionRequired {
        /// All calls, those that are to be run first.
        calls: Vec<CallId>,
        /// How many of them are to be run.
        to_run: usize,
    },
    /// The call is closed without a result.
    CallCancelled {
        /// Which.
        call: CallId,
        /// The tool.
        tool: String,
        /// Why.
        reason: CallCancelReason,
    },
    /// The message is committed.
    MessageCommitted(MessageId),
    /// A step begins.
    StepStarted {
        /// The revision that it is made for.
        revision: i64,
        /// Estimated tokens of its prompt.
        prompt_tokens: i64,
        /// The encoded event.
        started: Vec<u8>,
    },
    /// Another replica goes on with the turn.
    TurnRecovered {
        /// Its owner gave it back; else its lease ran out.
        handed_over: bool,
        /// Takeovers since the last committed step.
        takeovers: u32,
    },
    /// An event whose payload is complete.
    Complete {
        /// The payload.
        payload: Box<Payload>,
        /// For a change of the model: how many messages there are.
        size: Option<i64>,
    },
    /// The replica that made this compaction let its lease run out; the compaction has failed.
    CompactionLost(CompactionId),
    /// A rolled-back turn had messages that this compaction stands for; it is reverted with them.
    CompactionReverted(CompactionId),
    /// A message waits no longer.
    Withdrawn {
        /// Which.
        message: MessageId,
        /// Why.
        why: Withdrawal,
        /// The encoded event.
        payload: Vec<u8>,
    },
    /// The turn ends.
    TurnEnded {
        /// The event, with how it ended and its result.
        ended: Box<Payload>,
        /// The messages that still wait.
        waiting: Vec<MessageId>,
    },
}

/// The message that holds results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultMessage {
    /// Its id.
    pub id: MessageId,
    /// The step that made the calls.
    pub step: u32,
    /// Tokens beside its parts.
    pub overhead: u32,
}

/// An answer that closes a call, cleaned and cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The call.
    pub call: CallId,
    /// What kind of answer it is.
    pub kind: AnswerKind,
    /// The tool result.
    pub part: Part,
    /// Its tokens.
    pub tokens: u32,
    /// The hash of the answer as it was sent.
    pub hash: String,
    /// What it refers to, each once: the whole output, when it was cut, and media.
    pub blobs: Vec<BlobId>,
}

/// What kind of answer closes a call. One that does not fit the call changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnswerKind {
    /// The result of a call that was requested.
    Result {
        /// It was prepared for a call whose arguments a person changed.
        edited: bool,
    },
    /// A person's no to a call that awaits approval.
    Denial,
    /// Not answered: counts only when the call's time is up, or the turn's.
    Overdue,
}

/// A call that is closed with a result.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedCall<'a> {
    /// Which.
    pub call: CallId,
    /// What with.
    pub with: Closing<'a>,
    /// The tool.
    pub tool: String,
    /// Where its result stands in the message.
    pub position: u32,
    /// The message that holds it.
    pub message: MessageId,
}

impl ClosedCall<'_> {
    /// The result as a part of the message that holds it, without who counted it.
    pub fn result(&self) -> StoredPart {
        let (mut part, tokens) = match self.with {
            Closing::Answer(answer) => (answer.part.clone(), answer.tokens),
            Closing::Synthetic(synthetic) => {
                let result = ToolResult {
                    call: self.call.clone(),
                    name: String::new(),
                    parts: vec![synthetic.words.into()],
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
            size: Counted {
                tokens,
                category: Category::ToolResults,
            },
            estimator: String::new(),
            pruned: None,
        }
    }
}

/// What a call is closed with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Closing<'a> {
    /// An answer.
    Answer(&'a Answer),
    /// No answer: the turn ended first.
    Synthetic(Synthetic<'a>),
}

/// The result that a call gets when it is closed without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synthetic<'a> {
    /// Its words.
    pub words: &'a str,
    /// Their tokens.
    pub tokens: u32,
    /// Tokens of a message beside its parts.
    pub overhead: u32,
    /// Why, in the events.
    pub reason: CallCancelReason,
}

/// A call that is handed out. Its time begins with the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedCall {
    /// Which.
    pub call: CallId,
    /// For what.
    pub waits_for: WaitsFor,
    /// An approver's arguments in place of the model's.
    pub edited: Option<String>,
}
