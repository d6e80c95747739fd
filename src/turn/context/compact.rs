//! Compactions, requested by Compact calls or made by turns that need room: plans what to replace,
//! gets the summary from a model, and puts the compaction in force, concurrently with other work on
//! the session.
//!
//! A compaction begins with an event and a lease, so that there is only one at a time and all
//! clients see it. Nothing changes until one statement puts it in force. That statement compares
//! the version of the context with the one that the compaction was made from. It runs as a task of
//! the server: the caller may disconnect.

mod draft;
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
        compact::{self, ActiveCompaction, ladder::Urgency},
    },
    fair::FairPermit,
    model::{
        Compaction, CompactionId, CompactionState, Failure, FailureReason, Payload, SessionKey, TenantId, UsagePurpose,
        UsageTotals,
        command::{Compact, Idempotency},
        compaction::{CompactionOverrides, InstructionsMode, Trigger},
        event::{StepPosition, UsageRecorded},
        policy::Changeable as _,
    },
    provider::registry::ResolvedModel,
    session::{
        compaction::{FailedCompaction, NewCompaction},
        compaction_rows::{Cost, Replacement},
        rows::{NewMessage, Rows},
    },
    store::{self, Reach, compaction::CompactionOutcome},
    telemetry::Trace,
    turn::{
        Error,
        context::{
            compact::draft::{Draft, in_force_of},
            measured::message_tokens,
            prune::unkeyed,
            session_view::SessionView,
            window::budget,
        },
        engine::{Engine, joined},
        lease::leases::CompactionPlace,
        optimistic::retry_on_change,
    },
};

/// Attempts to write the end of a compaction while the database does not respond.
const WRITES: u32 = 10;
/// Pause between reads of a compaction that another task runs, and between attempts to put one in
/// force.
const PAUSE: Duration = Duration::from_millis(100);
/// Renewals per lease duration.
const RENEWALS: u32 = 3;
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

impl Engine {
    /// Compacts a session, or plans a compaction in a dry run. Returns the compaction in its
    /// current state.
    pub async fn compact(self: &Arc<Self>, tenant: TenantId, command: Compact) -> Result<Compaction, Error> {
        self.supervised(async move |engine| {
            let key = SessionKey::new(tenant, command.session.clone());
            retry_on_change(|| engine.try_compact(&key, &command)).await
        })
        .await
    }

    /// One attempt. Returns `None` if the context changed between the read and the begin.
    async fn try_compact(self: &Arc<Self>, key: &SessionKey, command: &Compact) -> Result<Option<Compaction>, Error> {
        let Compact { overrides, instructions, target, wait, dry_run, idempotency, session: _ } = command;
        if let Some(known) = self.compacted_before(key, idempotency).await? {
            return self.await_compaction(key, &known, *wait).await.map(Some);
        }
        let memory = self.reserve_session_memory(key, 0).await?;
        let (survey, timeout, order) = self.survey_idle(key, overrides, instructions, *target).await?;
        let before = survey.size.tokens;
        let Some(plan) = survey.plan(&order) else {
            // The same request may have compacted between the two reads.
            return match self.compacted_before(key, idempotency).await? {
                Some(known) => self.await_compaction(key, &known, *wait).await.map(Some),
                None => Err(Error::CompactionNoGain { before, after: survey.smallest(&order).unwrap_or(before) }),
            };
        };
        let forecast = survey.forecast(&order, &plan);
        if *dry_run {
            return Ok(Some(forecast));
        }
        self.quotas.check_tokens(&key.tenant)?;
        let tenant = &key.tenant;
        let admit = |all, own| self.check_running_limits(tenant, all, own);
        let place = self.leases.compact(tenant, admit)?;
        match self.begin_compaction(key, &survey, forecast, idempotency).await? {
            BeginOutcome::Moved => Ok(None),
            BeginOutcome::Running(running) => Err(Error::CompactionInProgress(running)),
            BeginOutcome::BegunBefore(known) => self.await_compaction(key, &known, *wait).await.map(Some),
            BeginOutcome::Begun(begun) => {
                let made = Compaction::clone(&begun);
                let task = self.make_beside(key, (survey, order), made, timeout, (place, Some(memory)));
                if !*wait {
                    return Ok(Some(*begun));
                }
                joined(task).await.map(Some)
            }
        }
    }

