//! A change of a session: how its row becomes, and the rows that are added or closed with it.

use std::time::Duration;

use super::Session;
use crate::model::{BlobId, CallId, MessageId, Part, Seq, StepPosition, event::WaitsFor};

/// A change, as it is written in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Change<'a> {
    /// The session as it becomes.
    pub session: Session,
    /// How long the owner has the lease from the commit on; zero ends it. `None` leaves it as it is.
    pub lease: Option<Duration>,
    /// Somebody has to look at the open calls no later than this long from the commit on, beside the
    /// time that the session says.
    pub wake_within: Option<Duration>,
    /// The events, from the session's `next_seq` on.
    pub events: Vec<(StepPosition, Event)>,
    /// The message that holds the results of the last batch, by the position of its event.
    pub message: Option<(usize, ResultMessage)>,
    /// Calls that are closed.
    pub closed: Vec<ClosedCall<'a>>,
    /// Calls that are handed out: to the host, to an MCP server, or to a person.
    pub asked: Vec<AskedCall>,
}

impl Change<'_> {
    /// None of a session as it was seen.
    pub(super) fn of(session: &Session) -> Self {
        Self {
            session: session.clone(),
            lease: None,
            wake_within: None,
            events: Vec::new(),
            message: None,
            closed: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// Adds the next event.
    pub(super) fn event(&mut self, step: u32, event: Event) {
        let attempt = self.session.attempt;
        self.events.push((StepPosition { step, attempt }, event));
        self.session.next_seq.0 += 1;
    }

    /// The newest seq that it makes.
    pub fn last_seq(&self) -> Seq {
        Seq(self.session.next_seq.0 - 1)
    }
}

/// An event. What it is about stands in the rows; payloads are encoded already.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Its answer.
    pub answer: &'a Answer,
    /// The tool.
    pub tool: String,
    /// Where its result stands in the message.
    pub position: u32,
    /// The message that holds it.
    pub message: MessageId,
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
