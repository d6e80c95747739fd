//! A session change as columns, which are the parameters of its commit.

use jiff::Timestamp;

use crate::{
    codec,
    model::{CallId, Message, MessageId, RequestId, TenantId, TurnId, UsagePurpose, UsageTotals, event::WaitsFor},
    session::{
        Session,
        change::{AnchorTime, AnswerKind, Change, ClosedBy, ClosedCall, RequestedCall, TurnChange, TurnRow},
        new_calls::{Batch, CallHandling, NewCall},
    },
    store::{
        anchor::AnchorColumns,
        commit::{
            compaction_columns::CompactionColumns,
            config_columns::ConfigColumns,
            event_columns::EventColumns,
            fork_columns::ForkColumns,
            import_columns::ImportColumns,
            mark_columns::MarkColumns,
            queue_columns::QueueColumns,
            recent_events::{self, ReferencedContent},
        },
        counters::CounterColumns,
        pipeline::Param,
        recent_events::RecentEvent,
        row::{ended_number, state_number},
        rows::{MessageColumns, PartColumns, signed},
        seen::cancel_columns,
        session_memory::StoredSize,
        tool_call::{
            ANSWERED, APPROVAL, CANCELLED, DENIED, REQUESTED, TIMED_OUT, WAITING, executor_number, requested_status,
        },
    },
};

/// All columns of a change.
pub(super) struct Columns<'a> {
    session: SessionColumns<'a>,
    events: EventColumns,
    messages: MessageColumns<'a>,
    parts: PartColumns<'a>,
    blobs: BlobColumns<'a>,
    closed: ClosedColumns<'a>,
    requested_calls: RequestedCallColumns<'a>,
    calls: CallColumns<'a>,
    new_turn: NewTurnColumns<'a>,
    turn: TurnColumns<'a>,
    queue: QueueColumns<'a>,
    config: ConfigColumns<'a>,
    marks: MarkColumns<'a>,
    compactions: CompactionColumns<'a>,
    imports: ImportColumns<'a>,
    fork: ForkColumns<'a>,
    described: Option<&'a str>,
    description: &'a [u8],
    is_use: bool,
    creates: bool,
    deletes: bool,
    takes_back: bool,
}

impl<'a> Columns<'a> {
    /// The columns of a change to the session as it was read.
    pub(super) fn new(tenant: &TenantId, seen: &'a Session, change: &'a Change<'_>) -> Self {
        let (parts, blobs) = parts(change);
        let (described, description) = change.host_model_call.unzip();
        Self {
            session: SessionColumns::from(change),
            events: EventColumns::from(change),
            messages: messages(change),
            parts,
            blobs,
            closed: ClosedColumns::from(change.closed.as_slice()),
            requested_calls: RequestedCallColumns::from(change.requested_calls.as_slice()),
            calls: CallColumns::from(change.batch),
            new_turn: NewTurnColumns::from(change.begins),
            turn: TurnColumns::from(change),
            queue: QueueColumns::from(&change.queue),
            config: ConfigColumns::new(tenant, change.config),
            marks: MarkColumns::from(change.marks),
            compactions: CompactionColumns::new(seen, change),
            imports: ImportColumns::from(change.imports),
            fork: ForkColumns::from(change.fork),
            described: described.map(MessageId::as_str),
            description: description.unwrap_or_default(),
            is_use: change.is_use,
            creates: change.creates,
            deletes: change.deletes,
            takes_back: change.rolls_back,
        }
    }
}

