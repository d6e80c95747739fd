//! ExecuteTurn: admits a turn, or finds what the same request started before.

use std::{sync::Arc, time::Instant};

use uuid::Uuid;

use super::{
    Engine, Error,
    hub::Subscription,
    sessions::{new_session_id, outside_tokens, sized},
    wishes,
};
use crate::{
    context::estimate,
    model::{
        Category, InputMessage, Limits, LimitsOverride, Payload, RequestId, Role, Seq, SessionConfig, SessionKey,
        TenantId, ToolSet, TurnId,
        command::{BusyPolicy, ExecuteTurn, SessionDraft, Start, TurnRequest},
        derive,
        event::StepPosition,
        message::StoredPart,
    },
    provider::registry::Resolved,
    store::{
        NewMessage, Rows,
        admission::Admission,
        session::{FIRST_REVISION, Session},
    },
};

/// How often an admission is tried again when the session changes under it.
const ADMISSION_TRIES: u32 = 5;

/// What became of an ExecuteTurn.
#[derive(Debug)]
pub struct Admitted {
    /// The session.
    pub key: SessionKey,
    /// The turn to follow.
    pub turn: TurnId,
    /// How it came about.
    pub how: How,
    /// The stream goes on behind this seq.
    pub after: Seq,
    /// Of a turn that was started: a place among its news from before its first word.
    pub news: Option<Subscription>,
}

/// How the turn of an ExecuteTurn came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// It was started.
    Started {
        /// With its session.
        session_created: bool,
    },
    /// The request is known: this is what it started.
    Attached,
}

impl Engine {
    /// Starts a turn, or attaches to the one that the same request started.
    pub async fn execute(self: &Arc<Self>, tenant: TenantId, command: ExecuteTurn) -> Result<Admitted, Error> {
        let engine = Arc::clone(self);
        self.supervised(async move { engine.admit(tenant, &command).await }).await
    }

    async fn admit(self: &Arc<Self>, tenant: TenantId, command: &ExecuteTurn) -> Result<Admitted, Error> {
        let request = command.idempotency.request.as_ref();
        let id = command.session.clone().unwrap_or_else(|| new_session_id(&tenant, request));
        let key = SessionKey::new(tenant, id);
        for _ in 0..ADMISSION_TRIES {
            if let Some(admitted) = self.try_admit(&key, command).await? {
                return Ok(admitted);
            }
        }
        Err(Error::Store(crate::store::Error::Conflict("the session kept changing".to_owned())))
    }

    /// One try; none: the session changed between the look and the statement. The statement itself refuses a request that is
    /// known, so that what it started is looked up only then.
    async fn try_admit(self: &Arc<Self>, key: &SessionKey, command: &ExecuteTurn) -> Result<Option<Admitted>, Error> {
        let refused = match self.try_begin(key, command).await {
            Ok(Some(admitted)) => return Ok(Some(admitted)),
            Ok(None) => None,
            Err(error @ Error::Store(_)) => return Err(error),
            Err(error) => Some(error),
        };
        // Looked up after the session was read: a turn that the same request started in between is found as known, not as busy.
        if let Some(known) = self.known(key, command).await? {
            return Ok(Some(known));
        }
        match refused {
            Some(error) => Err(error),
            None if self.store.is_deleted(key).await? => Err(Error::SessionNotFound(key.session.clone())),
            None => Ok(None),
        }
    }

    /// Begins a turn in a session that is idle, or is to be created. None: the statement was refused.
    async fn try_begin(self: &Arc<Self>, key: &SessionKey, command: &ExecuteTurn) -> Result<Option<Admitted>, Error> {
        if self.draining.is_cancelled() {
            return Err(Error::Draining);
        }
        match (self.store.session(key).await?, &command.create) {
            (Some(session), _) if session.state.is_live() => Err(self.busy(key, command, session)),
            // Calls that the host appended: the model is asked once their results are there.
            (Some(session), _) if session.open_calls > 0 => {
                let open = self.store.appended_calls(key).await?;
                if open.is_empty() {
                    return Ok(None); // answered in between
                }
                Err(Error::TranscriptOpen(open.into_iter().map(|call| call.id).collect()))
            }
            (Some(session), _) => {
                self.something_to_answer(key, command).await?;
                let existing = Existing { revision: session.revision, tokens: session.context_tokens };
                self.begin(key, command, &session.config, Some(existing)).await
            }
            (None, Some(_)) if !matches!(command.start, Start::Input(_)) => Err(Error::NoInput),
            (None, Some(draft)) => self.begin(key, command, &self.complete(draft.clone())?, None).await,
            (None, None) if command.session.is_none() && !matches!(command.start, Start::Input(_)) => {
                Err(Error::NoInput)
            }
            (None, None) if command.session.is_none() => {
                self.begin(key, command, &self.complete(SessionDraft::default())?, None).await
            }
            (None, None) => Err(Error::SessionNotFound(key.session.clone())),
        }
    }

