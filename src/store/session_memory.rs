//! Keeps in memory what a turn would otherwise read: the configuration, the turn, its open calls and the transcript as
//! the model sees it. Each commit of this replica updates it.
//!
//! A memory belongs to one version of its session. A decision based on it is committed only if the session still has
//! that version.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{
    admitted::Read,
    known_call::{Batch, CallState, StoredCall},
    owned::{OwnedTurn, Revision, VisibleTranscript},
};
use crate::{
    codec,
    model::{
        Anchor, CallId, Content, Message, MessageId, Payload, Role, Seq, SessionConfig, TurnFence, TurnId, UsageTotals,
        command::TurnRequest, event::WaitsFor, ledger::ModelDependent, message::StoredPart,
    },
    session::{
        Session, SessionState,
        answers::OpenCall,
        change::{Change, Event, RequestedCall, ResultMessage},
        compaction_rows::CompactionChange,
        counters::Counter,
        new_calls::{CallHandling, NewCall},
    },
};

/// Bytes counted per message, call or turn in addition to its content.
const ITEM_BYTES: usize = 1 << 10;

/// The data in memory of one session.
#[derive(Debug, Clone)]
pub(super) struct SessionMemory {
    config: Arc<Revision>,
    config_bytes: usize,
    turn: Option<OwnTurn>,
    transcript: Arc<KeptTranscript>,
    /// Calls of the running turn that have no result yet, in the order in which the model made them.
    open: Vec<KeptCall>,
    /// Results whose message is not committed yet, by their position in it, with their stored size in bytes.
    results: BTreeMap<usize, (StoredPart, usize)>,
    /// The time of the commit or read that it reflects.
    as_of: Read,
}

/// The messages that the model sees.
#[derive(Debug, Clone, Default)]
struct KeptTranscript {
    messages: Vec<Message>,
    /// Stored size of the messages, in bytes.
    bytes: usize,
}

/// The running turn, or the last one.
#[derive(Debug, Clone)]
struct OwnTurn {
    id: TurnId,
    request: TurnRequest,
    /// Stored size of the request, in bytes.
    request_bytes: usize,
    started_at: Timestamp,
    /// The revision for which its step was prepared.
    made_for: i64,
    /// Whether the step began after the turn's deadline.
    late: bool,
    /// Steps whose response is committed.
    completed_steps: u32,
    totals: UsageTotals,
    final_message: Option<MessageId>,
    trace: Option<String>,
}

/// A call that has no result yet.
#[derive(Debug, Clone)]
struct KeptCall {
    call: OpenCall,
    /// Arguments with which an approver replaced the model's.
    edited: Option<String>,
}

/// The state from which a turn or a step of a session is prepared.
#[derive(Debug, Clone)]
pub struct PrepareInput {
    /// The current configuration.
    pub revision: Arc<Revision>,
    /// Tokens of the live transcript.
    pub context_tokens: i64,
    /// Version of the context.
    pub context_version: i64,
    /// The last measured call.
    pub anchor: Option<Anchor>,
    /// Number of messages in the queue.
    pub queued: u32,
    /// The part of the transcript that depends on the model.
    pub model_dependent: ModelDependent,
}

/// A turn that waits for tool results.
#[derive(Debug, Clone)]
pub struct WaitingTurn {
    /// The state from which its next step is prepared. The configuration is that of the step that made the calls.
    pub basis: PrepareInput,
    /// The settings in which it differs from its session.
    pub request: TurnRequest,
    /// Time since the turn started.
    pub elapsed: Duration,
    /// Tokens spent so far.
    pub totals: UsageTotals,
    /// The named calls.
    pub calls: BTreeMap<CallId, StoredCall>,
}

/// Stored sizes in bytes of what a commit wrote.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StoredSize {
    /// Messages of the change's rows.
    pub(super) messages: usize,
    /// Configuration.
    pub(super) config: usize,
    /// Request of the turn.
    pub(super) request: usize,
}