impl Columns<'_> {
    pub(super) fn values(&self) -> Vec<(&'static str, Param<'_>)> {
        let mut values = self.session.values();
        values.extend(self.events.values());
        values.extend(self.messages.values());
        values.extend(self.parts.values());
        values.extend(self.blobs.values());
        values.extend(self.closed.values());
        values.extend(self.requested_calls.values());
        values.extend(self.calls.values());
        values.extend(self.new_turn.values());
        values.extend(self.turn.values());
        values.extend(self.queue.values());
        values.extend(self.config.values());
        values.extend(self.marks.values());
        values.extend(self.compactions.values());
        values.extend(self.imports.values());
        values.extend(self.fork.values());
        values.extend([("described", &self.described as Param<'_>), ("description", &self.description)]);
        values
    }

    /// Adds the events of this change, and the messages and results they refer to, as a reader sees them after the
    /// commit at `at`.
    pub(super) fn add_events(
        &self,
        recent: &mut Vec<RecentEvent>,
        change: &Change<'_>,
        refers: ReferencedContent<'_>,
        (at, totals): (Timestamp, Option<UsageTotals>),
    ) {
        let events = self.events.stored(change.turn_id.as_ref(), at, totals);
        recent_events::add(recent, change, events, refers, |id| {
            (self.messages.info_bytes(id) + self.parts.bytes_of(id)) as u64
        });
    }

    /// Sizes in bytes of what the change writes, including these messages.
    pub(super) fn written_bytes(&self, messages: &[Message]) -> StoredSize {
        let ids = messages.iter().map(|message| message.id.as_str());
        StoredSize {
            messages: ids.map(|id| self.messages.info_bytes(id) + self.parts.content_bytes(id)).sum(),
            config: self.config.bytes(),
            request: self.new_turn.asked.len() + self.turn.request.as_ref().map_or(0, Vec::len),
        }
    }

    /// Size in bytes of the result of a call.
    pub(super) fn result_bytes(&self, call: &CallId) -> usize {
        self.parts.content_bytes(call.as_str())
    }

    /// Whether the named statement has something to write.
    pub(super) fn need(&self, statement: &str) -> bool {
        match statement {
            "events" => !self.events.is_empty(),
            "messages" => !self.messages.is_empty(),
            "parts" => !self.parts.is_empty(),
            "media" => !self.blobs.ids.is_empty(),
            "close_calls" => !self.closed.calls.is_empty(),
            "ask_calls" => !self.requested_calls.calls.is_empty(),
            "new_calls" => !self.calls.ids.is_empty(),
            "turn" => self.turn.changes,
            "session" => !self.creates,
            "new_run" | "new_activity" => self.creates,
            "new_session" => self.creates && !self.fork.is_fork || self.fork.opens,
            "spend" => self.turn.totals.calls > 0,
            "session_used" => self.is_use && !self.creates,
            "new_turn" => self.new_turn.begins,
            "message_info" => self.described.is_some(),
            "toolset" | "revision" => self.config.changes,
            "gone" | "unlist" | "last_epoch" => self.deletes,
            "void" => self.takes_back,
            name => {
                let queue = self.queue.need(name);
                let marks = queue.or_else(|| self.marks.need(name));
                let compactions = marks.or_else(|| self.compactions.need(name));
                let imports = compactions.or_else(|| self.imports.need(name));
                imports.or_else(|| self.fork.need(name)).unwrap_or(true)
            }
        }
    }
}

struct SessionColumns<'a> {
    state: i16,
    epoch: i64,
    op: i64,
    written_by: Option<&'a str>,
    owner: Option<&'a str>,
    takeovers: i16,
    cancel: (i16, i16, &'a str),
    step: i32,
    attempt: i32,
    open_calls: i32,
    next_seq: i64,
    counters: CounterColumns<'a>,
    about: Option<&'a str>,
    turn: Option<&'a str>,
    turn_ends_within: Option<f64>,
    context_version: i64,
    lease: Option<f64>,
    wake_at: Option<Timestamp>,
    wake_within: Option<f64>,
    anchor: AnchorColumns<'a>,
    measured: bool,
    measured_at: Option<Timestamp>,
    growth: Option<f64>,
    revision: i64,
}

impl<'a> From<&'a Change<'_>> for SessionColumns<'a> {
    fn from(change: &'a Change<'_>) -> Self {
        let session = &change.session;
        Self {
            state: state_number(session.state),
            epoch: session.fence.epoch,
            op: session.fence.op,
            written_by: session.written_by.as_deref(),
            owner: session.owner.as_deref(),
            takeovers: i16::try_from(session.takeovers).unwrap_or(i16::MAX),
            cancel: cancel_columns(session.cancel.as_ref()),
            step: signed(session.step),
            attempt: signed(session.attempt),
            open_calls: signed(session.open_calls),
            next_seq: session.next_seq.0,
            counters: CounterColumns::from(&session.counters),
            about: change.turn_id.as_ref().map(TurnId::as_str),
            turn: session.turn.as_ref().map(TurnId::as_str),
            turn_ends_within: change.turn_ends_within.map(|within| within.as_secs_f64()),
            context_version: session.context_version,
            lease: change.lease.map(|lease| lease.as_secs_f64()),
            wake_at: session.wake_at,
            wake_within: change.wake_within.map(|within| within.as_secs_f64()),
            anchor: AnchorColumns::from(session.anchor.as_ref()),
            measured: change.anchor_time == AnchorTime::Now,
            measured_at: match change.anchor_time {
                AnchorTime::At(at) => Some(at),
                AnchorTime::AsBefore | AnchorTime::Now => None,
            },
            growth: session.growth,
            revision: session.revision,
        }
    }
}

impl SessionColumns<'_> {
    fn values(&self) -> Vec<(&'static str, Param<'_>)> {
        let (cancel, cause, reason) = &self.cancel;
        let mut values = self.anchor.values().to_vec();
        values.extend(self.counters.values());
        values.extend([
            ("state", &self.state as Param<'_>),
            ("new_epoch", &self.epoch),
            ("new_op", &self.op),
            ("written_by", &self.written_by),
            ("new_owner", &self.owner),
            ("takeovers", &self.takeovers),
            ("cancel", cancel),
            ("cancel_cause", cause),
            ("cancel_reason", reason),
            ("step", &self.step),
            ("attempt", &self.attempt),
            ("open_calls", &self.open_calls),
            ("next_seq", &self.next_seq),
            ("turn", &self.about),
            ("new_turn", &self.turn),
            ("turn_ends_within", &self.turn_ends_within),
            ("context_version", &self.context_version),
            ("lease", &self.lease),
            ("wake_at", &self.wake_at),
            ("wake_within", &self.wake_within),
            ("measured", &self.measured),
            ("measured_at", &self.measured_at),
            ("growth", &self.growth),
            ("revision", &self.revision),
        ]);
        values
    }
}

/// The blobs that parts refer to, by message and position of the part.
#[derive(Default)]
struct BlobColumns<'a> {
    ids: Vec<String>,
    messages: Vec<&'a str>,
    positions: Vec<i32>,
}

impl<'a> BlobColumns<'a> {
    fn push(&mut self, message: &'a str, position: i32, blob: &str) {
        self.ids.push(blob.to_owned());
        self.messages.push(message);
        self.positions.push(position);
    }

    fn values(&self) -> [(&'static str, Param<'_>); 3] {
        [("blobs", &self.ids), ("blob_messages", &self.messages), ("blob_positions", &self.positions)]
    }
}

/// The parts of a change: those of its rows, and the results of the calls it closes.
fn parts<'a>(change: &'a Change<'_>) -> (PartColumns<'a>, BlobColumns<'a>) {
    let mut parts = PartColumns::default();
    let mut blobs = BlobColumns::default();
    if let Some(rows) = change.rows {
        parts.add(rows);
    }
    for (message, position, blob) in parts.media() {
        blobs.push(message, position, blob);
    }
    for closed in &change.closed {
        let position = signed(closed.position);
        match closed.closed_by {
            ClosedBy::Answer(answer) => {
                for blob in &answer.blobs {
                    blobs.push(closed.message.as_str(), position, blob.as_str());
                }
            }
            ClosedBy::Synthetic(_) => {}
        }
        parts.push((&closed.message, position), &closed.result());
    }
    for ((message, position), blob) in change.imports.map_or(&[][..], |it| it.blobs) {
        let position = i32::try_from(*position).unwrap_or(i32::MAX);
        blobs.push(message.as_str(), position, blob.as_str());
    }
    if let Some(joining) = change.queue.added {
        for (position, blob) in (1..).zip(joining.blobs) {
            blobs.push(joining.message.as_str(), position, blob);
        }
    }
    (parts, blobs)
}

