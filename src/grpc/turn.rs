//! TurnService: executes turns, streams their events, accepts tool results and cancels turns.

use std::sync::Arc;

use prost::Message as _;
use tonic::{Request, Response, Status};

use super::{
    deadline,
    decode::{GetTurn, ListEvents, ListOfSession, StreamOptions},
    encode,
    handler::{self, service},
    page_budget::{PAGE_BYTES, READ_BYTES},
    pager::Pager,
    preview::{fit_event, fit_turn},
    status,
    stream::{EventStream, Reader},
};
use crate::{
    codec::{
        self,
        field::{Field as _, choices},
    },
    config::StreamConfig,
    model::{
        CallId, Principal, Seq, SessionKey, TurnId, TurnState,
        command::{AnswerStatus, CancelTurn, SubmitToolResults, Watch},
    },
    pb::{self, turn_service_server::TurnService},
    store::{event_page::EventPageLimits, turn_read::Turn},
    turn::{
        Engine, Error,
        run::{
            cancel::Cancelled,
            execute::{AdmissionKind, Admitted, StreamEnd},
        },
    },
};

/// Events per database read of ListEvents.
const EVENTS_PER_READ: u32 = 100;

/// TurnService on top of an engine.
#[derive(Debug, Clone)]
pub struct Turns {
    engine: Arc<Engine>,
    stream: StreamConfig,
}

impl Turns {
    /// Creates the service.
    pub fn new(engine: Arc<Engine>, stream: StreamConfig) -> Self {
        Self { engine, stream }
    }

    async fn stored_turn(&self, key: &SessionKey, turn: &TurnId) -> Result<Turn, Error> {
        let found = self.engine.store().turn(key, turn).await?;
        found.ok_or_else(|| Error::TurnNotFound(turn.clone()))
    }

    /// Encodes a turn with its pending tool calls.
    async fn encode_turn(&self, key: &SessionKey, turn: &Turn) -> Result<pb::Turn, Status> {
        let pending = match turn.state {
            TurnState::AwaitingTools => {
                self.engine.store().open_calls(key).await?.into_iter().map(|open| open.pending).collect()
            }
            TurnState::Running | TurnState::Completed | TurnState::Cancelled | TurnState::Failed => Vec::new(),
        };
        let limits = self.engine.prompts.limits(&turn.config, &turn.request);
        let mut shown =
            encode::turn(turn, key.session.as_str(), &limits, &pending).map_err(|error| status::internal(&error))?;
        fit_turn(&self.engine, key, &mut shown).await?;
        Ok(shown)
    }

    /// What the cancellation interrupted, from the turn's terminal event. Returns `CancelOutcome::None` if
    /// the turn has not ended or was not cancelled.
    async fn cancel_outcome(&self, key: &SessionKey, turn: &Turn) -> Result<pb::CancelOutcome, Status> {
        let Some(end) = turn.last_seq else {
            return Ok(pb::CancelOutcome::None);
        };
        let event = self.engine.store().event(key, end).await?;
        let event =
            event.map(|event| codec::event::to_pb(&event, &key.session, &codec::event::EventContent::default()));
        Ok(match event.and_then(|event| event.payload) {
            Some(pb::event::Payload::TurnCancelled(cancelled)) => cancelled.outcome(),
            _ => pb::CancelOutcome::None,
        })
    }

