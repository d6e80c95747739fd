//! ExecuteTurn: admits a turn, or finds the one that the same request started before.

use std::{sync::Arc, time::Instant};

use uuid::Uuid;

use crate::{
    context::size::Counters,
    model::{
        Delivery, InputMessage, MessageId, Seq, SessionConfig, SessionKey, TenantId, TurnId,
        command::{BusyPolicy, ExecuteTurn, Start},
        derive,
        ledger::ModelDependent,
    },
    session::creation::FIRST_REVISION,
    store::{
        following::QueuedOutcome, owned::Revision, queue::QueueState, session::Session, session_memory::PrepareInput,
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
        engine::{Engine, Prompts, supervised},
        idempotency::result_of,
        live::hub::Subscription,
        opening::{Opening, StartingPoint},
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
        let counters = Counters { transcript_tokens: 0, context_version: 0, anchor: None };
        let start = StartingPoint { config, revision: FIRST_REVISION, counters };
        Self { start, creates: true, queued: 0, holds: ModelDependent::default() }
    }

    /// A session as read, or from this replica's memory.
    fn of(basis: &'a PrepareInput) -> Self {
        let Revision { number, config } = &*basis.revision;
        let start = StartingPoint { config, revision: *number, counters: basis.into() };
        Self { start, creates: false, queued: basis.queued, holds: basis.model_dependent }
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
        let received = Instant::now();
        supervised(&self.capacity, self, async move |engine| {
            let mut command = command;
            engine.sessions.keep(&tenant, &command.contents).await?;
            // Attaching to a known turn does not need the MCP servers.
            let unresolved = engine.prompts.resolve_named(&tenant, &mut command).await.err();
            let (engine, command) = (&engine, &command);
            let (named, request) = (command.session.as_ref(), command.idempotency.request.as_ref());
            let of = move |key| Admitting { engine, key, command, received, deadline };
            let Some(error) = unresolved else {
                return in_unused_session(&tenant, named, request, |key| async move {
                    let admitting = of(key);
                    retry_on_change(|| admitting.attempt()).await
                })
                .await;
            };
            let known = |key| async move { of(key).known_or_expired().await };
            in_unused_session(&tenant, named, request, known).await?.ok_or(error)
        })
        .await
    }
}

impl Prompts {
    /// Adds the tools of MCP servers to the tool sets of the turn and of a new session.
    async fn resolve_named(&self, tenant: &TenantId, command: &mut ExecuteTurn) -> Result<(), Error> {
        let ExecuteTurn { request, create, .. } = command;
        if let Some(tools) = &mut request.tools {
            self.mcp.resolve(tenant, tools).await?;
        }
        if let Some(draft) = create {
            self.mcp.resolve(tenant, &mut draft.config.tools).await?;
        }
        Ok(())
    }
}

/// An ExecuteTurn request, and the session in which it starts a turn.
struct Admitting<'a> {
    engine: &'a Arc<Engine>,
    key: SessionKey,
    command: &'a ExecuteTurn,
    received: Instant,
    deadline: Option<Instant>,
}