/// The messages of a change: those of its rows, and the message that holds tool results.
fn messages<'a>(change: &'a Change<'_>) -> MessageColumns<'a> {
    let mut messages = MessageColumns::default();
    if let Some(rows) = change.rows {
        messages.add(rows, change.imports.map(|imported| imported.version_before));
    }
    if let Some((at, message)) = &change.message {
        let before = change.rows.map_or(0, |rows| rows.events.len());
        messages.results(before + at, message);
    }
    messages
}

#[derive(Default)]
struct ClosedColumns<'a> {
    calls: Vec<&'a str>,
    statuses: Vec<i16>,
    hashes: Vec<Option<&'a str>>,
}

impl<'a> From<&'a [ClosedCall<'_>]> for ClosedColumns<'a> {
    fn from(closed: &'a [ClosedCall<'_>]) -> Self {
        let mut columns = Self::default();
        for ClosedCall { call, closed_by: with, .. } in closed {
            columns.calls.push(call.as_str());
            columns.statuses.push(closed_status(with));
            columns.hashes.push(match with {
                ClosedBy::Answer(answer) => Some(&answer.hash),
                ClosedBy::Synthetic(_) => None,
            });
        }
        columns
    }
}

impl ClosedColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 3] {
        [("closed_calls", &self.calls), ("closed_statuses", &self.statuses), ("hashes", &self.hashes)]
    }
}

