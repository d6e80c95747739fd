//! ExecuteTurn: admits a turn, or finds the one that the same request started before.

use std::{sync::Arc, time::Instant};

use uuid::Uuid;

use crate::{
    context::size::ContextSize,
    model::{
        Delivery, InputMessage, LimitsOverride, MessageId, Seq, SessionConfig, SessionKey, TenantId, TurnId,
        command::{BusyPolicy, ExecuteTurn, SessionDraft, Start, TurnRequest},
        derive,
        ledger::ModelDependent,
    },
    provider::registry::ResolvedModel,
    session::{change::TurnRow, rows::NewMessage, start::NewTurn},
    store::{
        admission::Admission, following::QueuedOutcome, queue::QueueState, session::Session,
        session_memory::PrepareInput,
    },
    turn::{
        Error,
        context::{
            estimators::estimator,
            measured::host_message,
            memory::is_large,
            prompt_call::PromptCall,
            size::{PromptMessage, size_with},
            window::budget,
        },
        engine::Engine,
        live::hub::Subscription,
        opening::{Opening, StartingPoint, opening},
        optimistic::retry_on_change,
        queue::enqueue::{EnqueueOutcome, Incoming},
        run::cause::Cause,
        session::create::{in_unused_session, sized},
    },
};

/// The outcome of an ExecuteTurn.
#[derive(Debug)]
pub struct Admitted {
    pub key: SessionKey,
    pub stream_end: StreamEnd,
    pub admission: AdmissionKind,
    /// The stream continues after this seq.
    pub after: Seq,
    /// A subscription from before the turn's first output, for a turn that was started now.
    pub subscription: Option<Subscription>,
}

/// What ends the stream of an ExecuteTurn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEnd {
    Turn(TurnId),
    /// The turn that takes this queued message.
    Message(MessageId),
    /// There is nothing more to stream.
    Nothing,
}

/// How the turn of an ExecuteTurn was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionKind {
    /// The request started it.
    Started {
        /// The session was created with it.
        session_created: bool,
    },
    /// Another turn was running: the input is queued.
    Queued {
        /// The turn that was running at that time.
        running: Option<TurnId>,
        /// Id of the queued message.
        message: MessageId,
        /// Position in the queue, from 1.
        position: u32,
        /// Fields of the request that the running turn cannot apply.
        ignored: Vec<&'static str>,
    },
    /// A repeated request: attached to what the first one started.
    Attached,
}

/// Timing of an ExecuteTurn request.
#[derive(Debug, Clone, Copy)]
struct RequestTiming {
    received: Instant,
    deadline: Option<Instant>,
}

impl RequestTiming {
    fn is_past_deadline(self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }
}

/// The session in which a turn will begin.
#[derive(Debug, Clone, Copy)]
struct TargetSession<'a> {
    start: StartingPoint<'a>,
    /// The session is created with the turn.
    creates: bool,
    /// Number of messages in its queue.
    queued: u32,
    holds: ModelDependent,
}

impl<'a> TargetSession<'a> {
    /// A new session with this configuration.
    fn new(config: &'a SessionConfig) -> Self {
        Self { start: StartingPoint::new(config), creates: true, queued: 0, holds: ModelDependent::default() }
    }

    /// An existing session.
    fn of(basis: &'a PrepareInput) -> Self {
        Self {
            start: StartingPoint::of_basis(basis),
            creates: false,
            queued: basis.queued,
            holds: basis.model_dependent,
        }
    }
}

impl Engine {
    /// Starts a turn, or attaches to the one that the same request started. Does not start a turn
    /// after the caller's deadline.
    pub async fn execute(
        self: &Arc<Self>,
        tenant: TenantId,
        command: ExecuteTurn,
        deadline: Option<Instant>,
    ) -> Result<Admitted, Error> {
        let caller = RequestTiming { received: Instant::now(), deadline };
        self.supervised(async move |engine| engine.admit(tenant, command, caller).await).await
    }

    async fn admit(
        self: &Arc<Self>,
        tenant: TenantId,
        mut command: ExecuteTurn,
        caller: RequestTiming,
    ) -> Result<Admitted, Error> {
        self.keep(&tenant, &command.contents).await?;
        // Attaching to a known turn does not need the MCP servers.
        let unresolved = self.resolve_named(&tenant, &mut command).await.err();
        let (named, request) = (command.session.as_ref(), command.idempotency.request.as_ref());
        let Some(error) = unresolved else {
            let command = &command;
            return in_unused_session(&tenant, named, request, |key| async move {
                retry_on_change(|| self.try_admit(&key, command, caller)).await
            })
            .await;
        };
        let known = |key| self.known_or_expired(key, &command);
        let known = in_unused_session(&tenant, named, request, known).await?;
        known.ok_or(error)
    }

