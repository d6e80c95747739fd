//! Compactions, requested by Compact calls or made by turns that need room: plans what to replace,
//! gets the summary from a model, and puts the compaction in force, concurrently with other work on
//! the session.
//!
//! A compaction begins with an event and a lease, so that there is only one at a time and all
//! clients see it. Nothing changes until one statement puts it in force. That statement compares
//! the version of the context with the one that the compaction was made from. It runs as a task of
//! the server: the caller may disconnect.

mod draft;
mod making;
mod revert;
mod summary;

pub(in crate::turn) use draft::{CompactionInput, CompactionRequest};

use std::{collections::BTreeSet, convert::Infallible, future::Future, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::{
    codec,
    context::{
        budget::Budget,
        compact::{ActiveCompaction, Plan, ladder::Urgency},
    },
    fair::FairPermit,
    model::{
        Compaction, CompactionId, CompactionState, Payload, SessionKey, TenantId, UsageTotals,
        command::{Compact, Idempotency},
        compaction::Trigger,
        policy::Changeable as _,
    },
    provider::registry::ResolvedModel,
    session::compaction::NewCompaction,
    store::{self, Reach},
    telemetry::Trace,
    turn::{
        Error,
        context::{
            compact::{draft::in_force_of, making::Making},
            session_view::SessionView,
            window::budget,
        },
        engine::{Capacity, Prompts, SessionCommands, joined, supervised},
        idempotency::check_same,
        lease::leases::CompactionPlace,
        live::wakeups::Wakeup,
        optimistic::retry_on_change,
    },
};

/// Pause between reads of a compaction that another task runs, and between attempts to put one in
/// force.
const PAUSE: Duration = Duration::from_millis(100);
/// Sessions whose compactions are given up in one round.
const ROUND: u32 = 32;

/// The outcome of beginning a compaction.
#[derive(Debug)]
enum BeginOutcome {
    /// It has begun.
    Begun(Box<Compaction>),
    /// Another one is running.
    Running(CompactionId),
    /// The same request began this one before.
    BegunBefore(CompactionId),
    /// The context changed concurrently.
    Moved,
}

/// Why a context is currently not compacted automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::turn) enum CompactionBlocker {
    /// A compaction is running.
    Running,
    /// A compaction failed, and would fail again.
    NoGain,
}

/// The outcome of a compaction that no client requested.
#[derive(Debug)]
pub(in crate::turn) enum CompactionAttempt {
    /// No message can be compacted.
    Nothing,
    /// The context changed concurrently, or another compaction had to be awaited.
    Changed,
    /// It is in force, or was given up.
    Ended(Box<Compaction>),
}