/// A commit that succeeded.
#[derive(Clone, Copy)]
pub(super) struct AppliedCommit<'a> {
    pub(super) change: &'a Change<'a>,
    /// When it was written.
    pub(super) as_of: Read,
    /// The turn's deadline.
    pub(super) turn_deadline: Option<Timestamp>,
    /// The estimator that counted the tokens.
    pub(super) estimator: &'a str,
    /// The trace context, if a turn began with it.
    pub(super) trace: Option<&'a str>,
    /// Total usage of the turn, if its row was written.
    pub(super) totals: Option<UsageTotals>,
    /// The messages of the change's rows as they are read. `None` if not all are known.
    pub(super) messages: Option<&'a [Message]>,
    /// Size of what it wrote.
    pub(super) bytes: StoredSize,
    /// Returns the stored size in bytes of the result of a call that it wrote.
    pub(super) result_bytes: &'a dyn Fn(&CallId) -> usize,
}

impl KeptCall {
    fn bytes(&self) -> usize {
        let request = self.call.request.as_ref().map_or(0, Vec::len);
        request + self.edited.as_ref().map_or(0, String::len)
    }
}

impl SessionMemory {
    /// The memory of a session created by this commit. Returns `None` if it has messages that are not known here.
    pub(super) fn of_new(landing: &AppliedCommit<'_>) -> Option<Self> {
        let Change { session, config, .. } = landing.change;
        let empty = Self {
            config: revision(session.revision, (*config)?.config),
            config_bytes: landing.bytes.config,
            turn: None,
            transcript: Arc::default(),
            open: Vec::new(),
            results: BTreeMap::new(),
            as_of: landing.as_of,
        };
        empty.after(landing)
    }

    /// The memory of a session that its owner has read. Returns `None` if the transcript has another context version
    /// than the turn, or calls are open, because these were not read.
    pub(super) fn of_owned(
        owned: &OwnedTurn,
        seen: &VisibleTranscript,
        (turn, bytes): (&TurnId, StoredSize),
        as_of: Read,
    ) -> Option<Self> {
        let is_one = seen.context_version.is_none_or(|it| it == owned.context_version);
        if !is_one || owned.newer.is_some() || owned.open_calls > 0 {
            return None;
        }
        Some(Self {
            config: Arc::new(owned.prepared_for.clone()),
            config_bytes: bytes.config,
            turn: Some(OwnTurn {
                id: turn.clone(),
                request: owned.request.clone(),
                request_bytes: bytes.request,
                started_at: owned.started_at,
                made_for: owned.prepared_for.number,
                late: owned.late,
                completed_steps: owned.completed_steps,
                totals: owned.totals,
                final_message: owned.final_message.clone(),
                trace: owned.trace.clone(),
            }),
            transcript: Arc::new(KeptTranscript { messages: seen.messages.clone(), bytes: bytes.messages }),
            open: Vec::new(),
            results: BTreeMap::new(),
            as_of,
        })
    }

    /// Its approximate size in bytes.
    pub(super) fn weight(&self) -> usize {
        let KeptTranscript { messages, bytes } = &*self.transcript;
        let request = self.turn.as_ref().map_or(0, |turn| turn.request_bytes);
        let results: usize = self.results.values().map(|(_, bytes)| bytes).sum();
        let open: usize = self.open.iter().map(KeptCall::bytes).sum();
        let items = 1 + messages.len() + self.results.len() + self.open.len();
        self.config_bytes + request + bytes + results + open + items * ITEM_BYTES
    }

    /// The memory after a commit. Returns `None` if the commit hid messages or showed them again, or wrote messages
    /// that are not known here.
    pub(super) fn after(mut self, landing: &AppliedCommit<'_>) -> Option<Self> {
        let change = landing.change;
        if hides_or_copies(change) {
            return None;
        }
        if let Some(new) = change.config {
            self.config = revision(change.session.revision, new.config);
            self.config_bytes = landing.bytes.config;
        }
        self.as_of = landing.as_of;
        self.turn = self.turn_after(landing);
        self.hand_out(landing)?;
        self.write(landing)?;
        Some(self)
    }