    /// Whether an idle session holds something that the model is to answer. The statement looks again, under its lock.
    async fn something_to_answer(&self, key: &SessionKey, command: &ExecuteTurn) -> Result<(), Error> {
        let found = match &command.start {
            Start::Input(_) => true,
            // Messages cannot be queued yet.
            Start::Queue => false,
            Start::Transcript => self.store.asks_for_an_answer(key).await?,
        };
        if found { Ok(()) } else { Err(Error::NoInput) }
    }

    /// What the same request started before.
    async fn known(&self, key: &SessionKey, command: &ExecuteTurn) -> Result<Option<Admitted>, Error> {
        let Some(request) = &command.idempotency.request else { return Ok(None) };
        let Some(standing) = self.store.standing(key, Some(request)).await? else { return Ok(None) };
        let Some(remembered) = standing.remembered else { return Ok(None) };
        if remembered.hash != command.idempotency.hash {
            return Err(Error::IdempotencyMismatch(request.clone()));
        }
        if command.after > standing.last_seq {
            return Err(Error::CursorAhead { last: standing.last_seq });
        }
        let turn = TurnId::new(remembered.result);
        let found = self.store.turn(key, &turn).await?.ok_or_else(|| Error::TurnNotFound(turn.clone()))?;
        let first = Seq(found.first_seq.0 - 1);
        Ok(Some(Admitted { key: key.clone(), turn, how: How::Attached, after: command.after.max(first), news: None }))
    }

    /// A turn is running.
    fn busy(&self, key: &SessionKey, command: &ExecuteTurn, session: Session) -> Error {
        match (command.busy, session.current_turn) {
            (BusyPolicy::Enqueue, _) => Error::QueueNotImplemented,
            (BusyPolicy::Reject, Some(turn)) => Error::TurnInProgress { turn, last: session.last_seq },
            (BusyPolicy::Reject, None) => Error::Internal(format!("session {} is live without a turn", key.session)),
        }
    }

    /// Admits the turn under a configuration; `existing` is none for a session that is to be created with it.
    async fn begin(
        self: &Arc<Self>,
        key: &SessionKey,
        command: &ExecuteTurn,
        config: &SessionConfig,
        existing: Option<Existing>,
    ) -> Result<Option<Admitted>, Error> {
        if self.leases.count() >= self.rules.max_running {
            return Err(Error::Overloaded);
        }
        self.policy(config)?;
        let model = self.model(command.request.model.as_ref().unwrap_or(&config.model))?;
        let limits = self.limits(config, &command.request);
        let turn = TurnId::new(Uuid::now_v7().to_string());
        let Existing { revision, tokens } = existing.unwrap_or(Existing { revision: FIRST_REVISION, tokens: 0 });
        let plan = Plan {
            turn: &turn,
            request: command.idempotency.request.as_ref(),
            model: &model,
            limits,
            config,
            revision,
            tokens,
        };
        let tools = command.request.tools.as_ref().unwrap_or(&config.tools);
        let rows = plan.first_rows(tools, command);
        // Its time is set now: a session's turn_timeout that changes later is for later turns.
        let turn_timeout = Some(limits.turn_timeout);
        let request = TurnRequest {
            limits: LimitsOverride { turn_timeout, ..command.request.limits },
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
            continues: command.start == Start::Transcript,
        };
        let sent = Instant::now();
        let granted = match existing {
            Some(_) => self.store.admit(key, &admission).await,
            None => self.store.admit_new(key, &admission, &sized(config)).await,
        };
        let Some(grant) = self.heed(key, granted)? else { return Ok(None) };
        let after = Seq(grant.last_seq.0 - rows.events());
        // Taken before the turn runs: a quick model may speak before the caller's stream is open.
        let news = Some(self.hub.enter(key).subscribe());
        self.start(key.clone(), grant, sent);
        let how = How::Started { session_created: existing.is_none() };
        Ok(Some(Admitted { key: key.clone(), turn, how, after, news }))
    }
}