impl SessionCommands {
    /// Compacts a session, or plans a compaction in a dry run. Returns the compaction in its
    /// current state.
    pub async fn compact(self: &Arc<Self>, tenant: TenantId, command: Compact) -> Result<Compaction, Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let key = SessionKey::new(tenant, command.session.clone());
            retry_on_change(|| sessions.try_compact(&key, &command)).await
        })
        .await
    }

    /// One attempt. Returns `None` if the context changed between the read and the begin.
    async fn try_compact(self: &Arc<Self>, key: &SessionKey, command: &Compact) -> Result<Option<Compaction>, Error> {
        let Compact { wait, dry_run, idempotency, .. } = command;
        if let Some(known) = self.prompts.compacted_before(key, idempotency).await? {
            return self.await_compaction(key, &known, *wait).await.map(Some);
        }
        let memory = self.prompts.reserve_session_memory(key, 0).await?;
        let (request, timeout) = self.prompts.requested_compaction(key, command).await?;
        let before = request.input.size.tokens;
        let Some(plan) = request.plan() else {
            // The same request may have compacted between the two reads.
            return match self.prompts.compacted_before(key, idempotency).await? {
                Some(known) => self.await_compaction(key, &known, *wait).await.map(Some),
                None => Err(Error::CompactionNoGain { before, after: request.smallest().unwrap_or(before) }),
            };
        };
        if *dry_run {
            return Ok(Some(request.forecast(&plan)));
        }
        self.capacity.quotas.check_tokens(&key.tenant)?;
        let tenant = &key.tenant;
        let admit = |all, own| self.capacity.check_running_limits(tenant, all, own);
        let place = self.capacity.leases.compact(tenant, admit)?;
        match self.begin_compaction(key, &request, &plan, idempotency).await? {
            BeginOutcome::Moved => Ok(None),
            BeginOutcome::Running(running) => Err(Error::CompactionInProgress(running)),
            BeginOutcome::BegunBefore(known) => self.await_compaction(key, &known, *wait).await.map(Some),
            BeginOutcome::Begun(begun) => {
                let made = Compaction::clone(&begun);
                let task = self.make_in_background(key, request, made, timeout, (place, Some(memory)));
                if !*wait {
                    return Ok(Some(*begun));
                }
                joined(task).await.map(Some)
            }
        }
    }

    /// Runs a compaction that has begun in a task of the server.
    fn make_in_background(
        self: &Arc<Self>,
        key: &SessionKey,
        request: CompactionRequest,
        begun: Compaction,
        timeout: Duration,
        held: (CompactionPlace, Option<FairPermit>),
    ) -> JoinHandle<Result<Compaction, Error>> {
        let sessions = Arc::clone(self);
        let key = key.clone();
        let making = async move {
            let _held = held;
            let making = Making { sessions: &sessions, key: &key, request: &request };
            let made = making.make(begun, sessions.capacity.compaction_stop_reason(timeout));
            Box::pin(made).await.inspect_err(|error| {
                tracing::warn!(session.id = %key.session, %error, "compaction abandoned; its lease will expire");
            })
        };
        self.capacity.tasks.spawn(Reach::in_current_scope(Trace::current().scope(making)))
    }

    /// Starts a compaction in parallel to its turn, if it gains anything.
    pub(in crate::turn) async fn compact_in_background(
        self: &Arc<Self>,
        key: &SessionKey,
        request: CompactionRequest,
        timeout: Duration,
    ) -> Result<(), Error> {
        let Some(plan) = request.plan() else {
            return Ok(());
        };
        match self.begin_compaction(key, &request, &plan, &Idempotency::none()).await? {
            BeginOutcome::Begun(begun) => {
                // The turn that needs it is running: the compaction must not wait for another turn.
                let Ok(place) = self.capacity.leases.compact(&key.tenant, |_, _| Ok::<_, Infallible>(()));
                drop(self.make_in_background(key, request, *begun, timeout, (place, None)));
            }
            BeginOutcome::Moved | BeginOutcome::Running(_) | BeginOutcome::BegunBefore(_) => {}
        }
        Ok(())
    }

    /// Compacts, if that gains anything. `cut` stops it early and resolves with the reason.
    pub(in crate::turn) async fn compact_now(
        &self,
        key: &SessionKey,
        request: &CompactionRequest,
        cut: impl Future<Output = &'static str> + Send,
    ) -> Result<CompactionAttempt, Error> {
        let Some(plan) = request.plan() else {
            return Ok(CompactionAttempt::Nothing);
        };
        match self.begin_compaction(key, request, &plan, &Idempotency::none()).await? {
            BeginOutcome::Moved => Ok(CompactionAttempt::Changed),
            BeginOutcome::BegunBefore(other) | BeginOutcome::Running(other) => {
                tokio::select! {
                    _ = cut => {}
                    seen = self.await_compaction(key, &other, true) => drop(seen?),
                }
                Ok(CompactionAttempt::Changed)
            }
            BeginOutcome::Begun(begun) => {
                let made = Making { sessions: self, key, request }.make(*begun, cut).await?;
                Ok(CompactionAttempt::Ended(Box::new(made)))
            }
        }
    }

    /// Stores the begin of a compaction.
    async fn begin_compaction(
        &self,
        key: &SessionKey,
        request: &CompactionRequest,
        plan: &Plan,
        idempotency: &Idempotency,
    ) -> Result<BeginOutcome, Error> {
        let id = CompactionId::new(Uuid::now_v7().to_string());
        let compaction = Compaction {
            id: Some(id.clone()),
            state: CompactionState::Running,
            usage: UsageTotals::default(),
            created_at: Some(self.prompts.now()),
            ..request.forecast(plan)
        };
        let started = Payload::CompactionStarted(Box::new(compaction.clone()));
        let beginning = NewCompaction {
            compaction: &id,
            seen: request.input.version,
            info: &codec::compaction::encode(&compaction),
            started: &started,
            lease: self.store.lease_ttl(),
        };
        let begun = match self.store.begin_compaction(key, &beginning, idempotency).await {
            Ok(begun) => begun,
            Err(store::Error::Duplicate(_)) => return Ok(BeginOutcome::Moved),
            Err(error) => return Err(error.into()),
        };
        if let Some(moved) = begun.update {
            self.live.notify_readers(key, moved.last_seq);
            return Ok(BeginOutcome::Begun(Box::new(compaction)));
        }
        if let Some(remembered) = begun.stored_request {
            check_same(&remembered.hash, idempotency)?;
            return Ok(BeginOutcome::BegunBefore(CompactionId::new(remembered.result)));
        }
        match (begun.context_version, begun.running) {
            (None, _) => Err(Error::SessionNotFound(key.session.clone())),
            // The begin was committed, but its response was lost.
            (Some(_), Some(running)) if running == id => Ok(BeginOutcome::Begun(Box::new(compaction))),
            (Some(_), Some(running)) => Ok(BeginOutcome::Running(running)),
            (Some(_), None) => Ok(BeginOutcome::Moved),
        }
    }

    /// The state of a compaction. With `wait`, its state when it has ended.
    async fn await_compaction(&self, key: &SessionKey, id: &CompactionId, wait: bool) -> Result<Compaction, Error> {
        loop {
            let found = self.store.compaction(key, id).await?;
            let found = found.ok_or_else(|| Error::CompactionNotFound(id.clone()))?;
            if !wait || found.state != CompactionState::Running {
                return Ok(found);
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.capacity.draining.cancelled() => return Ok(found),
            }
        }
    }

    /// Gives up abandoned compactions. A session in which that fails does not hold up the others.
    /// Returns the first error.
    pub async fn expire_compactions(&self) -> Result<(), Error> {
        let mut first = Ok(());
        while !self.capacity.draining.is_cancelled() {
            let found = self.store.abandoned_compactions(ROUND).await?;
            let is_full = found.len() == ROUND as usize;
            let mut given_up = BTreeSet::new();
            for key in found {
                match self.store.expire_compaction(&key).await {
                    Ok(()) => {
                        self.live.wake(Wakeup::NewEvents(key.clone()));
                        given_up.insert(key);
                    }
                    Err(error) => {
                        tracing::warn!(session.id = %key.session, %error, "failed to end an abandoned compaction");
                        first = first.and(Err(error.into()));
                    }
                }
            }
            first = first.and(self.live.poll_events_of_sessions(&given_up).await);
            if !is_full || given_up.is_empty() {
                break;
            }
        }
        first
    }
}