    fn turn_after(&mut self, landing: &AppliedCommit<'_>) -> Option<OwnTurn> {
        let AppliedCommit { change, as_of, .. } = *landing;
        let session = &change.session;
        let mut turn = match (change.begins, &session.turn) {
            (Some(row), Some(id)) => OwnTurn {
                id: id.clone(),
                request: row.request.clone(),
                request_bytes: landing.bytes.request,
                started_at: as_of.at,
                made_for: session.revision,
                late: false,
                completed_steps: 0,
                totals: UsageTotals::default(),
                final_message: None,
                trace: landing.trace.map(str::to_owned),
            },
            (None, Some(id)) => self.turn.take().filter(|turn| turn.id == *id)?,
            (_, None) => return None,
        };
        if let Some(revision) = step_begins(change) {
            turn.made_for = revision;
            turn.late = landing.turn_deadline.is_some_and(|end| end <= as_of.at);
        }
        if let Some(request) = change.turn.request {
            turn.request = request.clone();
            turn.request_bytes = landing.bytes.request;
        }
        if let Some(message) = change.turn.final_message {
            turn.final_message = Some(message.clone());
        }
        turn.completed_steps = change.turn.step_count.unwrap_or(turn.completed_steps);
        turn.totals = landing.totals.unwrap_or(turn.totals);
        Some(turn)
    }

    /// Updates the open calls.
    fn hand_out(&mut self, landing: &AppliedCommit<'_>) -> Option<()> {
        let AppliedCommit { change, as_of, .. } = *landing;
        let is_closed = |call: &CallId| change.closed.iter().any(|closed| closed.call == *call);
        self.open.retain(|kept| !is_closed(&kept.call.id));
        for RequestedCall { call, waits_for, edited } in &change.requested_calls {
            let mut open = self.open.iter_mut();
            let kept = open.find(|kept| kept.call.id == *call)?;
            kept.call.waits_for = *waits_for;
            kept.call.deadline = Some(as_of.at + kept.call.timeout);
            kept.call.request = None;
            kept.edited = edited.clone().or(kept.edited.take());
        }
        let batch = change.batch.iter().flat_map(|batch| {
            let made = (0..).zip(&batch.calls);
            made.filter_map(|(position, call)| kept_call(call, (position, &batch.results), landing))
        });
        self.open.extend(batch);
        Some(())
    }

    /// Adds the written messages and results to the transcript.
    fn write(&mut self, landing: &AppliedCommit<'_>) -> Option<()> {
        let change = landing.change;
        let early = change.rows.iter().flat_map(|rows| &rows.early);
        let early = early.map(|early| (early.position, early.part.clone()));
        let closed = change.closed.iter();
        let closed = closed.map(|closed| (closed.position as usize, closed.result()));
        for (position, part) in early.chain(closed) {
            let call = &part.part.content.as_result()?.call;
            let bytes = (landing.result_bytes)(call);
            let part = StoredPart { estimator: landing.estimator.to_owned(), ..part };
            self.results.insert(position, (part, bytes));
        }
        let messages = landing.messages?;
        let transcript = Arc::make_mut(&mut self.transcript);
        transcript.messages.extend_from_slice(messages);
        transcript.bytes += landing.bytes.messages;
        if let Some((at, message)) = &change.message {
            let calls = transcript.messages.last().map_or(0, calls_of);
            if calls != self.results.len() {
                return None;
            }
            let results = std::mem::take(&mut self.results).into_values();
            let (parts, bytes): (Vec<StoredPart>, Vec<usize>) = results.unzip();
            transcript.bytes += bytes.iter().sum::<usize>();
            let message = results_message(landing, (*at, message), parts);
            transcript.messages.push(message);
        }
        Some(())
    }

    /// The turn as its owner reads it. Returns `None` if the memory does not match the owner's last commit, or the
    /// transcript has at least `most_bytes`.
    pub(super) fn owned(
        &self,
        session: &Session,
        right: TurnFence<'_>,
        most_bytes: usize,
    ) -> Option<(OwnedTurn, VisibleTranscript)> {
        let own = session.fence == right.fence && session.turn.as_ref() == Some(right.turn);
        let turn = self.turn.as_ref().filter(|turn| turn.id == *right.turn)?;
        let revision = &*self.config;
        let is_made_for_it = revision.number == session.revision && turn.made_for == revision.number;
        let transcript = &*self.transcript;
        if !own || !is_made_for_it || transcript.bytes >= most_bytes {
            return None;
        }
        let now = self.as_of.now();
        let left = session.turn_deadline?.duration_since(now);
        let owned = OwnedTurn {
            step: session.step,
            attempt: session.attempt,
            completed_steps: turn.completed_steps,
            takeovers: session.takeovers,
            open_calls: session.open_calls,
            cancel: session.cancel.clone(),
            time_left: left.try_into().unwrap_or_default(),
            overtime: (-left).try_into().unwrap_or_default(),
            late: turn.late,
            started_at: turn.started_at,
            read_at: now,
            request: turn.request.clone(),
            prepared_for: revision.clone(),
            newer: None,
            totals: turn.totals,
            final_message: turn.final_message.clone(),
            context_tokens: session.context_tokens(),
            context_version: session.context_version,
            anchor: session.anchor.clone(),
            last_seq: session.last_seq(),
            waiting: session.has_messages_for_turn(),
            trace: turn.trace.clone(),
        };
        let is_empty = transcript.messages.is_empty();
        let seen = VisibleTranscript {
            messages: transcript.messages.clone(),
            context_version: (!is_empty).then_some(session.context_version),
            bytes: transcript.bytes,
        };
        Some((owned, seen))
    }

