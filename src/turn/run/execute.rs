//! ExecuteTurn: admits a turn, or finds what the same request started before.

use std::{sync::Arc, time::Instant};

use uuid::Uuid;

use crate::{
    context::size::ContextSize,
    model::{
        Delivery, InputMessage, LimitsOverride, MessageId, Seq, SessionConfig, SessionKey,
        TenantId, TurnId,
        command::{BusyPolicy, ExecuteTurn, SessionDraft, Start, TurnRequest},
        derive,
        ledger::ModelDependent,
    },
    provider::registry::Resolved,
    session::rows::NewMessage,
    store::{
        admission::Admission, following::Fate, queue::QueueState, session::Session,
        session_memory::Basis,
    },
    turn::{
        Error,
        context::{
            estimators::estimator,
            memory::is_large,
            size::{PromptCall, PromptMessage, size_with},
            stats::budget,
        },
        engine::Engine,
        live::hub::Subscription,
        optimistic::retry_on_change,
        queue::enqueue::{Incoming, Put},
        run::{
            cause::Cause,
            measured::host_message,
            opening::{Opening, opening},
            starting_point::StartingPoint,
        },
        session::create::{in_unused_session, sized},
    },
};

/// The outcome of an ExecuteTurn.
#[derive(Debug)]
pub struct Admitted {
    /// The session.
    pub key: SessionKey,
    /// What to follow.
    pub follows: Follows,
    /// How it came about.
    pub how: How,
    /// The stream goes on after this seq.
    pub after: Seq,
    /// Of a turn that was started: a place among its news from before its first word.
    pub news: Option<Subscription>,
}

/// What the stream of an ExecuteTurn ends with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Follows {
    /// This turn.
    Turn(TurnId),
    /// The turn that takes this queued message.
    Message(MessageId),
    /// The client has seen all there is.
    Nothing,
}

/// How the turn of an ExecuteTurn came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// It was started.
    Started {
        /// With its session.
        session_created: bool,
    },
    /// A turn was running: the input waits.
    Queued {
        /// The turn that was running when it was queued.
        running: Option<TurnId>,
        /// Its id in the queue.
        message: MessageId,
        /// Its rank, from 1.
        position: u32,
        /// Fields of the request that the running turn cannot apply.
        ignored: Vec<&'static str>,
    },
    /// The request is known: this is what it started.
    Attached,
}

/// Whoever sent an ExecuteTurn.
#[derive(Debug, Clone, Copy)]
struct Caller {
    received: Instant,
    deadline: Option<Instant>,
}

impl Caller {
    fn has_left(self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }
}

/// The session in which a turn is to begin.
#[derive(Debug, Clone, Copy)]
struct Base<'a> {
    start: StartingPoint<'a>,
    /// It is made with the turn.
    creates: bool,
    /// Messages waiting in its queue.
    queued: u32,
    holds: ModelDependent,
}

impl<'a> Base<'a> {
    /// One that is made with this configuration.
    fn new(config: &'a SessionConfig) -> Self {
        Self {
            start: StartingPoint::new(config),
            creates: true,
            queued: 0,
            holds: ModelDependent::default(),
        }
    }

    /// One that is there.
    fn of(basis: &'a Basis) -> Self {
        Self {
            start: StartingPoint::of_basis(basis),
            creates: false,
            queued: basis.queued,
            holds: basis.holds,
        }
    }
}

impl Engine {
    /// Starts a turn, or attaches to the one that the same request started. Nothing is started once
    /// the caller's deadline has passed.
    pub async fn execute(
        self: &Arc<Self>,
        tenant: TenantId,
        command: ExecuteTurn,
        deadline: Option<Instant>,
    ) -> Result<Admitted, Error> {
        let caller = Caller {
            received: Instant::now(),
            deadline,
        };
        self.supervised(async move |engine| engine.admit(tenant, command, caller).await)
            .await
    }

