//! The commit of a change of a session: its row, compared with the version that was seen, and the rows
//! that come with it, in one transaction and one round trip.

use std::sync::LazyLock;

use jiff::Timestamp;

use super::{
    Error, Store,
    named_parameters::{self, Named},
    pipeline::Param,
    row::state_number,
    rows::{Key, part_row, signed},
    seen::{SeenSession, cancel_columns},
    tool_call::{ANSWERED, DENIED, TIMED_OUT, asked_status},
};
use crate::{
    codec::event::kind,
    model::{CallId, RequestId, SessionKey, TurnId, command::Idempotency, event::WaitsFor},
    session::{
        Session, Version,
        change::{AnswerKind, AskedCall, Change, ClosedCall, Event, ResultMessage},
    },
};

/// How often a change is decided anew because the session was written meanwhile. Each time another
/// write has landed, and few write a session at a time.
pub(super) const LOST_RACES: u32 = 100;

/// What a commit carries beside its change.
#[derive(Debug, Clone, Copy, Default)]
pub struct Committed<'a> {
    /// Names it to the calls that it hands out.
    pub id: &'a str,
    /// Which estimator counted.
    pub estimator: &'a str,
    /// The request that asked for it, and what that has led to by now.
    pub request: Option<(&'a Idempotency, &'a str)>,
}

/// The second one compares the version and answers; the first one is left out where no request asked.
pub(super) static COMMIT: LazyLock<Vec<Named>> = named![
    "sql/commit/request.sql",
    "sql/commit/session.sql",
    "sql/commit/events.sql",
    "sql/commit/result_message.sql",
    "sql/commit/results.sql",
    "sql/commit/result_blobs.sql",
    "sql/commit/close_calls.sql",
    "sql/commit/ask_calls.sql",
    "sql/commit/context.sql",
];

impl Store {
    /// Reads a session, decides and commits, again and again until nobody wrote the session in between.
    /// Gives the session as it became. `None`: there is none, or `decide` changes nothing.
    pub(super) async fn change(
        &self,
        key: &SessionKey,
        decide: impl Fn(&SeenSession) -> Option<Change<'static>>,
    ) -> Result<Option<Session>, Error> {
        for _ in 0..LOST_RACES {
            let Some(seen) = self.read_session(key).await? else {
                return Ok(None);
            };
            let Some(change) = decide(&seen) else {
                return Ok(None);
            };
            let commit = Committed::default();
            if self.commit(key, &seen.version, &change, &commit).await? {
                return Ok(Some(change.session));
            }
        }
        Err(Error::Conflict("a turn's owner".to_owned()))
    }

    /// Writes a change of the session as it was seen at `version`. False: the session was written
    /// meanwhile, or another request has this one's key. Nothing was written then.
    pub async fn commit(
        &self,
        key: &SessionKey,
        version: &Version,
        change: &Change<'_>,
        commit: &Committed<'_>,
    ) -> Result<bool, Error> {
        Box::pin(self.write(key, version, change, commit)).await
    }

    async fn write(
        &self,
        key: &SessionKey,
        version: &Version,
        change: &Change<'_>,
        commit: &Committed<'_>,
    ) -> Result<bool, Error> {
        let key = Key::from(key);
        let (idempotency, led) = commit.request.unzip();
        let request = idempotency
            .and_then(|it| it.request.as_ref())
            .map(RequestId::as_str);
        let hash = idempotency.map_or("", |it| it.hash.as_str());
        let session = SessionColumns::from(change);
        let events = EventColumns::from(change);
        let closed = ClosedColumns::from(change.closed.as_slice());
        let asked = AskedColumns::from(change.asked.as_slice());
        let message = MessageColumns::new(change, events.first_seq);
        let mut values = vec![
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("version", &version.0),
            ("request_id", &request),
            ("request_hash", &hash),
            ("led", &led),
            ("submission", &commit.id),
            ("estimator", &commit.estimator),
        ];
        values.extend(session.values());
        values.extend(events.values());
        values.extend(closed.values());
        values.extend(asked.values());
        values.extend(message.values());
        let is_needed = |name: &str| match name {
            "store::commit::result_message" => change.message.is_some(),
            "store::commit::results" | "store::commit::close_calls" | "store::commit::context" => {
                !change.closed.is_empty()
            }
            "store::commit::result_blobs" => !closed.blobs.is_empty(),
            "store::commit::ask_calls" => !change.asked.is_empty(),
            "store::commit::request" => request.is_some(),
            _ => true,
        };
        let written = named_parameters::queries(&COMMIT, &values, is_needed)?;
        let own = usize::from(request.is_some());
        let answers = self.database.transact(&written).await?;
        Ok(answers.get(own).is_some_and(|rows| !rows.is_empty()))
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
    context_tokens: i64,
    turn: Option<&'a str>,
    lease: Option<f64>,
    wake_at: Option<Timestamp>,
    wake_within: Option<f64>,
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
            context_tokens: session.context_tokens,
            turn: session.turn.as_ref().map(TurnId::as_str),
            lease: change.lease.map(|lease| lease.as_secs_f64()),
            wake_at: session.wake_at,
            wake_within: change.wake_within.map(|within| within.as_secs_f64()),
        }
    }
}

