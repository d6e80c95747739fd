//! TurnService: executes turns, streams their events, accepts tool results and cancels turns.

use std::sync::Arc;

use prost::Message as _;
use tonic::{Request, Response, Status};

use super::{
    caller::tenant,
    deadline,
    decode::{self, PageRequest},
    encode,
    page_budget::{PAGE_BYTES, PageBudget, READ_BYTES},
    page_token,
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
        Seq, SessionKey, TurnId, TurnState,
        command::{AnswerStatus, Watch},
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

    async fn events_page(
        &self,
        key: &SessionKey,
        wanted: decode::ListEvents,
    ) -> Result<pb::ListEventsResponse, Status> {
        let decode::ListEvents { session: _, turn, after, size } = wanted;
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

    async fn turns_page(&self, key: &SessionKey, wanted: PageRequest) -> Result<pb::ListTurnsResponse, Status> {
        const LIST: &str = "ListTurns";
        let PageRequest { size, token } = wanted;
        let filter = format!("{}/{}", key.tenant, key.session);
        let before = match token {
            Some(token) => page_token::position(&page_token::decode(&token, LIST, &filter)?)?,
            None => Seq(i64::MAX),
        };
        let mut read = self.engine.store().turns(key, before, size + 1, READ_BYTES).await?;
        read.truncate(size as usize);
        let mut more = read.more;
        let mut last = Seq(0);
        let mut room = PageBudget::default();
        let mut turns = Vec::with_capacity(read.items.len());
        for turn in &read.items {
            let shown = self.encode_turn(key, turn).await?;
            if !room.try_reserve(shown.encoded_len()) {
                more = true;
                break;
            }
            last = turn.first_seq;
            turns.push(shown);
        }
        let next_page_token = page_token::next(more, LIST, &filter, &last.to_string());
        Ok(pb::ListTurnsResponse { turns, next_page_token })
    }

    /// The parameters of a WatchEvents stream.
    async fn watch_reader(
        &self,
        key: SessionKey,
        watch: Watch,
        options: decode::StreamOptions,
    ) -> Result<Reader, Error> {
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

#[tonic::async_trait]
impl TurnService for Turns {
    type ExecuteTurnStream = EventStream<pb::ExecuteTurnResponse>;
    type WatchEventsStream = EventStream<pb::WatchEventsResponse>;

    async fn execute_turn(
        &self,
        request: Request<pb::ExecuteTurnRequest>,
    ) -> Result<Response<Self::ExecuteTurnStream>, Status> {
        let tenant = tenant(&request)?;
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let stored = self.engine.prompts.stored(&tenant, &decode::blobs_in_messages(&request.input)).await?;
        let (command, options) = decode::execute_turn(request, stored)?;
        let Admitted { key, stream_end, admission, after, subscription } =
            self.engine.execute(tenant, command, deadline).await?;
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
        let tenant = tenant(&request)?;
        let (watch, options) = decode::watch_events(request.into_inner())?;
        let key = SessionKey::new(tenant, watch.session.clone());
        let reader = self.watch_reader(key, watch, options).await?;
        Ok(Response::new(reader.open(self.stream, |event| pb::WatchEventsResponse { event: Some(event) })))
    }

    async fn list_events(
        &self,
        request: Request<pb::ListEventsRequest>,
    ) -> Result<Response<pb::ListEventsResponse>, Status> {
        let tenant = tenant(&request)?;
        let wanted = decode::list_events(request.into_inner())?;
        let key = SessionKey::new(tenant, wanted.session.clone());
        Ok(Response::new(self.events_page(&key, wanted).await?))
    }

    async fn get_turn(&self, request: Request<pb::GetTurnRequest>) -> Result<Response<pb::GetTurnResponse>, Status> {
        let tenant = tenant(&request)?;
        let decode::GetTurn { session, turn } = decode::get_turn(request.into_inner())?;
        let key = SessionKey::new(tenant, session);
        self.engine.prompts.session(&key).await?;
        let turn = self.stored_turn(&key, &turn).await?;
        Ok(Response::new(pb::GetTurnResponse { turn: Some(self.encode_turn(&key, &turn).await?) }))
    }

    async fn list_turns(
        &self,
        request: Request<pb::ListTurnsRequest>,
    ) -> Result<Response<pb::ListTurnsResponse>, Status> {
        let tenant = tenant(&request)?;
        let decode::ListTurns { session, page } = decode::list_turns(request.into_inner())?;
        let key = SessionKey::new(tenant, session);
        self.engine.prompts.session(&key).await?;
        Ok(Response::new(self.turns_page(&key, page).await?))
    }

    async fn submit_tool_results(
        &self,
        request: Request<pb::SubmitToolResultsRequest>,
    ) -> Result<Response<pb::SubmitToolResultsResponse>, Status> {
        let tenant = tenant(&request)?;
        let request = request.into_inner();
        let stored = self.engine.prompts.stored(&tenant, &decode::blobs_in_results(&request.results)).await?;
        let command = decode::submit_tool_results(request, stored)?;
        let receipts = self.engine.submit(tenant, command).await?;
        let receipt = |(call, status): (crate::model::CallId, AnswerStatus)| pb::AnswerReceipt {
            call_id: call.into_string(),
            status: status.to_field(),
        };
        Ok(Response::new(pb::SubmitToolResultsResponse {
            receipts: receipts.answers.into_iter().map(receipt).collect(),
            pending_call_ids: receipts.pending.into_iter().map(|call| call.into_string()).collect(),
        }))
    }

    async fn cancel_turn(
        &self,
        request: Request<pb::CancelTurnRequest>,
    ) -> Result<Response<pb::CancelTurnResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::cancel_turn(request.into_inner())?;
        let key = SessionKey::new(tenant.clone(), command.session.clone());
        let Some(cancelled) = self.engine.cancel(tenant, command).await? else {
            return Ok(Response::new(pb::CancelTurnResponse { turn: None, outcome: pb::CancelOutcome::None.into() }));
        };
        let Cancelled { turn, was_live } = cancelled;
        let outcome = if was_live { self.cancel_outcome(&key, &turn).await? } else { pb::CancelOutcome::None };
        let turn = Some(self.encode_turn(&key, &turn).await?);
        Ok(Response::new(pb::CancelTurnResponse { turn, outcome: outcome.into() }))
    }
}

choices! {
    AnswerStatus = AnswerStatus { Accepted, Duplicate, Stale, NotRequested }
}