fn closed_status(with: &ClosedBy<'_>) -> i16 {
    match with {
        ClosedBy::Synthetic(_) => CANCELLED,
        ClosedBy::Answer(answer) => match answer.kind {
            AnswerKind::Result { edited: _ } => ANSWERED,
            AnswerKind::Denial => DENIED,
            AnswerKind::Overdue => TIMED_OUT,
        },
    }
}

#[derive(Default)]
struct RequestedCallColumns<'a> {
    calls: Vec<&'a str>,
    statuses: Vec<i16>,
    edits: Vec<Option<&'a str>>,
}

impl<'a> From<&'a [RequestedCall]> for RequestedCallColumns<'a> {
    fn from(asked: &'a [RequestedCall]) -> Self {
        let mut columns = Self::default();
        for RequestedCall { call, waits_for, edited } in asked {
            columns.calls.push(call.as_str());
            columns.statuses.push(requested_status(*waits_for));
            columns.edits.push(edited.as_deref());
        }
        columns
    }
}

impl RequestedCallColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 3] {
        [("asked_calls", &self.calls), ("asked_statuses", &self.statuses), ("edits", &self.edits)]
    }
}

#[derive(Default)]
struct CallColumns<'a> {
    ids: Vec<&'a str>,
    names: Vec<&'a str>,
    parts: Vec<i32>,
    ords: Vec<i32>,
    timeouts: Vec<f64>,
    executors: Vec<i16>,
    statuses: Vec<i16>,
    closed: Vec<bool>,
    requests: Vec<Option<Vec<u8>>>,
    message: &'a str,
    results: &'a str,
}

impl<'a> From<Option<&'a Batch>> for CallColumns<'a> {
    fn from(batch: Option<&'a Batch>) -> Self {
        let Some(Batch { message, results, calls }) = batch else {
            return Self::default();
        };
        let mut columns = Self { message: message.as_str(), results: results.as_str(), ..Self::default() };
        for (ord, NewCall { id, name, part, handling: fate, timeout, executor }) in (0..).zip(calls) {
            columns.ids.push(id.as_str());
            columns.names.push(name);
            columns.parts.push(i32::try_from(*part).unwrap_or(i32::MAX));
            columns.ords.push(ord);
            columns.timeouts.push(timeout.as_secs_f64());
            columns.executors.push(executor_number(*executor));
            columns.statuses.push(new_status(fate));
            columns.closed.push(!fate.is_open());
            columns.requests.push(later_request(fate));
        }
        columns
    }
}

impl CallColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 11] {
        [
            ("call_ids", &self.ids),
            ("call_names", &self.names),
            ("call_parts", &self.parts),
            ("call_ords", &self.ords),
            ("call_timeouts", &self.timeouts),
            ("call_executors", &self.executors),
            ("call_statuses", &self.statuses),
            ("call_closed", &self.closed),
            ("call_requests", &self.requests),
            ("calls_message", &self.message),
            ("results_message", &self.results),
        ]
    }
}