impl SessionColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 18] {
        let (cancel, cause, reason) = &self.cancel;
        [
            ("state", &self.state),
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
            ("context_tokens", &self.context_tokens),
            ("turn", &self.turn),
            ("lease", &self.lease),
            ("wake_at", &self.wake_at),
            ("wake_within", &self.wake_within),
        ]
    }
}

struct EventColumns<'a> {
    first_seq: i64,
    kinds: Vec<&'static str>,
    payloads: Vec<&'a [u8]>,
    sizes: Vec<Option<i64>>,
    steps: Vec<i32>,
    attempts: Vec<i32>,
    refs: Vec<String>,
    /// The event that each reference belongs to, the first is 1.
    ref_events: Vec<i32>,
}

impl<'a> From<&'a Change<'_>> for EventColumns<'a> {
    fn from(change: &'a Change<'_>) -> Self {
        let count = change.events.len();
        let mut columns = Self {
            first_seq: change.session.next_seq.0 - i64::try_from(count).unwrap_or_default(),
            kinds: Vec::with_capacity(count),
            payloads: Vec::with_capacity(count),
            sizes: Vec::with_capacity(count),
            steps: Vec::with_capacity(count),
            attempts: Vec::with_capacity(count),
            refs: Vec::new(),
            ref_events: Vec::new(),
        };
        for (n, (at, event)) in (1..).zip(&change.events) {
            let Written {
                kind,
                refs,
                size,
                payload,
            } = written(event);
            columns.kinds.push(kind);
            columns.payloads.push(payload);
            columns.sizes.push(size);
            columns.steps.push(signed(at.step));
            columns.attempts.push(signed(at.attempt));
            columns.ref_events.extend(refs.iter().map(|_| n));
            columns.refs.extend(refs);
        }
        columns
    }
}

impl EventColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 8] {
        [
            ("first_seq", &self.first_seq),
            ("event_kinds", &self.kinds),
            ("event_payloads", &self.payloads),
            ("event_sizes", &self.sizes),
            ("event_steps", &self.steps),
            ("event_attempts", &self.attempts),
            ("refs", &self.refs),
            ("ref_events", &self.ref_events),
        ]
    }
}

/// An event as its row has it.
struct Written<'a> {
    kind: &'static str,
    refs: Vec<String>,
    size: Option<i64>,
    payload: &'a [u8],
}

fn written(event: &Event) -> Written<'_> {
    let ids = |calls: &[CallId]| calls.iter().map(CallId::to_string).collect();
    match event {
        Event::CallCompleted(call) => Written {
            kind: kind::TOOL_CALL_COMPLETED,
            refs: vec![call.to_string()],
            size: None,
            payload: &[],
        },
        Event::CallAsked {
            call,
            waits_for,
            request,
        } => Written {
            kind: match waits_for {
                WaitsFor::Result { edited: _ } => kind::TOOL_CALL_REQUESTED,
                WaitsFor::Approval => kind::APPROVAL_REQUESTED,
            },
            refs: vec![call.to_string()],
            size: None,
            payload: request,
        },
        Event::ActionRequired { calls, to_run } => Written {
            kind: kind::ACTION_REQUIRED,
            refs: ids(calls),
            size: i64::try_from(*to_run).ok(),
            payload: &[],
        },
        Event::MessageCommitted(message) => Written {
            kind: kind::MESSAGE_COMMITTED,
            refs: vec![message.to_string()],
            size: None,
            payload: &[],
        },
        Event::StepStarted {
            revision,
            prompt_tokens,
            started,
        } => Written {
            kind: kind::STEP_STARTED,
            refs: vec![revision.to_string()],
            size: Some(*prompt_tokens),
            payload: started,
        },
        Event::TurnRecovered {
            handed_over,
            takeovers,
        } => Written {
            kind: kind::TURN_RECOVERED,
            refs: vec![
                if *handed_over {
                    kind::HANDED_OVER
                } else {
                    kind::LEASE_EXPIRED
                }
                .to_owned(),
            ],
            size: Some(i64::from(*takeovers)),
            payload: &[],
        },
    }
}