impl Capacity {
    /// Resolves with the reason when a compaction that belongs to no turn has to stop.
    pub(in crate::turn) async fn compaction_stop_reason(&self, timeout: Duration) -> &'static str {
        tokio::select! {
            () = self.aborting.cancelled() => "the server is shutting down",
            () = tokio::time::sleep(timeout) => "it exceeded the turn timeout",
        }
    }
}

impl Prompts {
    /// The compaction that a client requests, and the longest duration of the session's turns.
    async fn requested_compaction(
        &self,
        key: &SessionKey,
        command: &Compact,
    ) -> Result<(CompactionRequest, Duration), Error> {
        let Compact { overrides, instructions, target, .. } = command;
        let looked = self.session_view(key).await?;
        let config = &looked.session.config;
        let policy = self.policy(config)?.context;
        let model = self.model(looked.model(None))?;
        let compaction = policy.compaction.with(overrides);
        if let Some(model) = &compaction.summary_model {
            self.model(model)?;
        }
        let input = self.compaction_input(key, &looked, &model, budget(&policy, &model)?).await?;
        let timeout = self.limits(config, &looked.request).turn_timeout;
        let is_urgent = target.is_some() || input.budget.overflows(input.at_most());
        let request = CompactionRequest {
            trigger: Trigger::Manual,
            policy: compaction.within(input.budget.window),
            instructions: instructions.clone(),
            target: *target,
            was_pruned: false,
            need: if is_urgent { Urgency::LastResort } else { Urgency::Optional },
            input,
        };
        Ok((request, timeout))
    }

    /// What a compaction of a session's next prompt is planned from.
    pub(in crate::turn) async fn compaction_input(
        &self,
        key: &SessionKey,
        looked: &SessionView,
        model: &ResolvedModel,
        budget: Budget,
    ) -> Result<CompactionInput, Error> {
        let in_force = self.in_force(key).await?;
        let context = (looked.messages.clone(), looked.session.context_version);
        Ok(CompactionInput::new(context, in_force, (model, budget), &looked.size(model)))
    }

    /// Why this version of the context should currently not be compacted, from the outcome of the
    /// newest compaction.
    pub(in crate::turn) async fn compaction_blocker(
        &self,
        key: &SessionKey,
        version: i64,
    ) -> Result<Option<CompactionBlocker>, Error> {
        let Some((newest, made_from)) = self.store.newest_compaction(key).await? else {
            return Ok(None);
        };
        let no_gain = newest.failure.is_some_and(|failure| !failure.recoverable) && made_from == version;
        Ok(match newest.state {
            CompactionState::Running => Some(CompactionBlocker::Running),
            CompactionState::Failed => no_gain.then_some(CompactionBlocker::NoGain),
            CompactionState::Planned | CompactionState::Applied | CompactionState::Reverted => None,
        })
    }

    /// The compaction in force, as input for the next one. It may belong to a newer version of the
    /// context than the input: then the next one does not begin.
    pub(in crate::turn) async fn in_force(&self, key: &SessionKey) -> Result<Option<ActiveCompaction>, Error> {
        Ok(self.store.compaction_in_force(key).await?.and_then(in_force_of))
    }

    /// The compaction that the same request began before.
    async fn compacted_before(
        &self,
        key: &SessionKey,
        idempotency: &Idempotency,
    ) -> Result<Option<CompactionId>, Error> {
        Ok(self.stored_result(key, idempotency).await?.map(CompactionId::new))
    }

    /// The compactions of a session, newest first, starting after `before`.
    pub async fn compactions(
        &self,
        key: &SessionKey,
        before: Option<&CompactionId>,
        limit: u32,
    ) -> Result<Vec<Compaction>, Error> {
        let found = self.store.compactions(key, before, limit).await?;
        if found.is_empty() {
            self.session(key).await?;
        }
        Ok(found)
    }
}