    /// Runs a compaction that has begun in a task of the server.
    fn make_beside(
        self: &Arc<Self>,
        key: &SessionKey,
        (survey, order): (CompactionInput, CompactionRequest),
        begun: Compaction,
        timeout: Duration,
        held: (CompactionPlace, Option<FairPermit>),
    ) -> JoinHandle<Result<Compaction, Error>> {
        let engine = Arc::clone(self);
        let key = key.clone();
        let making = async move {
            let _held = held;
            let made = engine.make_compaction(&key, &survey, &order, begun, engine.compaction_stop_reason(timeout));
            Box::pin(made).await.inspect_err(|error| {
                tracing::warn!(session.id = %key.session, %error, "compaction abandoned; its lease will expire");
            })
        };
        self.tasks.spawn(Reach::in_current_scope(Trace::current().scope(making)))
    }

    /// Starts a compaction of the survey in parallel to its turn, if it gains anything.
    pub(in crate::turn) async fn compact_in_background(
        self: &Arc<Self>,
        key: &SessionKey,
        survey: CompactionInput,
        order: CompactionRequest,
        timeout: Duration,
    ) -> Result<(), Error> {
        let Some(plan) = survey.plan(&order) else {
            return Ok(());
        };
        match self.begin_compaction(key, &survey, survey.forecast(&order, &plan), &unkeyed()).await? {
            BeginOutcome::Begun(begun) => {
                // The turn that needs it is running: the compaction must not wait for another turn.
                let Ok(place) = self.leases.compact(&key.tenant, |_, _| Ok::<_, Infallible>(()));
                drop(self.make_beside(key, (survey, order), *begun, timeout, (place, None)));
            }
            BeginOutcome::Moved | BeginOutcome::Running(_) | BeginOutcome::BegunBefore(_) => {}
        }
        Ok(())
    }