    async fn list_events(
        &self,
        caller: Principal,
        ListEvents { session, turn, after, size }: ListEvents,
    ) -> Result<pb::ListEventsResponse, Status> {
        let key = &SessionKey::new(caller.tenant, session);
        let session = self.engine.prompts.session(key).await?;
        let last = session.last_seq;
        if after > last {
            return Err(Error::CursorAhead { last }.into());
        }
        let mut at = after.max(session.fork_seq());
        let end = match &turn {
            Some(turn) => {
                let turn = self.stored_turn(key, turn).await?;
                at = at.max(Seq(turn.first_seq.0 - 1));
                turn.last_seq.unwrap_or(last)
            }
            None => last,
        };
        session.check_cursor(at).map_err(Error::from)?;
        let mut events = Vec::new();
        let mut bytes = 0;
        'page: while at < end && events.len() < size as usize {
            let most = EventPageLimits {
                events: size.min(EVENTS_PER_READ),
                bytes: PAGE_BYTES.saturating_sub(bytes) as u64,
                overhead: 0,
                at_least_one: events.is_empty(),
            };
            let read = self.engine.store().follow(key, at, most).await?;
            if read.is_gone {
                return Err(Error::SessionNotFound(key.session.clone()).into());
            }
            if read.events.is_empty() {
                break;
            }
            for event in &read.events {
                let ours = turn.as_ref().is_none_or(|turn| event.turn.as_ref() == Some(turn));
                if ours && events.len() == size as usize {
                    break 'page;
                }
                if ours {
                    let mut shown = codec::event::to_pb(event, &key.session, &read.content);
                    fit_event(&self.engine, key, &mut shown).await?;
                    bytes += shown.encoded_len();
                    if bytes > PAGE_BYTES && !events.is_empty() {
                        break 'page;
                    }
                    events.push(shown);
                }
                at = event.seq;
            }
        }
        let next = if at >= end { last.max(at) } else { at };
        Ok(pb::ListEventsResponse { events, next_after_seq: next.0, last_seq: last.0.max(at.0) })
    }

    async fn get_turn(
        &self,
        caller: Principal,
        GetTurn { session, turn }: GetTurn,
    ) -> Result<pb::GetTurnResponse, Status> {
        let key = SessionKey::new(caller.tenant, session);
        self.engine.prompts.session(&key).await?;
        let turn = self.stored_turn(&key, &turn).await?;
        Ok(pb::GetTurnResponse { turn: Some(self.encode_turn(&key, &turn).await?) })
    }

    async fn list_turns(
        &self,
        caller: Principal,
        ListOfSession { session, page }: ListOfSession,
    ) -> Result<pb::ListTurnsResponse, Status> {
        let key = SessionKey::new(caller.tenant, session);
        self.engine.prompts.session(&key).await?;
        let mut page: Pager<i64, _> = Pager::new("ListTurns", format!("{}/{}", key.tenant, key.session), page)?;
        // One read per page: what is shown of a turn may be much smaller than what is read.
        if let Some(most) = page.next_read(u32::MAX) {
            let before = Seq(page.position.unwrap_or(i64::MAX));
            let read = self.engine.store().turns(&key, before, most, READ_BYTES).await?;
            for turn in page.take(read.items, read.more) {
                if !page.push(turn.first_seq.0, self.encode_turn(&key, &turn).await?) {
                    break;
                }
            }
        }
        let (turns, next_page_token) = page.finish();
        Ok(pb::ListTurnsResponse { turns, next_page_token })
    }

    async fn submit_tool_results(
        &self,
        caller: Principal,
        command: SubmitToolResults,
    ) -> Result<pb::SubmitToolResultsResponse, Status> {
        let receipts = self.engine.submit(caller.tenant, command).await?;
        let receipt = |(call, status): (CallId, AnswerStatus)| pb::AnswerReceipt {
            call_id: call.into_string(),
            status: status.to_field(),
        };
        Ok(pb::SubmitToolResultsResponse {
            receipts: receipts.answers.into_iter().map(receipt).collect(),
            pending_call_ids: receipts.pending.into_iter().map(CallId::into_string).collect(),
        })
    }

    async fn cancel_turn(&self, caller: Principal, command: CancelTurn) -> Result<pb::CancelTurnResponse, Status> {
        let key = SessionKey::new(caller.tenant.clone(), command.session.clone());
        let Some(cancelled) = self.engine.cancel(caller.tenant, command).await? else {
            return Ok(pb::CancelTurnResponse { turn: None, outcome: pb::CancelOutcome::None.into() });
        };
        let Cancelled { turn, was_live } = cancelled;
        let outcome = if was_live { self.cancel_outcome(&key, &turn).await? } else { pb::CancelOutcome::None };
        let turn = Some(self.encode_turn(&key, &turn).await?);
        Ok(pb::CancelTurnResponse { turn, outcome: outcome.into() })
    }

    /// The parameters of a WatchEvents stream.
    async fn watch_reader(&self, key: SessionKey, watch: Watch, options: StreamOptions) -> Result<Reader, Error> {
        let session = self.engine.prompts.session(&key).await?;
        if watch.after > session.last_seq {
            return Err(Error::CursorAhead { last: session.last_seq });
        }
        let mut cursor = watch.after.max(session.fork_seq());
        let mut over = None;
        if let Some(turn) = &watch.turn {
            let turn = self.stored_turn(&key, turn).await?;
            cursor = cursor.max(Seq(turn.first_seq.0 - 1));
            over = turn.last_seq;
        }
        session.check_cursor(cursor)?;
        Ok(Reader {
            engine: Arc::clone(&self.engine),
            key,
            only: watch.turn.clone(),
            ends_with: watch.turn,
            awaited_message: None,
            cursor,
            has_ended: over.is_some_and(|end| cursor >= end),
            replay_until: session.last_seq,
            sync: true,
            follow: watch.follow,
            options,
            admitted: None,
            subscription: None,
        })
    }
}