    /// What the same request started before. Returns `None` if there is nothing, and
    /// `SessionExists` if an expired request created this session.
    async fn known_or_expired(&self, key: SessionKey, command: &ExecuteTurn) -> Result<Option<Admitted>, Error> {
        match self.known(&key, command).await? {
            None if command.session.is_none() && self.store.session(&key).await?.is_some() => {
                Err(Error::SessionExists(key.session))
            }
            known => Ok(known),
        }
    }

    /// Adds the tools of MCP servers to the tool sets of the turn and of a new session.
    async fn resolve_named(&self, tenant: &TenantId, command: &mut ExecuteTurn) -> Result<(), Error> {
        let ExecuteTurn { request, create, .. } = command;
        if let Some(tools) = &mut request.tools {
            self.resolve_tools(tenant, tools).await?;
        }
        if let Some(draft) = create {
            self.resolve_tools(tenant, &mut draft.config.tools).await?;
        }
        Ok(())
    }

    /// One attempt. Returns `None` if the session changed between the read and the write. The
    /// statement itself refuses a known request, so that its outcome is looked up only then.
    async fn try_admit(
        self: &Arc<Self>,
        key: &SessionKey,
        command: &ExecuteTurn,
        caller: RequestTiming,
    ) -> Result<Option<Admitted>, Error> {
        let refused = match self.try_begin(key, command, caller).await {
            Ok(Some(admitted)) => return Ok(Some(admitted)),
            Ok(None) => None,
            Err(error @ Error::Store(_)) => return Err(error),
            Err(error) => Some(error),
        };
        // Looked up after the session was read: a turn that the same request started concurrently
        // is then recognized, and not reported as busy.
        if let Some(known) = self.known(key, command).await? {
            return Ok(Some(known));
        }
        match refused {
            Some(error) => Err(error),
            None if self.store.is_deleted(key).await? => Err(Error::SessionNotFound(key.session.clone())),
            None => Ok(None),
        }
    }

    /// Begins a turn in an idle session, or in a new one. Returns `None` if the statement was
    /// refused.
    async fn try_begin(
        self: &Arc<Self>,
        key: &SessionKey,
        command: &ExecuteTurn,
        caller: RequestTiming,
    ) -> Result<Option<Admitted>, Error> {
        if self.draining.is_cancelled() {
            return Err(Error::Draining);
        }
        // A new session has no queue for the input.
        if command.session.is_none() {
            self.check_room(&key.tenant)?;
        }
        if let Some(begun) = self.try_begin_from_memory(key, command, caller).await {
            return begun;
        }
        let session = self.store.session(key).await?;
        if caller.is_past_deadline() {
            return Err(Error::DeadlinePassed);
        }
        match (session, &command.create) {
            // Created by the same request, or by an expired one with the same request_id.
            (Some(_), _) if command.session.is_none() => Err(Error::SessionExists(key.session.clone())),
            (Some(session), _) if session.state.is_live() => self.busy(key, command, session).await,
            // Calls that the host appended: the model can be called only after their results.
            (Some(session), _) if session.open_calls > 0 => {
                let open = self.store.appended_calls(key).await?;
                if open.is_empty() {
                    return Ok(None); // answered concurrently
                }
                Err(Error::TranscriptOpen(open.into_iter().map(|call| call.id).collect()))
            }
            (Some(session), _) => {
                self.check_has_input(key, command, session.queued).await?;
                let basis = PrepareInput::from(session);
                self.begin(key, command, TargetSession::of(&basis), caller).await
            }
            (None, Some(_)) if !matches!(command.start, Start::Input(_)) => Err(Error::NoInput),
            (None, Some(draft)) => {
                let config = self.complete(draft.clone())?;
                self.begin(key, command, TargetSession::new(&config), caller).await
            }
            (None, None) if command.session.is_none() && !matches!(command.start, Start::Input(_)) => {
                Err(Error::NoInput)
            }
            (None, None) if command.session.is_none() => {
                let config = self.complete(SessionDraft::default())?;
                self.begin(key, command, TargetSession::new(&config), caller).await
            }
            (None, None) => Err(Error::SessionNotFound(key.session.clone())),
        }
    }