    /// The state from which a turn starts. Returns `None` if a turn is running or calls are open.
    pub(super) fn idle(&self, session: &Session) -> Option<PrepareInput> {
        let is_idle = session.state == SessionState::Idle && session.open_calls == 0;
        is_idle.then(|| self.basis(session))?
    }

    /// The open calls. Returns `None` if not all of them are known here.
    pub(super) fn open_calls(&self, session: &Session) -> Option<Vec<OpenCall>> {
        let calls = self.open.iter().map(|kept| kept.call.clone());
        let is_whole = self.knows_all_calls(session);
        is_whole.then(|| calls.collect())
    }

    fn knows_all_calls(&self, session: &Session) -> bool {
        u32::try_from(self.open.len()) == Ok(session.open_calls)
    }

    /// When the result or the approval of an open call was requested.
    pub(super) fn asked_at(&self, call: &CallId) -> Option<Timestamp> {
        let kept = self.open.iter().find(|kept| kept.call.id == *call)?;
        Some(kept.call.deadline? - kept.call.timeout)
    }

    /// The newest message.
    pub(super) fn newest(&self) -> Option<&Message> {
        self.transcript.messages.last()
    }

    /// The approximate current time of the database.
    pub(super) fn now(&self) -> Timestamp {
        self.as_of.now()
    }

    /// The waiting turn. Returns `None` if it does not wait for results of all calls in `named`.
    pub(super) fn waiting(&self, session: &Session, named: &[CallId]) -> Option<WaitingTurn> {
        let is_waiting = session.state == SessionState::AwaitingTools && session.cancel.is_none();
        let turn = self.turn.as_ref().filter(|_| is_waiting)?;
        let known = self.known_calls(session, &turn.id)?;
        let calls: BTreeMap<CallId, StoredCall> =
            named.iter().map(|call| Some((call.clone(), known.get(call)?.clone()))).collect::<Option<_>>()?;
        let is_asked = |call: &StoredCall| call.state == CallState::Requested;
        let is_made_for_it = turn.made_for == session.revision;
        if !is_made_for_it || !calls.values().all(is_asked) {
            return None;
        }
        let elapsed = self.as_of.now().duration_since(turn.started_at);
        Some(WaitingTurn {
            basis: self.basis(session)?,
            request: turn.request.clone(),
            elapsed: elapsed.try_into().unwrap_or_default(),
            totals: turn.totals,
            calls,
        })
    }

    fn known_calls(&self, session: &Session, turn: &TurnId) -> Option<BTreeMap<CallId, StoredCall>> {
        let batch =
            Batch { open: session.open_calls, waiting: self.results.values().map(|(part, _)| part.size.tokens).sum() };
        let known = |KeptCall { call, edited }: &KeptCall| {
            let known = StoredCall {
                turn: turn.clone(),
                step: call.step,
                name: call.tool.clone(),
                state: call_state(call),
                edited: edited.clone(),
                answer: None,
                batch,
            };
            (call.id.clone(), known)
        };
        let is_whole = self.knows_all_calls(session);
        is_whole.then(|| self.open.iter().map(known).collect())
    }

    fn basis(&self, session: &Session) -> Option<PrepareInput> {
        if self.config.number != session.revision {
            return None;
        }
        Some(PrepareInput {
            revision: Arc::clone(&self.config),
            context_tokens: session.context_tokens(),
            context_version: session.context_version,
            anchor: session.anchor.clone(),
            queued: u32::try_from(session.queue.len()).ok()?,
            model_dependent: self.holds(session),
        })
    }