fn new_status(fate: &CallHandling) -> i16 {
    match fate {
        CallHandling::Requested(WaitsFor::Result { .. }) => REQUESTED,
        CallHandling::Later { waits_for: WaitsFor::Result { .. }, .. } => WAITING,
        CallHandling::Requested(WaitsFor::Approval) | CallHandling::Later { waits_for: WaitsFor::Approval, .. } => {
            APPROVAL
        }
        CallHandling::NotRun => CANCELLED,
    }
}

/// The encoded request event of a call that waits for an earlier call.
fn later_request(fate: &CallHandling) -> Option<Vec<u8>> {
    match fate {
        CallHandling::Later { waits_for: _, request } => Some(codec::event::encode(request).payload),
        CallHandling::Requested(_) | CallHandling::NotRun => None,
    }
}

struct TurnColumns<'a> {
    changes: bool,
    step_count: Option<i32>,
    final_message: Option<&'a str>,
    request: Option<Vec<u8>>,
    model_from_now: Option<&'a str>,
    state: Option<i16>,
    outcome: Option<Vec<u8>>,
    last_seq: Option<i64>,
    purpose: i16,
    model: &'a str,
    totals: UsageTotals,
}

impl<'a> From<&'a Change<'_>> for TurnColumns<'a> {
    fn from(change: &'a Change<'_>) -> Self {
        let TurnChange { step_count, final_message, request, end } = change.turn;
        let spent = change.usage;
        let is_of_turn = change.turn_id.is_some();
        Self {
            changes: is_of_turn && (change.turn != TurnChange::default() || spent.is_some()),
            step_count: step_count.map(signed),
            final_message: final_message.map(|message| message.as_str()),
            request: request.map(codec::turn::encode_request),
            model_from_now: request.and_then(|request| request.model.as_deref()),
            state: end.map(|(ending, _)| ended_number(ending.state())),
            outcome: end.map(|(ending, result)| codec::turn::encode_outcome(ending, result)),
            last_seq: change.seq_of_end().map(|seq| seq.0),
            purpose: purpose_number(spent.map_or(UsagePurpose::Turn, |spent| spent.purpose)),
            model: spent.map_or("", |spent| spent.model),
            totals: spent.map(|spent| spent.totals).unwrap_or_default(),
        }
    }
}

/// The value of `usage_totals.purpose`.
fn purpose_number(purpose: UsagePurpose) -> i16 {
    match purpose {
        UsagePurpose::Turn => 1,
        UsagePurpose::Compaction => 2,
    }
}

impl TurnColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 15] {
        let UsageTotals { calls, input, output, reasoning, cache_read, cache_write } = &self.totals;
        [
            ("step_count", &self.step_count),
            ("final_message", &self.final_message),
            ("turn_request", &self.request),
            ("turn_model", &self.model_from_now),
            ("turn_state", &self.state),
            ("outcome", &self.outcome),
            ("turn_last_seq", &self.last_seq),
            ("purpose", &self.purpose),
            ("model", &self.model),
            ("calls", calls),
            ("input_tokens", input),
            ("output_tokens", output),
            ("reasoning_tokens", reasoning),
            ("cache_read_tokens", cache_read),
            ("cache_write_tokens", cache_write),
        ]
    }
}

/// The row of a new turn.
#[derive(Default)]
struct NewTurnColumns<'a> {
    begins: bool,
    asked_by: Option<&'a str>,
    asked: Vec<u8>,
    model: &'a str,
}

impl<'a> From<Option<TurnRow<'a>>> for NewTurnColumns<'a> {
    fn from(row: Option<TurnRow<'a>>) -> Self {
        let Some(TurnRow { request_id, request, model }) = row else {
            return Self::default();
        };
        Self {
            begins: true,
            asked_by: request_id.map(RequestId::as_str),
            asked: codec::turn::encode_request(request),
            model,
        }
    }
}

impl NewTurnColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 3] {
        [("asked_by", &self.asked_by), ("asked", &self.asked), ("asked_model", &self.model)]
    }
}