service! {
    TurnService for Turns {
        list_events: ListEventsRequest,
        get_turn: GetTurnRequest,
        list_turns: ListTurnsRequest,
        submit_tool_results: SubmitToolResultsRequest,
        cancel_turn: CancelTurnRequest,
    }

    type ExecuteTurnStream = EventStream<pb::ExecuteTurnResponse>;
    type WatchEventsStream = EventStream<pb::WatchEventsResponse>;

    async fn execute_turn(
        &self,
        request: Request<pb::ExecuteTurnRequest>,
    ) -> Result<Response<Self::ExecuteTurnStream>, Status> {
        let deadline = deadline::of(&request);
        let (caller, (command, options)) = handler::accept(&self.engine, request).await?;
        let Admitted { key, stream_end, admission, after, subscription } =
            self.engine.execute(caller.tenant, command, deadline).await?;
        let mut admitted = pb::Admitted::default();
        let mut running = None;
        let replay_until = match admission {
            AdmissionKind::Started { session_created } => {
                admitted.set_admission(pb::Admission::Started);
                admitted.session_created = session_created;
                None
            }
            AdmissionKind::Queued { running: turn, message, position, ignored } => {
                running = turn;
                admitted.set_admission(pb::Admission::Queued);
                admitted.queued_message_id = message.into_string();
                admitted.position = i32::try_from(position).unwrap_or(i32::MAX);
                admitted.ignored_fields = ignored.into_iter().map(str::to_owned).collect();
                Some(after)
            }
            AdmissionKind::Attached => {
                admitted.set_admission(pb::Admission::Attached);
                let session = self.engine.prompts.session(&key).await?;
                session.check_cursor(after).map_err(Error::from)?;
                Some(session.last_seq)
            }
        };
        let (turn, awaited_message) = match stream_end {
            StreamEnd::Turn(turn) => (Some(turn), None),
            StreamEnd::Message(message) => (None, Some(message)),
            StreamEnd::Nothing => (None, None),
        };
        let has_ended = match (&turn, replay_until) {
            (Some(turn), Some(_)) => self.stored_turn(&key, turn).await?.last_seq.is_some_and(|end| after >= end),
            (Some(_), None) => false,
            (None, _) => awaited_message.is_none(),
        };
        let reader = Reader {
            engine: Arc::clone(&self.engine),
            key,
            only: None,
            admitted: Some((turn.clone().or(running), admitted)),
            ends_with: turn,
            awaited_message,
            cursor: after,
            has_ended,
            sync: replay_until.is_some(),
            replay_until: replay_until.unwrap_or_default(),
            follow: true,
            options,
            subscription,
        };
        Ok(Response::new(reader.open(self.stream, |event| pb::ExecuteTurnResponse { event: Some(event) })))
    }

    async fn watch_events(
        &self,
        request: Request<pb::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let (caller, (watch, options)) = handler::accept(&self.engine, request).await?;
        let key = SessionKey::new(caller.tenant, watch.session.clone());
        let reader = self.watch_reader(key, watch, options).await?;
        Ok(Response::new(reader.open(self.stream, |event| pb::WatchEventsResponse { event: Some(event) })))
    }
}

choices! {
    AnswerStatus = AnswerStatus { Accepted, Duplicate, Stale, NotRequested }
}
