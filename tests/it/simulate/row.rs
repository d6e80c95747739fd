//! A model of a session's hot row, its dependent rows and the transactions on it. Each transaction is applied
//! completely or not at all, without a database.

use std::collections::{BTreeMap, BTreeSet};

use contextd::{
    model::{
        CallId, Category, Content, Fence, FinishReason, Limits, Message, MessageId, ModelResponse, Part, PartSize,
        Role, Seq, ToolCall, ToolOutcome, ToolResult, TurnId, UsageTotals, message::StoredPart,
    },
    turn::run::decide::after_step,
};
use jiff::Timestamp;

use crate::harness::invariants::{self, RunState, Stored, Turn};

/// The guard of the fence that is disabled, to verify that its absence is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unguarded {
    Nothing,
    Epoch,
    Op,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Running,
    Waiting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Completed,
    Cancelled,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    TurnStarted,
    StepStarted,
    Committed(MessageId),
    Answered(CallId),
    Retrying,
    Recovered,
    TurnEnded(Ended),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) seq: i64,
    pub(super) epoch: i64,
    pub(super) turn: u32,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) state: State,
    pub(super) fence: Fence,
    /// Whether the lease is valid. It expires if the owner of a running turn has died.
    pub(super) lease: bool,
    pub(super) handed_over: bool,
    pub(super) takeovers: u32,
    pub(super) cancelled: bool,
    pub(super) time_is_up: bool,
    pub(super) turn: u32,
    pub(super) step: u32,
    pub(super) attempt: u32,
    pub(super) open: BTreeSet<CallId>,
    pub(super) events: Vec<Event>,
    pub(super) messages: Vec<Message>,
    results: Vec<StoredPart>,
    /// Every requested call, with its turn.
    calls: Vec<(CallId, u32)>,
    turns: Vec<Turn>,
    pub(super) unguarded: Unguarded,
}

impl Row {
    pub(super) fn new(unguarded: Unguarded) -> Self {
        Self {
            state: State::Idle,
            fence: Fence { epoch: 0, op: 0 },
            lease: false,
            handed_over: false,
            takeovers: 0,
            cancelled: false,
            time_is_up: false,
            turn: 0,
            step: 0,
            attempt: 0,
            open: BTreeSet::new(),
            events: Vec::new(),
            messages: Vec::new(),
            results: Vec::new(),
            calls: Vec::new(),
            turns: Vec::new(),
            unguarded,
        }
    }

    /// The state as rows of a database, for the checker of invariants.
    pub(super) fn stored(&self) -> Stored {
        let messages = self.messages.iter();
        let parts = messages.clone().flat_map(|message| {
            let of = (0..).zip(&message.parts);
            of.map(|(idx, part)| stored_part(message.id.as_str(), idx, part))
        });
        let waiting = (0..).zip(&self.results);
        let waiting = waiting.map(|(idx, part)| stored_part("results", idx, part));
        Stored {
            state: match self.state {
                State::Idle => RunState::Idle,
                State::Running => RunState::Running,
                State::Waiting => RunState::Waiting,
            },
            turn: self.turn.to_string(),
            next_seq: self.last_seq() + 1,
            open_calls: i64::try_from(self.open.len()).unwrap(),
            events: self.events.iter().map(Event::stored).collect(),
            messages: messages.map(stored_message).collect(),
            parts: parts.chain(waiting).collect(),
            calls: self
                .calls
                .iter()
                .map(|(id, turn)| invariants::Call {
                    id: id.to_string(),
                    turn: turn.to_string(),
                    status: if self.open.contains(id) { 0 } else { 3 },
                })
                .collect(),
            turns: self.turns.clone(),
            ..Stored::default()
        }
    }

    fn last_seq(&self) -> i64 {
        i64::try_from(self.events.len()).unwrap()
    }

    pub(super) fn turn_id(&self) -> TurnId {
        TurnId::new(self.turn.to_string())
    }

    /// Starts a turn with its input. Returns the fence of its owner.
    pub(super) fn admit(&mut self) -> Option<Fence> {
        if self.state != State::Idle {
            return None;
        }
        (self.turn, self.step, self.attempt) = (self.turn + 1, 1, 1);
        (self.takeovers, self.cancelled, self.time_is_up) = (0, false, false);
        self.own();
        self.turns.push(Turn {
            id: self.turn.to_string(),
            live: true,
            first_seq: self.last_seq() + 1,
            ..Turn::default()
        });
        self.tell(Kind::TurnStarted);
        self.say(Role::User, 0, Vec::new(), None);
        self.tell(Kind::StepStarted);
        Some(self.fence)
    }