    /// Like [`Engine::try_begin`], for input to an idle session in this replica's memory. Returns
    /// `None` if the session is not in memory, or the turn is refused: the session may have
    /// changed, so the database decides.
    async fn try_begin_from_memory(
        self: &Arc<Self>,
        key: &SessionKey,
        command: &ExecuteTurn,
        caller: RequestTiming,
    ) -> Option<Result<Option<Admitted>, Error>> {
        let may_begin =
            command.session.is_some() && matches!(command.start, Start::Input(_)) && !caller.is_past_deadline();
        let basis = may_begin.then(|| self.store.cached_idle(key))??;
        let begun = self.begin(key, command, TargetSession::of(&basis), caller);
        Some(begun.await).filter(|begun| matches!(begun, Ok(_) | Err(Error::Store(_))))
    }

    /// Checks that an idle session has something for the model to respond to. The statement checks
    /// again under its lock.
    async fn check_has_input(&self, key: &SessionKey, command: &ExecuteTurn, queued: u32) -> Result<(), Error> {
        let found = match &command.start {
            Start::Input(_) => true,
            Start::Queue => queued > 0,
            Start::Transcript => queued > 0 || self.store.asks_for_an_answer(key).await?,
        };
        if found { Ok(()) } else { Err(Error::NoInput) }
    }

    /// What the same request started before.
    async fn known(&self, key: &SessionKey, command: &ExecuteTurn) -> Result<Option<Admitted>, Error> {
        let Some(request) = &command.idempotency.request else {
            return Ok(None);
        };
        let Some(head) = self.store.head(key, Some(request)).await? else {
            return Ok(None);
        };
        let Some(remembered) = head.stored_request else {
            return Ok(None);
        };
        if remembered.hash != command.idempotency.hash {
            return Err(Error::IdempotencyMismatch(request.clone()));
        }
        if command.after > head.last_seq {
            return Err(Error::CursorAhead { last: head.last_seq });
        }
        let turn = TurnId::new(remembered.result.clone());
        let (follows, first) = match self.store.turn(key, &turn).await? {
            Some(found) => (StreamEnd::Turn(turn), Seq(found.first_seq.0 - 1)),
            None => {
                let message = MessageId::new(remembered.result);
                match self.store.queued_outcome(key, &message).await?.ok_or(Error::TurnNotFound(turn))? {
                    QueuedOutcome::Waiting => (StreamEnd::Message(message), head.last_seq),
                    QueuedOutcome::Taken { turn, after } => (StreamEnd::Turn(turn), after),
                    QueuedOutcome::Ended(seq) if command.after >= seq => (StreamEnd::Nothing, seq),
                    QueuedOutcome::Ended(seq) => (StreamEnd::Message(message), Seq(seq.0 - 1)),
                }
            }
        };
        // Events before the turn that took the input are included, for example the end of an
        // earlier turn.
        let after = if command.after > Seq(0) { command.after } else { first };
        Ok(Some(Admitted {
            key: key.clone(),
            stream_end: follows,
            admission: AdmissionKind::Attached,
            after,
            subscription: None,
        }))
    }

    /// A turn is running: queues the input or interrupts the turn. Returns `None` if the running
    /// turn belongs to the same request.
    async fn busy(
        self: &Arc<Self>,
        key: &SessionKey,
        command: &ExecuteTurn,
        session: Session,
    ) -> Result<Option<Admitted>, Error> {
        let delivery = match command.busy {
            BusyPolicy::Enqueue => Some(Delivery::Asap),
            BusyPolicy::Interrupt => Some(Delivery::Interrupt),
            BusyPolicy::Reject => None,
        };
        let (Some(delivery), Start::Input(message)) = (delivery, &command.start) else {
            let live = session.current_turn;
            let turn =
                live.ok_or_else(|| Error::Internal(format!("session {} is not idle but has no turn", key.session)))?;
            return Err(Error::TurnInProgress { turn, last: session.last_seq });
        };
        self.model(command.request.model.as_ref().unwrap_or(&session.config.model))?;
        let incoming = Incoming {
            message,
            delivery,
            starts_turn: true,
            execute: Some(&command.request),
            ttl: None,
            idempotency: &command.idempotency,
        };
        let place = match self.put_and_start(key, incoming, &session).await? {
            EnqueueOutcome::New(place, _) => place,
            EnqueueOutcome::QueuedBefore(_) | EnqueueOutcome::NotQueued => return Ok(None),
        };
        let position = match place.state {
            QueueState::Pending { position } => position,
            QueueState::Applied(_) | QueueState::Cancelled | QueueState::Expired | QueueState::Dropped(_) => 0,
        };
        Ok(Some(Admitted {
            key: key.clone(),
            stream_end: StreamEnd::Message(place.message.clone()),
            admission: AdmissionKind::Queued {
                running: session.current_turn,
                message: place.message,
                position,
                ignored: command.request.paths(),
            },
            after: session.last_seq,
            subscription: None,
        }))
    }