    async fn admit(
        self: &Arc<Self>,
        tenant: TenantId,
        mut command: ExecuteTurn,
        caller: Caller,
    ) -> Result<Admitted, Error> {
        self.keep(&tenant, &command.contents).await?;
        // What the same request started needs no server any more.
        let unresolved = self.resolve_named(&tenant, &mut command).await.err();
        let (named, request) = (
            command.session.as_ref(),
            command.idempotency.request.as_ref(),
        );
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

    /// What the same request started before. `None` means nothing; `SessionExists`, that an
    /// expired request made this session.
    async fn known_or_expired(
        &self,
        key: SessionKey,
        command: &ExecuteTurn,
    ) -> Result<Option<Admitted>, Error> {
        match self.known(&key, command).await? {
            None if command.session.is_none() && self.store.session(&key).await?.is_some() => {
                Err(Error::SessionExists(key.session))
            }
            known => Ok(known),
        }
    }

    /// Fills in the tools that MCP servers list: those of the turn, and of a new session.
    async fn resolve_named(
        &self,
        tenant: &TenantId,
        command: &mut ExecuteTurn,
    ) -> Result<(), Error> {
        let ExecuteTurn {
            request, create, ..
        } = command;
        if let Some(tools) = &mut request.tools {
            self.resolve_tools(tenant, tools).await?;
        }
        if let Some(draft) = create {
            self.resolve_tools(tenant, &mut draft.config.tools).await?;
        }
        Ok(())
    }

    /// One try. `None` means the session changed between the look and the statement. The statement
    /// itself refuses a request that is known, so that what it started is looked up only then.
    async fn try_admit(
        self: &Arc<Self>,
        key: &SessionKey,
        command: &ExecuteTurn,
        caller: Caller,
    ) -> Result<Option<Admitted>, Error> {
        let refused = match self.try_begin(key, command, caller).await {
            Ok(Some(admitted)) => return Ok(Some(admitted)),
            Ok(None) => None,
            Err(error @ Error::Store(_)) => return Err(error),
            Err(error) => Some(error),
        };
        // Looked up after the session was read: a turn that the same request started in between is
        // found as known, not as busy.
        if let Some(known) = self.known(key, command).await? {
            return Ok(Some(known));
        }
        match refused {
            Some(error) => Err(error),
            None if self.store.is_deleted(key).await? => {
                Err(Error::SessionNotFound(key.session.clone()))
            }
            None => Ok(None),
        }
    }

    /// Begins a turn in a session that is idle, or is to be created. `None` means the statement was
    /// refused.
    async fn try_begin(
        self: &Arc<Self>,
        key: &SessionKey,
        command: &ExecuteTurn,
        caller: Caller,
    ) -> Result<Option<Admitted>, Error> {
        if self.draining.is_cancelled() {
            return Err(Error::Draining);
        }
        // A session that has no name yet has no queue where the input could wait.
        if command.session.is_none() {
            self.check_room(&key.tenant)?;
        }
        if let Some(begun) = self.try_begin_as_left(key, command, caller).await {
            return begun;
        }
        let session = self.store.session(key).await?;
        if caller.has_left() {
            return Err(Error::DeadlinePassed);
        }
        match (session, &command.create) {
            // The same request made it, or one that had its request_id before.
            (Some(_), _) if command.session.is_none() => {
                Err(Error::SessionExists(key.session.clone()))
            }
            (Some(session), _) if session.state.is_live() => self.busy(key, command, session).await,
            // Calls that the host appended: the model is asked once their results are there.
            (Some(session), _) if session.open_calls > 0 => {
                let open = self.store.appended_calls(key).await?;
                if open.is_empty() {
                    return Ok(None); // answered in between
                }
                Err(Error::TranscriptOpen(
                    open.into_iter().map(|call| call.id).collect(),
                ))
            }
            (Some(session), _) => {
                self.something_to_answer(key, command, session.queued)
                    .await?;
                let basis = Basis::from(session);
                self.begin(key, command, Base::of(&basis), caller).await
            }
            (None, Some(_)) if !matches!(command.start, Start::Input(_)) => Err(Error::NoInput),
            (None, Some(draft)) => {
                let config = self.complete(draft.clone())?;
                self.begin(key, command, Base::new(&config), caller).await
            }
            (None, None)
                if command.session.is_none() && !matches!(command.start, Start::Input(_)) =>
            {
                Err(Error::NoInput)
            }
            (None, None) if command.session.is_none() => {
                let config = self.complete(SessionDraft::default())?;
                self.begin(key, command, Base::new(&config), caller).await
            }
            (None, None) => Err(Error::SessionNotFound(key.session.clone())),
        }
    }

    /// The same with input, in an idle session as this replica has left it. `None`: it is not known here, or does not
    /// take the turn. It may have changed since, so the database is asked.
    async fn try_begin_as_left(
        self: &Arc<Self>,
        key: &SessionKey,
        command: &ExecuteTurn,
        caller: Caller,
    ) -> Option<Result<Option<Admitted>, Error>> {
        let may_begin = command.session.is_some()
            && matches!(command.start, Start::Input(_))
            && !caller.has_left();
        let basis = may_begin.then(|| self.store.remembered_idle(key))??;
        let begun = self.begin(key, command, Base::of(&basis), caller);
        Some(begun.await).filter(|begun| matches!(begun, Ok(_) | Err(Error::Store(_))))
    }

    /// Whether an idle session holds something that the model is to answer. The statement looks
    /// again, under its lock.
    async fn something_to_answer(
        &self,
        key: &SessionKey,
        command: &ExecuteTurn,
        queued: u32,
    ) -> Result<(), Error> {
        let found = match &command.start {
            Start::Input(_) => true,
            Start::Queue => queued > 0,
            Start::Transcript => queued > 0 || self.store.asks_for_an_answer(key).await?,
        };
        if found { Ok(()) } else { Err(Error::NoInput) }
    }

    /// What the same request started before.
    async fn known(
        &self,
        key: &SessionKey,
        command: &ExecuteTurn,
    ) -> Result<Option<Admitted>, Error> {
        let Some(request) = &command.idempotency.request else {
            return Ok(None);
        };
        let Some(head) = self.store.head(key, Some(request)).await? else {
            return Ok(None);
        };
        let Some(remembered) = head.remembered else {
            return Ok(None);
        };
        if remembered.hash != command.idempotency.hash {
            return Err(Error::IdempotencyMismatch(request.clone()));
        }
        if command.after > head.last_seq {
            return Err(Error::CursorAhead {
                last: head.last_seq,
            });
        }
        let turn = TurnId::new(remembered.result.clone());
        let (follows, first) = match self.store.turn(key, &turn).await? {
            Some(found) => (Follows::Turn(turn), Seq(found.first_seq.0 - 1)),
            None => {
                let message = MessageId::new(remembered.result);
                match self
                    .store
                    .fate(key, &message)
                    .await?
                    .ok_or(Error::TurnNotFound(turn))?
                {
                    Fate::Waiting => (Follows::Message(message), head.last_seq),
                    Fate::Taken { turn, after } => (Follows::Turn(turn), after),
                    Fate::Ended(seq) if command.after >= seq => (Follows::Nothing, seq),
                    Fate::Ended(seq) => (Follows::Message(message), Seq(seq.0 - 1)),
                }
            }
        };
        // What happened before the turn that took the input belongs to the story too: the end of an
        // earlier one, for instance.
        let after = if command.after > Seq(0) {
            command.after
        } else {
            first
        };
        Ok(Some(Admitted {
            key: key.clone(),
            follows,
            how: How::Attached,
            after,
            news: None,
        }))
    }

    /// A turn is running: the input waits for it, or interrupts it. `None` means it is the same
    /// request's.
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
            let turn = live.ok_or_else(|| {
                Error::Internal(format!("session {} is live without a turn", key.session))
            })?;
            return Err(Error::TurnInProgress {
                turn,
                last: session.last_seq,
            });
        };
        self.model(
            command
                .request
                .model
                .as_ref()
                .unwrap_or(&session.config.model),
        )?;
        let incoming = Incoming {
            message,
            delivery,
            starts_turn: true,
            execute: Some(&command.request),
            ttl: None,
            idempotency: &command.idempotency,
        };
        let place = match self.put(key, incoming, &session).await? {
            Put::Fresh(place) => place,
            Put::Before(_) | Put::Elsewhere => return Ok(None),
        };
        let position = match place.state {
            QueueState::Pending { position } => position,
            QueueState::Applied(_)
            | QueueState::Cancelled
            | QueueState::Expired
            | QueueState::Dropped(_) => 0,
        };
        Ok(Some(Admitted {
            key: key.clone(),
            follows: Follows::Message(place.message.clone()),
            how: How::Queued {
                running: session.current_turn,
                message: place.message,
                position,
                ignored: command.request.paths(),
            },
            after: session.last_seq,
            news: None,
        }))
    }

    /// Admits the turn in a session. One that does not exist yet is created with it.
    async fn begin(
        self: &Arc<Self>,
        key: &SessionKey,
        command: &ExecuteTurn,
        base: Base<'_>,
        caller: Caller,
    ) -> Result<Option<Admitted>, Error> {
        // Before anything is read for it, and again when it is about to begin.
        self.check_room(&key.tenant)?;
        let Base { start, creates, .. } = base;
        let StartingPoint {
            config, revision, ..
        } = start;
        let policy = self.policy(config)?;
        let model = command.request.model.as_ref().unwrap_or(&config.model);
        let model = self.model_to_call(model, config).await?;
        // A turn that may not assume a window is refused where none is known.
        let budget = budget(&policy.context, &model)?;
        let limits = self.limits(config, &command.request);
        let turn = TurnId::new(Uuid::now_v7().to_string());
        let input = match &command.start {
            Start::Input(input) => Some(host_message(
                derive::input(&turn),
                InputMessage::clone(input),
                estimator(&model),
            )),
            Start::Queue | Start::Transcript => None,
        };
        self.check_room_for(key, input.as_ref()).await?;
        let continues = input.is_none();
        let size = match base.queued {
            0 => Some(
                self.first_size(key, command, &base, &model, input.as_ref())
                    .await?,
            ),
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
        // Its time is set now: a session's turn_timeout that changes later is for later turns.
        let turn_timeout = Some(limits.turn_timeout);
        let request = TurnRequest {
            limits: LimitsOverride {
                turn_timeout,
                ..command.request.limits
            },
            ..command.request.clone()
        };
        let admission = Admission {
            turn: &turn,
            rows: &rows,
            timeout: limits.turn_timeout,
            revision,
            idempotency: &command.idempotency,
            request: &request,
            model: &model.reference,
            continues,
        };
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
        // Taken before the turn runs: a quick model may speak before the caller's stream is open.
        let news = Some(self.hub.enter(key).subscribe());
        let cause = Cause::Executed(caller.received);
        self.start(key.clone(), grant, asked.sent(), cause);
        Ok(Some(Admitted {
            key: key.clone(),
            follows: Follows::Turn(turn),
            how: How::Started {
                session_created: creates,
            },
            after,
            news,
        }))
    }

    /// A large input is refused where the session has grown too large for it.
    async fn check_room_for(
        &self,
        key: &SessionKey,
        input: Option<&NewMessage>,
    ) -> Result<(), Error> {
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
        base: &Base<'a>,
        model: &Resolved,
        input: Option<&NewMessage>,
    ) -> Result<ContextSize<'a>, Error> {
        let Base { start, holds, .. } = base;
        let config = start.config;
        let request = &command.request;
        let tools = request.tools.as_ref().unwrap_or(&config.tools);
        let call = PromptCall {
            config,
            tools,
            request,
            step: 1,
            model: model.into(),
        };
        let size = call.size_of_all(start.counters);
        let excerpt = self.excerpt(key, &size, call.model, *holds).await?;
        let following: Vec<PromptMessage<'_>> =
            input.into_iter().map(PromptMessage::from).collect();
        Ok(size_with(size, call.model, &excerpt, &following))
    }
}