    /// Commits a response with calls. The turn then waits, unless a cancel was requested. Calls that cannot run are
    /// closed immediately.
    pub(super) fn append(&mut self, fence: Fence, calls: usize, run: bool) -> Option<State> {
        self.written(fence)?;
        let ids = (0..calls).map(|n| CallId::new(format!("{}-{}-{}-{n}", self.turn, self.step, self.events.len())));
        let ids: Vec<CallId> = ids.collect();
        self.say(Role::Assistant, self.step, ids.iter().map(call).collect(), Some(FinishReason::ToolCalls));
        self.takeovers = 0;
        if !run {
            self.results.extend(ids.iter().map(result));
            self.close_batch();
            return Some(self.state);
        }
        self.calls.extend(ids.iter().cloned().map(|id| (id, self.turn)));
        self.open.extend(ids);
        if !self.cancelled {
            (self.state, self.lease) = (State::Waiting, false);
        }
        Some(self.state)
    }

    pub(super) fn retry(&mut self, fence: Fence) -> Option<State> {
        self.written(fence)?;
        self.tell(Kind::Retrying);
        self.attempt += 1;
        Some(self.state)
    }

    pub(super) fn begin(&mut self, fence: Fence) -> Option<State> {
        self.written(fence)?;
        (self.step, self.attempt, self.takeovers) = (self.step + 1, 1, 0);
        self.tell(Kind::StepStarted);
        Some(self.state)
    }

    /// Commits the last response and ends the turn, unless a cancel was requested.
    pub(super) fn finish(&mut self, fence: Fence, answer: Option<FinishReason>) -> Option<State> {
        if !self.open.is_empty() {
            return None;
        }
        self.written(fence)?;
        self.answer(answer);
        if !self.cancelled {
            self.end(Ended::Completed);
        }
        Some(self.state)
    }

    /// Ends the turn in any other way, and closes open calls.
    pub(super) fn stop(&mut self, fence: Fence, answer: Option<FinishReason>, how: Ended) -> Option<State> {
        self.written(fence)?;
        self.answer(answer);
        for open in std::mem::take(&mut self.open) {
            self.results.push(result(&open));
            self.tell(Kind::Answered(open));
        }
        self.close_batch();
        self.end(how);
        Some(self.state)
    }

    pub(super) fn hand_over(&mut self, fence: Fence) -> Option<State> {
        self.written(fence)?;
        (self.lease, self.handed_over) = (false, true);
        Some(self.state)
    }

    /// Takes over a turn without a live owner, or with an expired wait.
    pub(super) fn take_over(&mut self, seen: i64) -> Option<Fence> {
        let abandoned = self.state == State::Running && !self.lease;
        let overdue = self.state == State::Waiting && self.time_is_up;
        if self.fence.epoch != seen || !(abandoned || overdue) {
            return None;
        }
        if abandoned {
            (self.attempt, self.takeovers) = (self.attempt + 1, self.takeovers + u32::from(!self.handed_over));
        }
        self.own();
        if abandoned {
            self.tell(Kind::Recovered);
        }
        Some(self.fence)
    }

    /// Submits the result of a call. The replica that submits the last result of a turn without an owner becomes its
    /// owner.
    pub(super) fn submit(&mut self, call: &CallId, limits: &Limits, begins: bool) -> Option<Fence> {
        if self.cancelled || self.state == State::Idle || !self.open.remove(call) {
            return None;
        }
        let resumes = self.state == State::Waiting && self.open.is_empty();
        if resumes {
            self.own();
            self.takeovers = 0;
        }
        self.results.push(result(call));
        self.tell(Kind::Answered(call.clone()));
        if self.open.is_empty() {
            self.close_batch();
        }
        // If the configuration has changed, the owner starts the step.
        if resumes && begins && after_step(self.step, &UsageTotals::default(), limits).is_none() {
            (self.step, self.attempt) = (self.step + 1, 1);
            self.tell(Kind::StepStarted);
        }
        resumes.then_some(self.fence)
    }

    /// Requests a cancel. If the turn has no owner, the caller becomes its owner.
    pub(super) fn cancel(&mut self) -> Option<Fence> {
        if self.state == State::Idle {
            return None;
        }
        self.cancelled = true;
        let nobodys = self.state == State::Waiting || !self.lease;
        if nobodys {
            self.own();
        }
        nobodys.then_some(self.fence)
    }

    fn own(&mut self) {
        (self.state, self.lease, self.handed_over) = (State::Running, true, false);
        self.fence.epoch += 1;
    }

    /// Counts one more write of the owner. Returns `None` if the fence is not in force.
    fn written(&mut self, fence: Fence) -> Option<()> {
        let epoch = self.unguarded == Unguarded::Epoch || fence.epoch == self.fence.epoch;
        let op = self.unguarded == Unguarded::Op || fence.op == self.fence.op;
        (epoch && op && self.state == State::Running).then(|| self.fence.op += 1)
    }