/// The message of the results, and what they add to the transcript.
struct MessageColumns<'a> {
    id: Option<&'a str>,
    seq: i64,
    step: i32,
    messages: i32,
    overhead: i32,
    results: i32,
    results_tokens: i64,
}

impl<'a> MessageColumns<'a> {
    fn new(change: &'a Change<'_>, first_seq: i64) -> Self {
        let tokens = |call: &ClosedCall<'_>| i64::from(call.answer.tokens);
        let columns = Self {
            id: None,
            seq: 0,
            step: 0,
            messages: 0,
            overhead: 0,
            results: i32::try_from(change.closed.len()).unwrap_or(i32::MAX),
            results_tokens: change.closed.iter().map(tokens).sum(),
        };
        let Some((at, ResultMessage { id, step, overhead })) = &change.message else {
            return columns;
        };
        Self {
            id: Some(id.as_str()),
            seq: first_seq + i64::try_from(*at).unwrap_or_default(),
            step: signed(*step),
            messages: 1,
            overhead: signed(*overhead),
            ..columns
        }
    }

    fn values(&self) -> [(&'static str, Param<'_>); 8] {
        [
            ("message", &self.id),
            ("message_seq", &self.seq),
            ("message_step", &self.step),
            ("message_overhead", &self.overhead),
            ("messages", &self.messages),
            ("overhead", &self.overhead),
            ("results", &self.results),
            ("results_tokens", &self.results_tokens),
        ]
    }
}

#[derive(Default)]
struct ClosedColumns<'a> {
    calls: Vec<&'a str>,
    tools: Vec<&'a str>,
    statuses: Vec<i16>,
    hashes: Vec<&'a str>,
    messages: Vec<&'a str>,
    positions: Vec<i32>,
    outcomes: Vec<Option<i16>>,
    bodies: Vec<String>,
    rests: Vec<Option<Vec<u8>>>,
    tokens: Vec<i32>,
    blobs: Vec<&'a str>,
    blob_messages: Vec<&'a str>,
    blob_positions: Vec<i32>,
}

impl<'a> From<&'a [ClosedCall<'_>]> for ClosedColumns<'a> {
    fn from(closed: &'a [ClosedCall<'_>]) -> Self {
        let mut columns = Self::default();
        for call in closed {
            let ClosedCall {
                answer,
                tool,
                position,
                message,
            } = call;
            let row = part_row(&answer.part);
            columns.calls.push(answer.call.as_str());
            columns.tools.push(tool);
            columns.statuses.push(closed_status(answer.kind));
            columns.hashes.push(&answer.hash);
            columns.messages.push(message.as_str());
            columns.positions.push(signed(*position));
            columns.outcomes.push(row.outcome);
            columns.bodies.push(row.body);
            columns.rests.push(row.rest);
            columns.tokens.push(signed(answer.tokens));
            for blob in &answer.blobs {
                columns.blobs.push(blob.as_str());
                columns.blob_messages.push(message.as_str());
                columns.blob_positions.push(signed(*position));
            }
        }
        columns
    }
}

impl ClosedColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 13] {
        [
            ("closed_calls", &self.calls),
            ("closed_tools", &self.tools),
            ("closed_statuses", &self.statuses),
            ("hashes", &self.hashes),
            ("result_messages", &self.messages),
            ("result_positions", &self.positions),
            ("outcomes", &self.outcomes),
            ("bodies", &self.bodies),
            ("rests", &self.rests),
            ("result_tokens", &self.tokens),
            ("blobs", &self.blobs),
            ("blob_messages", &self.blob_messages),
            ("blob_positions", &self.blob_positions),
        ]
    }
}

fn closed_status(kind: AnswerKind) -> i16 {
    match kind {
        AnswerKind::Result { edited: _ } => ANSWERED,
        AnswerKind::Denial => DENIED,
        AnswerKind::Overdue => TIMED_OUT,
    }
}

#[derive(Default)]
struct AskedColumns<'a> {
    calls: Vec<&'a str>,
    statuses: Vec<i16>,
    edits: Vec<Option<&'a str>>,
}

impl<'a> From<&'a [AskedCall]> for AskedColumns<'a> {
    fn from(asked: &'a [AskedCall]) -> Self {
        let mut columns = Self::default();
        for AskedCall {
            call,
            waits_for,
            edited,
        } in asked
        {
            columns.calls.push(call.as_str());
            columns.statuses.push(asked_status(*waits_for));
            columns.edits.push(edited.as_deref());
        }
        columns
    }
}

impl AskedColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 3] {
        [
            ("asked_calls", &self.calls),
            ("asked_statuses", &self.statuses),
            ("edits", &self.edits),
        ]
    }
}