/// A turn that is about to be admitted.
struct Plan<'a> {
    turn: &'a TurnId,
    request: Option<&'a RequestId>,
    model: &'a Resolved,
    limits: Limits,
    config: &'a SessionConfig,
    revision: i64,
    tokens: i64,
}

/// What is known of a session that exists.
#[derive(Debug, Clone, Copy)]
struct Existing {
    revision: i64,
    tokens: i64,
}

impl Plan<'_> {
    /// Its first events, and its input if it has one.
    fn first_rows(&self, tools: &ToolSet, command: &ExecuteTurn) -> Rows {
        let outside = outside_tokens(self.config, tools, self.model.info.supports_tools);
        let mut rows = Rows::new(estimate::ESTIMATOR, outside);
        let input = match &command.start {
            Start::Input(input) => Some(self.input(input)),
            Start::Queue | Start::Transcript => None,
        };
        let offered = tools.visible().filter(|_| self.model.info.supports_tools).map(|tool| tool.name.clone());
        rows.event(
            &Payload::TurnStarted {
                request: self.request.cloned(),
                model: self.model.reference.clone(),
                limits: self.limits,
                tool_names: offered.collect(),
                input: input.as_ref().map(|input| input.id.clone()),
            },
            StepPosition::default(),
        );
        let said = input.as_ref().map_or(0, said);
        if let Some(input) = input {
            rows.message(input, StepPosition::default());
        }
        let (_, unsupported) = wishes::fitting(self.model, self.config, &command.request, tools, 1);
        for wish in unsupported {
            rows.event(&wishes::left_out(self.model, wish), StepPosition::default());
        }
        let expected = total(self.tokens, outside.saturating_add(said));
        rows.event(&step_started(self.model, self.revision, expected), StepPosition { step: 1, attempt: 1 });
        rows
    }

    fn input(&self, input: &InputMessage) -> NewMessage {
        NewMessage {
            id: derive::input(self.turn),
            role: Role::User,
            parts: input.parts.iter().map(|part| host_part(part.clone(), Role::User, input.pinned)).collect(),
            overhead: estimate::MESSAGE_OVERHEAD,
            pinned: input.pinned,
            metadata: input.metadata.clone(),
            response: None,
        }
    }
}

/// The size of a message.
fn said(message: &NewMessage) -> u32 {
    let parts = message.parts.iter().map(|part| part.size.tokens);
    parts.fold(message.overhead, u32::saturating_add)
}

/// The event that begins a step. Its size is filled in by the statement; `expected` tokens give the margin.
pub(super) fn step_started(model: &Resolved, revision: i64, expected: u32) -> Payload {
    Payload::StepStarted {
        model: model.reference.clone(),
        revision,
        context: estimate::count(expected),
        window: model.info.context_window.map_or(0, |limit| limit.tokens),
    }
}

/// The live transcript and what comes on top of it, in tokens.
pub(super) fn total(transcript: i64, more: u32) -> u32 {
    u32::try_from(transcript).unwrap_or_default().saturating_add(more)
}

/// A part of a message that the host wrote, with its size. What is pinned is counted apart.
pub(super) fn host_part(part: crate::model::Part, role: Role, pinned: bool) -> StoredPart {
    let mut stored = stored(part, role);
    if pinned {
        stored.size.category = Category::Pinned;
    }
    stored
}

/// A part with its size.
pub(super) fn stored(part: crate::model::Part, role: Role) -> StoredPart {
    let size = estimate::part(&part, role);
    StoredPart { part, size, estimator: estimate::ESTIMATOR.to_owned(), pruned: None }
}