    fn end(&mut self, how: Ended) {
        self.tell(Kind::TurnEnded(how));
        let last_seq = self.last_seq();
        let turn = self.turns.last_mut().expect("a turn was admitted");
        turn.live = false;
        turn.last_seq = last_seq;
        (self.state, self.lease) = (State::Idle, false);
    }

    fn tell(&mut self, kind: Kind) {
        let seq = self.last_seq() + 1;
        self.events.push(Event { seq, epoch: self.fence.epoch, turn: self.turn, kind });
    }

    fn answer(&mut self, finish: Option<FinishReason>) {
        if finish.is_some() {
            self.say(Role::Assistant, self.step, Vec::new(), finish);
        }
    }

    fn close_batch(&mut self) {
        let results = std::mem::take(&mut self.results);
        if !results.is_empty() {
            self.say(Role::Tool, self.step, results, None);
        }
    }

    fn say(&mut self, role: Role, step: u32, parts: Vec<StoredPart>, finish: Option<FinishReason>) {
        let id = MessageId::new(format!("m{}", self.events.len()));
        self.tell(Kind::Committed(id.clone()));
        self.messages.push(Message {
            id,
            turn: Some(self.turn_id()),
            step,
            seq: Seq(self.last_seq()),
            role,
            parts,
            overhead: 0,
            created_at: Timestamp::UNIX_EPOCH,
            response: finish.map(response),
            pinned: false,
            metadata: BTreeMap::new(),
            is_summary: false,
            compacted_by: None,
            voided_at: None,
            queued: Vec::new(),
        });
    }
}

impl Event {
    fn stored(&self) -> invariants::Event {
        let (kind, refs) = match &self.kind {
            Kind::TurnStarted => ("turn_started", Vec::new()),
            Kind::StepStarted => ("step_started", Vec::new()),
            Kind::Committed(message) => ("message_committed", vec![message.to_string()]),
            Kind::Answered(call) => ("tool_call_completed", vec![call.to_string()]),
            Kind::Retrying => ("turn_retrying", Vec::new()),
            Kind::Recovered => ("turn_recovered", Vec::new()),
            Kind::TurnEnded(Ended::Completed) => ("turn_completed", Vec::new()),
            Kind::TurnEnded(Ended::Cancelled) => ("turn_cancelled", Vec::new()),
            Kind::TurnEnded(Ended::Failed) => ("turn_failed", Vec::new()),
        };
        invariants::Event { seq: self.seq, epoch: self.epoch, turn: self.turn.to_string(), kind: kind.to_owned(), refs }
    }
}

fn stored_message(message: &Message) -> invariants::Message {
    invariants::Message {
        seq: message.seq.0,
        id: message.id.to_string(),
        role: match message.role {
            Role::System => 1,
            Role::User => 2,
            Role::Assistant => 3,
            Role::Tool => 4,
        },
        turn: message.turn.as_ref().map(ToString::to_string).unwrap_or_default(),
        step: i32::try_from(message.step).unwrap(),
        ..invariants::Message::default()
    }
}

fn stored_part(message: &str, idx: i32, part: &StoredPart) -> invariants::Part {
    let (kind, call) = match &part.part.content {
        Content::ToolCall(call) => ("tool_call", call.id.to_string()),
        Content::ToolResult(result) => ("tool_result", result.call.to_string()),
        _ => ("text", String::new()),
    };
    invariants::Part { message: message.to_owned(), idx, kind: kind.to_owned(), call, ..invariants::Part::default() }
}

fn part(content: Content) -> StoredPart {
    let size = PartSize { tokens: 1, category: Category::ToolResults };
    StoredPart { part: Part::new(content), size, estimator: String::new(), pruned: None }
}

fn call(id: &CallId) -> StoredPart {
    part(Content::ToolCall(ToolCall { id: id.clone(), name: "look".to_owned(), arguments: "{}".to_owned() }))
}

fn result(id: &CallId) -> StoredPart {
    part(Content::ToolResult(ToolResult {
        call: id.clone(),
        name: "look".to_owned(),
        parts: Vec::new(),
        outcome: ToolOutcome::Success,
        truncation: None,
        display_text: String::new(),
    }))
}

fn response(finish: FinishReason) -> ModelResponse {
    ModelResponse {
        provider: String::new(),
        model: String::new(),
        provider_model: String::new(),
        provider_response_id: String::new(),
        finish,
        provider_finish: String::new(),
        usage: None,
        failure: None,
        time_to_first_token: None,
        elapsed: std::time::Duration::ZERO,
        provider_metadata: None,
        prompt_fingerprint: None,
    }
}