    fn holds(&self, session: &Session) -> ModelDependent {
        let messages = &self.transcript.messages;
        let is_item = |part: &StoredPart| matches!(part.part.content, Content::ProviderItem(_));
        ModelDependent {
            media: messages.iter().any(|it| it.media().next().is_some()),
            reasoning: session.counters.of(Counter::Reasoning).1 > 0,
            items: messages.iter().any(|it| it.parts.iter().any(is_item)),
        }
    }
}

fn call_state(call: &OpenCall) -> CallState {
    match (call.deadline, call.waits_for) {
        (None, _) => CallState::AwaitingEarlierCalls,
        (Some(_), WaitsFor::Result { edited: _ }) => CallState::Requested,
        (Some(_), WaitsFor::Approval) => CallState::AwaitingApproval,
    }
}

/// The memory of a new call. `position` is its place in the batch. Returns `None` if the call is not run.
fn kept_call(
    call: &NewCall,
    (position, results): (u32, &MessageId),
    AppliedCommit { change, as_of, .. }: &AppliedCommit<'_>,
) -> Option<KeptCall> {
    let NewCall { id, name, part: _, handling: fate, timeout, executor } = call;
    let (waits_for, deadline, request) = match fate {
        CallHandling::Requested(waits_for) => (*waits_for, Some(as_of.at + *timeout), None),
        CallHandling::Later { waits_for, request } => {
            let request = codec::event::encode(request).payload;
            (*waits_for, None, Some(request))
        }
        CallHandling::NotRun => return None,
    };
    Some(KeptCall {
        call: OpenCall {
            id: id.clone(),
            tool: name.clone(),
            step: change.session.step,
            position,
            results: results.clone(),
            waits_for,
            deadline,
            timeout: *timeout,
            request,
            executor: *executor,
        },
        edited: None,
    })
}

fn revision(number: i64, config: &SessionConfig) -> Arc<Revision> {
    Arc::new(Revision { number, config: config.clone() })
}

/// Whether a change hides messages, shows hidden ones again, or writes messages that are not among its rows.
fn hides_or_copies(change: &Change<'_>) -> bool {
    let moves = |change: &CompactionChange<'_>| match change {
        CompactionChange::Applies { .. } | CompactionChange::Reverts { .. } => true,
        CompactionChange::Begins { .. } | CompactionChange::Fails { .. } => false,
    };
    change.marks.is_some()
        || change.compactions.iter().any(moves)
        || change.imports.is_some()
        || change.fork.is_some()
        || change.host_model_call.is_some()
        || change.rolls_back
        || change.deletes
}

/// The revision of the step that begins with a change.
fn step_begins(change: &Change<'_>) -> Option<i64> {
    let of_rows = change.rows.iter().flat_map(|rows| &rows.events);
    let of_rows = of_rows.filter_map(|(_, payload)| {
        let Payload::StepStarted(started) = payload else {
            return None;
        };
        Some(started.revision)
    });
    let own = change.events.iter().filter_map(|(_, event)| {
        let Event::StepStarted { revision, .. } = event else {
            return None;
        };
        Some(*revision)
    });
    of_rows.chain(own).last()
}

fn calls_of(message: &Message) -> usize {
    let parts = message.parts.iter();
    match message.role {
        Role::Assistant => parts.filter(|stored| stored.part.is_call()).count(),
        Role::System | Role::User | Role::Tool => 0,
    }
}

/// The message with the results of a batch. `at` is the position of its event among the events of the change.
fn results_message(
    AppliedCommit { change, as_of, .. }: &AppliedCommit<'_>,
    (at, message): (usize, &ResultMessage),
    parts: Vec<StoredPart>,
) -> Message {
    let before = change.rows.map_or(0, |rows| rows.events.len());
    let position = i64::try_from(before + at).unwrap_or(i64::MAX);
    let ResultMessage { id, step, overhead } = message;
    Message {
        id: id.clone(),
        turn: change.turn_id.clone(),
        step: *step,
        seq: Seq(change.first_seq().0 + position),
        role: Role::Tool,
        parts,
        overhead: *overhead,
        created_at: as_of.at,
        response: None,
        pinned: false,
        metadata: BTreeMap::new(),
        queued: Vec::new(),
        is_summary: false,
        compacted_by: None,
        voided_at: None,
    }
}