    /// Admits the turn in a session. Creates a new session with it.
    async fn begin(
        self: &Arc<Self>,
        key: &SessionKey,
        command: &ExecuteTurn,
        base: TargetSession<'_>,
        caller: RequestTiming,
    ) -> Result<Option<Admitted>, Error> {
        // Checked before anything is read, and again at the start.
        self.check_room(&key.tenant)?;
        let TargetSession { start, creates, .. } = base;
        let StartingPoint { config, revision, .. } = start;
        let policy = self.policy(config)?;
        let model = command.request.model.as_ref().unwrap_or(&config.model);
        let model = self.model_to_call(model, config).await?;
        // A turn with an unknown window is refused if its policy requires a known one.
        let budget = budget(&policy.context, &model)?;
        let limits = self.limits(config, &command.request);
        let turn = TurnId::new(Uuid::now_v7().to_string());
        let input = match &command.start {
            Start::Input(input) => {
                Some(host_message(derive::input(&turn), InputMessage::clone(input), estimator(&model)))
            }
            Start::Queue | Start::Transcript => None,
        };
        self.check_room_for(key, input.as_ref()).await?;
        let continues = input.is_none();
        let size = match base.queued {
            0 => Some(self.first_size(key, command, &base, &model, input.as_ref()).await?),
            _ => None,
        };
        let rows = opening(Opening {
            request_id: command.idempotency.request.as_ref(),
            request: &command.request,
            input,
            size,
            model: &model,
            limits,
            budget: Some(budget),
            start,
        });
        // The timeout is fixed now: a later change of the session's turn_timeout applies to later
        // turns.
        let turn_timeout = Some(limits.turn_timeout);
        let request = TurnRequest {
            limits: LimitsOverride { turn_timeout, ..command.request.limits },
            ..command.request.clone()
        };
        let request_id = command.idempotency.request.as_ref();
        let new = NewTurn {
            turn: &turn,
            rows: &rows,
            timeout: limits.turn_timeout,
            revision,
            row: TurnRow { request_id, request: &request, model: &model.reference },
        };
        let admission = Admission { new, idempotency: &command.idempotency, continues };
        let mut asked = self.request_start(key)?;
        let granted = if creates {
            self.store.admit_new(key, &admission, sized(config)).await
        } else {
            self.store.admit(key, &admission).await
        };
        let Some(grant) = asked.answered(granted)? else {
            return Ok(None);
        };
        let after = Seq(grant.last_seq.0 - rows.count());
        // Subscribed before the turn runs: a fast model may respond before the caller's stream is
        // open.
        let news = Some(self.hub.enter(key).subscribe());
        let cause = Cause::Executed(caller.received);
        self.start(key.clone(), grant, asked.sent(), cause);
        Ok(Some(Admitted {
            key: key.clone(),
            stream_end: StreamEnd::Turn(turn),
            admission: AdmissionKind::Started { session_created: creates },
            after,
            subscription: news,
        }))
    }

    /// Refuses a large input if the session is at its size limit.
    async fn check_room_for(&self, key: &SessionKey, input: Option<&NewMessage>) -> Result<(), Error> {
        let texts = input.iter().flat_map(|input| &input.parts);
        let texts = texts.filter_map(|part| part.part.content.as_text());
        if is_large(texts.map(str::len).sum()) {
            self.check_session_size(key).await?;
        }
        Ok(())
    }

    /// The size of the prompt of a turn's first step.
    async fn first_size<'a>(
        &self,
        key: &SessionKey,
        command: &ExecuteTurn,
        base: &TargetSession<'a>,
        model: &ResolvedModel,
        input: Option<&NewMessage>,
    ) -> Result<ContextSize<'a>, Error> {
        let TargetSession { start, holds, .. } = base;
        let config = start.config;
        let request = &command.request;
        let call = PromptCall::new(config, request, 1, false, model);
        let size = call.size_of_all(start.counters);
        let excerpt = self.excerpt(key, &size, call.model, *holds).await?;
        let following: Vec<PromptMessage<'_>> = input.into_iter().map(PromptMessage::from).collect();
        Ok(size_with(size, call.model, &excerpt, &following))
    }
}