impl Admitting<'_> {
    /// One attempt. Returns `None` if the session changed between the read and the write. The
    /// statement itself refuses a known request, so that its outcome is looked up only then.
    async fn attempt(&self) -> Result<Option<Admitted>, Error> {
        let refused = match self.try_begin().await {
            Ok(Some(admitted)) => return Ok(Some(admitted)),
            Ok(None) => None,
            Err(error @ Error::Store(_)) => return Err(error),
            Err(error) => Some(error),
        };
        // Looked up after the session was read: a turn that the same request started concurrently
        // is then recognized, and not reported as busy.
        if let Some(known) = self.known().await? {
            return Ok(Some(known));
        }
        match refused {
            Some(error) => Err(error),
            None if self.engine.store.is_deleted(&self.key).await? => {
                Err(Error::SessionNotFound(self.key.session.clone()))
            }
            None => Ok(None),
        }
    }

    /// Begins a turn in an idle session, or in a new one. Returns `None` if the statement was
    /// refused.
    async fn try_begin(&self) -> Result<Option<Admitted>, Error> {
        let Self { engine, key, command, .. } = self;
        if engine.capacity.draining.is_cancelled() {
            return Err(Error::Draining);
        }
        // A new session has no queue for the input.
        if command.session.is_none() {
            engine.capacity.check_room(&key.tenant)?;
        }
        if let Some(begun) = self.try_begin_from_memory().await {
            return begun;
        }
        let session = engine.store.session(key).await?;
        if self.is_past_deadline() {
            return Err(Error::DeadlinePassed);
        }
        let Some(session) = session else {
            if command.create.is_none() && command.session.is_some() {
                return Err(Error::SessionNotFound(key.session.clone()));
            }
            if !matches!(command.start, Start::Input(_)) {
                return Err(Error::NoInput);
            }
            let config = engine.prompts.complete(command.create.clone().unwrap_or_default())?;
            return self.begin(TargetSession::new(&config)).await;
        };
        if command.session.is_none() {
            // Created by the same request, or by an expired one with the same request_id.
            return Err(Error::SessionExists(key.session.clone()));
        }
        if session.state.is_live() {
            return self.busy(session).await;
        }
        if session.open_calls > 0 {
            // Calls that the host appended: the model can be called only after their results.
            let open = engine.store.appended_calls(key).await?;
            if open.is_empty() {
                return Ok(None); // answered concurrently
            }
            return Err(Error::TranscriptOpen(open.into_iter().map(|call| call.id).collect()));
        }
        self.check_has_input(session.queued).await?;
        let basis = PrepareInput::from(session);
        self.begin(TargetSession::of(&basis)).await
    }

    fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Like [`Admitting::try_begin`], for input to an idle session in this replica's memory. Returns
    /// `None` if the session is not in memory, or the turn is refused: the session may have
    /// changed, so the database decides.
    async fn try_begin_from_memory(&self) -> Option<Result<Option<Admitted>, Error>> {
        let has_input = self.command.session.is_some() && matches!(self.command.start, Start::Input(_));
        let may_begin = has_input && !self.is_past_deadline();
        let basis = may_begin.then(|| self.engine.store.cached_idle(&self.key))??;
        let begun = self.begin(TargetSession::of(&basis)).await;
        Some(begun).filter(|begun| matches!(begun, Ok(_) | Err(Error::Store(_))))
    }

    /// Checks that an idle session has something for the model to respond to. The statement checks
    /// again under its lock.
    async fn check_has_input(&self, queued: u32) -> Result<(), Error> {
        let found = match &self.command.start {
            Start::Input(_) => true,
            Start::Queue => queued > 0,
            Start::Transcript => queued > 0 || self.engine.store.asks_for_an_answer(&self.key).await?,
        };
        if found { Ok(()) } else { Err(Error::NoInput) }
    }

    /// A turn is running: queues the input or interrupts the turn. Returns `None` if the running
    /// turn belongs to the same request.
    async fn busy(&self, session: Session) -> Result<Option<Admitted>, Error> {
        let Self { engine, key, command, .. } = self;
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
        engine.prompts.model(command.request.model.as_ref().unwrap_or(&session.config.model))?;
        let incoming = Incoming {
            message,
            delivery,
            starts_turn: true,
            execute: Some(&command.request),
            ttl: None,
            idempotency: &command.idempotency,
        };
        let place = match engine.put_and_start(key, incoming, &session).await? {
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
        &self,
        TargetSession { start, creates, queued, holds }: TargetSession<'_>,
    ) -> Result<Option<Admitted>, Error> {
        let Self { engine, key, command, .. } = self;
        // Checked before anything is read, and again at the start.
        engine.capacity.check_room(&key.tenant)?;
        let config = start.config;
        let policy = engine.prompts.policy(config)?;
        let model = command.request.model.as_ref().unwrap_or(&config.model);
        let model = engine.prompts.model_to_call(model, config).await?;
        // A turn with an unknown window is refused if its policy requires a known one.
        let budget = budget(&policy.context, &model)?;
        let turn = TurnId::new(Uuid::now_v7().to_string());
        let input = match &command.start {
            Start::Input(input) => {
                Some(host_message(derive::input(&turn), InputMessage::clone(input), estimator(&model)))
            }
            Start::Queue | Start::Transcript => None,
        };
        let texts = input.iter().flat_map(|input| &input.parts);
        let texts = texts.filter_map(|part| part.part.content.as_text());
        if is_large(texts.map(str::len).sum()) {
            engine.prompts.check_session_size(key).await?;
        }
        let continues = input.is_none();
        let size = if queued == 0 {
            let call = PromptCall::new(config, &command.request, 1, false, &model);
            let size = call.size_of_all(start.counters);
            let excerpt = engine.prompts.excerpt(key, &size, call.model, holds).await?;
            let following: Vec<PromptMessage<'_>> = input.iter().map(PromptMessage::from).collect();
            Some(size_with(size, call.model, &excerpt, &following))
        } else {
            None
        };
        let opening = Opening {
            turn,
            idempotency: command.idempotency.clone(),
            request: &command.request,
            input,
            size,
            model: &model,
            limits: engine.prompts.limits(config, &command.request),
            budget: Some(budget),
            start,
        };
        let opened = opening.open();
        let admission = opened.admission(continues);
        let mut asked = engine.capacity.request_start(key)?;
        let granted = if creates {
            engine.store.admit_new(key, &admission, sized(config)).await
        } else {
            engine.store.admit(key, &admission).await
        };
        let Some(grant) = asked.answered(granted)? else {
            return Ok(None);
        };
        let after = Seq(grant.last_seq.0 - opened.rows.count());
        // Subscribed before the turn runs: a fast model may respond before the caller's stream is
        // open.
        let news = Some(engine.live.hub.enter(key).subscribe());
        engine.start(key.clone(), grant, asked.sent(), Cause::Executed(self.received));
        Ok(Some(Admitted {
            key: key.clone(),
            stream_end: StreamEnd::Turn(opened.turn),
            admission: AdmissionKind::Started { session_created: creates },
            after,
            subscription: news,
        }))
    }

    /// What the same request started before. Returns `None` if there is nothing, and
    /// `SessionExists` if an expired request created this session.
    async fn known_or_expired(&self) -> Result<Option<Admitted>, Error> {
        match self.known().await? {
            None if self.command.session.is_none() && self.engine.store.session(&self.key).await?.is_some() => {
                Err(Error::SessionExists(self.key.session.clone()))
            }
            known => Ok(known),
        }
    }

    /// What the same request started before.
    async fn known(&self) -> Result<Option<Admitted>, Error> {
        let Self { engine, key, command, .. } = self;
        let store = &engine.store;
        let Some(request) = &command.idempotency.request else {
            return Ok(None);
        };
        let Some(head) = store.head(key, Some(request)).await? else {
            return Ok(None);
        };
        let Some(stored) = head.stored_request else {
            return Ok(None);
        };
        let first = result_of(stored, &command.idempotency)?;
        if command.after > head.last_seq {
            return Err(Error::CursorAhead { last: head.last_seq });
        }
        let turn = TurnId::new(first.clone());
        let (follows, first) = match store.turn(key, &turn).await? {
            Some(found) => (StreamEnd::Turn(turn), Seq(found.first_seq.0 - 1)),
            None => {
                let message = MessageId::new(first);
                match store.queued_outcome(key, &message).await?.ok_or(Error::TurnNotFound(turn))? {
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
}