    /// Resolves with the reason when a compaction that belongs to no turn has to stop.
    pub(in crate::turn) async fn compaction_stop_reason(&self, timeout: Duration) -> &'static str {
        tokio::select! {
            () = self.aborting.cancelled() => "the server is shutting down",
            () = tokio::time::sleep(timeout) => "it exceeded the turn timeout",
        }
    }

    /// Surveys a session for one request, and returns the longest duration of its turns.
    async fn survey_idle(
        &self,
        key: &SessionKey,
        overrides: &CompactionOverrides,
        instructions: &(String, InstructionsMode),
        target: Option<u32>,
    ) -> Result<(CompactionInput, Duration, CompactionRequest), Error> {
        let looked = self.session_view(key).await?;
        let config = &looked.session.config;
        let policy = self.policy(config)?.context;
        let model = self.model(looked.model(None))?;
        let compaction = policy.compaction.with(overrides);
        if let Some(model) = &compaction.summary_model {
            self.model(model)?;
        }
        let survey = self.compaction_input(key, &looked, &model, budget(&policy, &model)?).await?;
        let timeout = self.limits(config, &looked.request).turn_timeout;
        let order = CompactionRequest {
            trigger: Trigger::Manual,
            policy: compaction.within(survey.budget.window),
            instructions: instructions.clone(),
            target,
            was_pruned: false,
            need: if target.is_some() || survey.budget.overflows(survey.at_most()) {
                Urgency::LastResort
            } else {
                Urgency::Optional
            },
        };
        Ok((survey, timeout, order))
    }

    /// What a compaction of a session's next prompt is planned from.
    pub(in crate::turn) async fn compaction_input(
        &self,
        key: &SessionKey,
        looked: &SessionView,
        model: &ResolvedModel,
        budget: Budget,
    ) -> Result<CompactionInput, Error> {
        let size = looked.size(model);
        Ok(CompactionInput {
            tenant: key.tenant.clone(),
            messages: looked.messages.clone(),
            version: looked.session.context_version,
            in_force: self.in_force(key).await?,
            model: model.clone(),
            budget,
            non_transcript_tokens: size.non_transcript_tokens(),
            size: size.size().count,
            lesson: size.correction(),
        })
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
    /// context than the survey: then the next one does not begin.
    pub(in crate::turn) async fn in_force(&self, key: &SessionKey) -> Result<Option<ActiveCompaction>, Error> {
        Ok(self.store.compaction_in_force(key).await?.and_then(in_force_of))
    }

    /// Stores the begin of a compaction.
    async fn begin_compaction(
        &self,
        key: &SessionKey,
        survey: &CompactionInput,
        forecast: Compaction,
        idempotency: &Idempotency,
    ) -> Result<BeginOutcome, Error> {
        let id = CompactionId::new(Uuid::now_v7().to_string());
        let compaction = Compaction {
            id: Some(id.clone()),
            state: CompactionState::Running,
            usage: UsageTotals::default(),
            created_at: Some(self.now()),
            ..forecast
        };
        let started = Payload::CompactionStarted(Box::new(compaction.clone()));
        let beginning = NewCompaction {
            compaction: &id,
            seen: survey.version,
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
            self.notify_readers(key, moved.last_seq);
            return Ok(BeginOutcome::Begun(Box::new(compaction)));
        }
        if let Some(remembered) = begun.stored_request {
            if remembered.hash != idempotency.hash {
                return Err(mismatch(idempotency));
            }
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

    /// Compacts the survey, if that gains anything. `cut` stops it early and resolves with the
    /// reason.
    pub(in crate::turn) async fn compact_now(
        &self,
        key: &SessionKey,
        survey: &CompactionInput,
        order: &CompactionRequest,
        cut: impl Future<Output = &'static str> + Send,
    ) -> Result<CompactionAttempt, Error> {
        let Some(plan) = survey.plan(order) else {
            return Ok(CompactionAttempt::Nothing);
        };
        match self.begin_compaction(key, survey, survey.forecast(order, &plan), &unkeyed()).await? {
            BeginOutcome::Moved => Ok(CompactionAttempt::Changed),
            BeginOutcome::BegunBefore(other) | BeginOutcome::Running(other) => {
                tokio::select! {
                    _ = cut => {}
                    seen = self.await_compaction(key, &other, true) => drop(seen?),
                }
                Ok(CompactionAttempt::Changed)
            }
            BeginOutcome::Begun(begun) => {
                let made = self.make_compaction(key, survey, order, *begun, cut).await?;
                Ok(CompactionAttempt::Ended(Box::new(made)))
            }
        }
    }

    /// Makes a compaction that has begun, and puts it in force or gives it up. `cut` stops it early
    /// and resolves with the reason.
    async fn make_compaction(
        &self,
        key: &SessionKey,
        survey: &CompactionInput,
        order: &CompactionRequest,
        begun: Compaction,
        cut: impl Future<Output = &'static str> + Send,
    ) -> Result<Compaction, Error> {
        let Some(id) = begun.id.clone() else {
            return Err(Error::Internal("a compaction has no id".to_owned()));
        };
        let span = Trace::current().compaction(key);
        let mut cost = Cost::default();
        let drafted = tokio::select! {
            biased;
            drafted = span.trace().clone().scope(self.draft(survey, order, &begun, &mut cost)) => drafted,
            why = cut => Err(given_up(why)),
            () = self.keep_compaction(key, &id) => Err(given_up("its lease expired")),
        };
        match drafted {
            Ok(draft) => self.put_in_force(key, &id, draft, &cost).await?,
            Err(failure) => self.give_up_compaction(key, &id, begun, failure, &cost).await?,
        }
        let made = self.store.compaction(key, &id).await?;
        if let Some(made) = &made {
            span.compacted(made);
        }
        made.ok_or_else(|| Error::SessionNotFound(key.session.clone()))
    }

    /// Tries one way after the other.
    async fn draft(
        &self,
        survey: &CompactionInput,
        order: &CompactionRequest,
        begun: &Compaction,
        cost: &mut Cost,
    ) -> Result<Draft, Failure> {
        let situation = survey.situation(order);
        let mut failure = None;
        for way in survey.ways(order) {
            let Some(plan) = compact::plan(way, &situation).filter(|plan| survey.helps(order, plan)) else {
                continue;
            };
            let strategy = way.strategy();
            let written = if strategy.summarises() {
                match self.summarise(survey, order, &plan, cost).await {
                    Ok(written) => Some(written),
                    Err(reason) => {
                        tracing::warn!(?strategy, reason = reason.message, "failed to write a summary");
                        failure = Some(*reason);
                        continue;
                    }
                }
            } else {
                let text = survey.substitute(order, &plan);
                text.map(|text| (text, String::new()))
            };
            let draft = survey.draft(order, begun, plan, written);
            let after = draft.plan.size_after(&situation, draft.summary.as_ref().map_or(0, message_tokens));
            let told = draft.compaction.tokens_after.as_ref().map_or(after, |after| after.tokens);
            let bound = order.bound().filter(|bound| told > *bound);
            let exceeds = way.replaces_unanswered() && survey.exceeds(told);
            if bound.is_none() && !exceeds && compact::gain::gained_enough(situation.size, after) {
                return Ok(draft);
            }
            tracing::warn!(
                ?strategy,
                tokens.before = situation.size,
                tokens.after = after,
                "a compaction would save too little"
            );
            failure = Some(match bound {
                Some(bound) => no_gain(&format!("it would leave {told} tokens, more than the requested {bound}")),
                None if exceeds => {
                    no_gain(&format!("it would leave {told} tokens, which still exceed the context window"))
                }
                None => no_gain("it would hardly reduce the context"),
            });
        }
        Err(failure.unwrap_or_else(|| no_gain("nothing can be compacted")))
    }

    /// Puts a compaction in force. Gives it up if the context has changed.
    async fn put_in_force(&self, key: &SessionKey, id: &CompactionId, draft: Draft, cost: &Cost) -> Result<(), Error> {
        let Draft { compaction, shift, summary, estimator, plan } = draft;
        let compaction = Compaction {
            state: CompactionState::Applied,
            usage: cost.totals(),
            ended_at: Some(self.now()),
            ..compaction
        };
        let completed = Payload::CompactionCompleted(Box::new(compaction.clone()));
        let ratio = self.ratio(&key.tenant, &cost.model).await;
        let accounts = accounts(cost, id, summary.as_ref(), ratio);
        let mut rows = Rows::new(&estimator.name(), 0);
        match summary {
            Some(summary) => rows.summary(completed, summary),
            None => rows.event(completed, StepPosition::default()),
        }
        for account in accounts {
            rows.event(account, StepPosition::default());
        }
        let replacement = Replacement {
            from: plan.from,
            to: plan.to,
            kept: &plan.kept,
            hides_pinned: plan.hides_pinned,
            shift,
            rows: &rows,
            info: &codec::compaction::encode(&compaction),
            cost,
        };
        let swapped = self.insist(|| self.store.swap_compaction(key, id, &replacement)).await?;
        if let Some(moved) = swapped.update {
            tracing::info!(
                session.id = %key.session, compaction.id = %id, tokens.before = compaction.tokens_before.tokens,
                tokens.after = compaction.tokens_after.as_ref().map_or(0, |after| after.tokens),
                messages = compaction.messages_compacted, strategy = ?compaction.strategy, "context compacted"
            );
            self.metrics.compacted(&compaction);
            self.notify_readers(key, moved.last_seq);
        } else if swapped.status == Some(CompactionState::Running) {
            let failure = given_up("the context changed during the compaction");
            self.give_up_compaction(key, id, compaction, failure, cost).await?;
        }
        Ok(())
    }

    async fn give_up_compaction(
        &self,
        key: &SessionKey,
        id: &CompactionId,
        compaction: Compaction,
        failure: Failure,
        cost: &Cost,
    ) -> Result<(), Error> {
        tracing::warn!(session.id = %key.session, compaction.id = %id, reason = failure.message, "compaction failed");
        let compaction = Compaction {
            state: CompactionState::Failed,
            tokens_after: None,
            usage: cost.totals(),
            failure: Some(failure),
            ended_at: Some(self.now()),
            ..compaction
        };
        self.metrics.compacted(&compaction);
        let info = codec::compaction::encode(&compaction);
        let ratio = self.ratio(&key.tenant, &cost.model).await;
        let mut rows = Rows::default();
        let failed = Payload::CompactionFailed(Box::new(compaction));
        for payload in std::iter::once(failed).chain(accounts(cost, id, None, ratio)) {
            rows.event(payload, StepPosition::default());
        }
        let failed = FailedCompaction { rows: &rows, info: &info, cost };
        let failed = self.insist(|| self.store.fail_compaction(key, id, &failed)).await?;
        if let Some(moved) = failed.update {
            self.notify_readers(key, moved.last_seq);
        }
        Ok(())
    }

    /// Repeats a write until the database responds. A repetition returns what the first one wrote.
    async fn insist<F>(&self, write: impl Fn() -> F + Send + Sync) -> Result<CompactionOutcome, Error>
    where
        F: Future<Output = Result<CompactionOutcome, store::Error>> + Send,
    {
        for _ in 1..WRITES {
            match write().await {
                Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
                answer => return Ok(answer?),
            }
        }
        Ok(write().await?)
    }

    /// Renews the lease of a compaction. Returns when the lease is lost.
    async fn keep_compaction(&self, key: &SessionKey, id: &CompactionId) {
        loop {
            tokio::time::sleep(self.store.lease_ttl() / RENEWALS).await;
            if matches!(self.store.renew_compaction(key, id).await, Ok(false)) {
                return;
            }
        }
    }

    /// The compaction that the same request began before.
    async fn compacted_before(
        &self,
        key: &SessionKey,
        idempotency: &Idempotency,
    ) -> Result<Option<CompactionId>, Error> {
        let Some(request) = &idempotency.request else {
            return Ok(None);
        };
        match self.store.stored_request(key, request).await? {
            Some(known) if known.hash != idempotency.hash => Err(mismatch(idempotency)),
            known => Ok(known.map(|known| CompactionId::new(known.result))),
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
                () = self.draining.cancelled() => return Ok(found),
            }
        }
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

    /// Gives up abandoned compactions. A session in which that fails does not hold up the others.
    /// Returns the first error.
    pub async fn expire_abandoned_compactions(&self) -> Result<(), Error> {
        let mut first = Ok(());
        while !self.draining.is_cancelled() {
            let found = self.store.abandoned_compactions(ROUND).await?;
            let is_full = found.len() == ROUND as usize;
            let mut given_up = BTreeSet::new();
            for key in found {
                match self.store.expire_compaction(&key).await {
                    Ok(()) => {
                        self.wake(crate::turn::live::wakeups::Wakeup::NewEvents(key.clone()));
                        given_up.insert(key);
                    }
                    Err(error) => {
                        tracing::warn!(session.id = %key.session, %error, "failed to end an abandoned compaction");
                        first = first.and(Err(error.into()));
                    }
                }
            }
            first = first.and(self.poll_events_of_sessions(&given_up).await);
            if !is_full || given_up.is_empty() {
                break;
            }
        }
        first
    }
}

/// One usage record per model call of a compaction. The last call wrote the summary.
fn accounts(cost: &Cost, id: &CompactionId, summary: Option<&NewMessage>, ratio: f64) -> Vec<Payload> {
    let last = cost.calls.len().saturating_sub(1);
    let call = |(at, usage): (usize, &Option<crate::model::Usage>)| {
        Payload::UsageRecorded(UsageRecorded {
            purpose: UsagePurpose::Compaction,
            model: cost.model.clone(),
            usage: usage.clone(),
            estimate: None,
            ratio,
            message: summary.filter(|_| at == last).map(|message| message.id.clone()),
            compaction: Some(id.clone()),
        })
    };
    cost.calls.iter().enumerate().map(call).collect()
}

/// A failure that would recur with the same context.
fn no_gain(why: &str) -> Failure {
    Failure::local(FailureReason::ContextOverflow, why, false)
}

fn given_up(why: &str) -> Failure {
    Failure::local(FailureReason::Internal, why, true)
}

fn mismatch(idempotency: &Idempotency) -> Error {
    match &idempotency.request {
        Some(request) => Error::IdempotencyMismatch(request.clone()),
        None => Error::Internal("an idempotency record has no key".to_owned()),
    }
}
