//! Compactions: what stands for older messages is found, asked for, and put in force beside
//! whatever else the session does. For whoever calls Compact, and for turns that make room by
//! themselves.
//!
//! A compaction is begun with an event and a lease of its own, so that there is one at a time and
//! everybody sees it. Nothing changes until one statement puts it in force, which compares the
//! version of the context with the one that it was made from. It is a task of the server's: whoever
//! asked may leave.

mod draft;
mod revert;
mod summary;

pub(in crate::turn) use draft::{Order, Survey};

use std::{collections::BTreeSet, convert::Infallible, future::Future, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::{
    codec,
    context::{
        budget::Budget,
        compact::{self, InForce, ladder::Need},
    },
    fair::FairPlace,
    model::{
        Compaction, CompactionId, CompactionState, Failure, FailureReason, Payload, SessionKey,
        TenantId, UsagePurpose, UsageTotals,
        command::{Compact, Idempotency},
        compaction::{CompactionOverrides, InstructionsMode, Trigger},
        event::{StepPosition, UsageRecorded},
        policy::Changeable as _,
    },
    provider::registry::Resolved,
    session::{
        compaction::{Beginning, GivenUp},
        compaction_rows::{Cost, Replacement},
        rows::{NewMessage, Rows},
    },
    store::{
        self, Reach,
        compaction::{Compacted, CompactionStatus},
    },
    telemetry::Trace,
    turn::{
        Error,
        context::{
            compact::draft::{Draft, in_force_of},
            prune::unasked,
            session_view::SessionView,
            stats::budget,
        },
        engine::{Engine, joined},
        lease::leases::CompactionPlace,
        optimistic::retry_on_change,
        run::measured::message_tokens,
    },
};

/// How often the end of a compaction is written, when the database gives no answer.
const WRITES: u32 = 10;
/// How long a pause is between looks at a compaction that is made elsewhere, and between tries to
/// put one in force.
const PAUSE: Duration = Duration::from_millis(100);
/// Renewals within one lease.
const RENEWALS: u32 = 3;
/// Sessions whose compactions are given up in one round.
const ROUND: u32 = 32;

/// How a compaction began.
#[derive(Debug)]
enum Begun {
    /// It did.
    Mine(Box<Compaction>),
    /// Another one runs.
    Running(CompactionId),
    /// The same request began this one before.
    Known(CompactionId),
    /// The context is another one by now.
    Moved,
}

/// Why a context is not compacted by itself for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::turn) enum TriedLast {
    /// It is being compacted.
    Running,
    /// It was tried, and would fail again.
    NoGain,
}

/// The outcome of a compaction that was not requested by name.
#[derive(Debug)]
pub(in crate::turn) enum Tried {
    /// There is nothing that may go.
    Nothing,
    /// The context is another one by now, or another compaction had to be waited for.
    Changed,
    /// It is in force, or given up.
    Ended(Box<Compaction>),
}

impl Engine {
    /// Compacts, or says what would be compacted. Answers with the compaction as it is by then.
    pub async fn compact(
        self: &Arc<Self>,
        tenant: TenantId,
        command: Compact,
    ) -> Result<Compaction, Error> {
        self.supervised(async move |engine| {
            let key = SessionKey::new(tenant, command.session.clone());
            retry_on_change(|| engine.try_compact(&key, &command)).await
        })
        .await
    }

    /// One try. `None` means the context changed between the look and the beginning.
    async fn try_compact(
        self: &Arc<Self>,
        key: &SessionKey,
        command: &Compact,
    ) -> Result<Option<Compaction>, Error> {
        let Compact {
            overrides,
            instructions,
            target,
            wait,
            dry_run,
            idempotency,
            session: _,
        } = command;
        if let Some(known) = self.compacted_before(key, idempotency).await? {
            return self.seen_through(key, &known, *wait).await.map(Some);
        }
        let memory = self.memory_for(key, 0).await?;
        let (survey, timeout, order) = self
            .survey_idle(key, overrides, instructions, *target)
            .await?;
        let before = survey.size.tokens;
        let Some(plan) = survey.plan(&order) else {
            // The same request may have done it between the two looks.
            return match self.compacted_before(key, idempotency).await? {
                Some(known) => self.seen_through(key, &known, *wait).await.map(Some),
                None => Err(Error::CompactionNoGain {
                    before,
                    after: survey.smallest(&order).unwrap_or(before),
                }),
            };
        };
        let forecast = survey.forecast(&order, &plan);
        if *dry_run {
            return Ok(Some(forecast));
        }
        self.quotas.check_tokens(&key.tenant)?;
        let tenant = &key.tenant;
        let admit = |all, own| self.has_room(tenant, all, own);
        let place = self.leases.compact(tenant, admit)?;
        match self
            .begin_compaction(key, &survey, forecast, idempotency)
            .await?
        {
            Begun::Moved => Ok(None),
            Begun::Running(running) => Err(Error::CompactionInProgress(running)),
            Begun::Known(known) => self.seen_through(key, &known, *wait).await.map(Some),
            Begun::Mine(begun) => {
                let made = Compaction::clone(&begun);
                let task =
                    self.make_beside(key, (survey, order), made, timeout, (place, Some(memory)));
                if !*wait {
                    return Ok(Some(*begun));
                }
                joined(task).await.map(Some)
            }
        }
    }

    /// Makes a compaction that is begun in a task of the server's.
    fn make_beside(
        self: &Arc<Self>,
        key: &SessionKey,
        (survey, order): (Survey, Order),
        begun: Compaction,
        timeout: Duration,
        held: (CompactionPlace, Option<FairPlace>),
    ) -> JoinHandle<Result<Compaction, Error>> {
        let engine = Arc::clone(self);
        let key = key.clone();
        let making = async move {
            let _held = held;
            let made =
                engine.make_compaction(&key, &survey, &order, begun, engine.cut_short(timeout));
            Box::pin(made).await.inspect_err(|error| {
                tracing::warn!(session.id = %key.session, %error, "compaction abandoned; its lease will expire");
            })
        };
        self.tasks
            .spawn(Reach::kept(Trace::current().scope(making)))
    }

    /// Compacts what was surveyed while its turn goes on, if there is something to be gained.
    pub(in crate::turn) async fn compact_beside(
        self: &Arc<Self>,
        key: &SessionKey,
        survey: Survey,
        order: Order,
        timeout: Duration,
    ) -> Result<(), Error> {
        let Some(plan) = survey.plan(&order) else {
            return Ok(());
        };
        match self
            .begin_compaction(key, &survey, survey.forecast(&order, &plan), &unasked())
            .await?
        {
            Begun::Mine(begun) => {
                // The turn that needs it runs: it waits for no other.
                let Ok(place) = self
                    .leases
                    .compact(&key.tenant, |_, _| Ok::<_, Infallible>(()));
                drop(self.make_beside(key, (survey, order), *begun, timeout, (place, None)));
            }
            Begun::Moved | Begun::Running(_) | Begun::Known(_) => {}
        }
        Ok(())
    }

    /// Comes when a compaction that belongs to no turn has to end; says why.
    pub(in crate::turn) async fn cut_short(&self, timeout: Duration) -> &'static str {
        tokio::select! {
            () = self.aborting.cancelled() => "the server is shutting down",
            () = tokio::time::sleep(timeout) => "it took longer than a turn may",
        }
    }

    /// A session as it is, with what one request wants; and how long a turn of it may take.
    async fn survey_idle(
        &self,
        key: &SessionKey,
        overrides: &CompactionOverrides,
        instructions: &(String, InstructionsMode),
        target: Option<u32>,
    ) -> Result<(Survey, Duration, Order), Error> {
        let looked = self.session_view(key).await?;
        let config = &looked.session.config;
        let policy = self.policy(config)?.context;
        let model = self.model(looked.model(None))?;
        let compaction = policy.compaction.with(overrides);
        if let Some(model) = &compaction.summary_model {
            self.model(model)?;
        }
        let survey = self
            .survey(key, &looked, &model, budget(&policy, &model)?)
            .await?;
        let timeout = self.limits(config, &looked.request).turn_timeout;
        let order = Order {
            trigger: Trigger::Manual,
            policy: compaction.within(survey.budget.window),
            instructions: instructions.clone(),
            target,
            was_pruned: false,
            need: if target.is_some() || survey.budget.overflows(survey.at_most()) {
                Need::AtAnyCost
            } else {
                Need::Wish
            },
        };
        Ok((survey, timeout, order))
    }

    /// What a compaction of a session's next prompt would be made from.
    pub(in crate::turn) async fn survey(
        &self,
        key: &SessionKey,
        looked: &SessionView,
        model: &Resolved,
        budget: Budget,
    ) -> Result<Survey, Error> {
        let size = looked.size(model);
        Ok(Survey {
            tenant: key.tenant.clone(),
            messages: looked.messages.clone(),
            version: looked.session.context_version,
            in_force: self.in_force(key).await?,
            model: model.clone(),
            budget,
            non_transcript_tokens: size.non_transcript_tokens(),
            size: size.size().count,
            lesson: size.lesson(),
        })
    }

    /// The outcome of the newest compaction, as far as that is a reason to let this version of the
    /// context be.
    pub(in crate::turn) async fn tried_last(
        &self,
        key: &SessionKey,
        version: i64,
    ) -> Result<Option<TriedLast>, Error> {
        let Some((newest, made_from)) = self.store.newest_compaction(key).await? else {
            return Ok(None);
        };
        let no_gain =
            newest.failure.is_some_and(|failure| !failure.recoverable) && made_from == version;
        Ok(match newest.state {
            CompactionState::Running => Some(TriedLast::Running),
            CompactionState::Failed => no_gain.then_some(TriedLast::NoGain),
            CompactionState::Planned | CompactionState::Applied | CompactionState::Reverted => None,
        })
    }

    /// The compaction in force, as the next one has to know it. One of another version of the
    /// context than was looked at does no harm: nothing begins there.
    pub(in crate::turn) async fn in_force(
        &self,
        key: &SessionKey,
    ) -> Result<Option<InForce>, Error> {
        Ok(self
            .store
            .compaction_in_force(key)
            .await?
            .and_then(in_force_of))
    }

    /// Writes down that a compaction begins.
    async fn begin_compaction(
        &self,
        key: &SessionKey,
        survey: &Survey,
        forecast: Compaction,
        idempotency: &Idempotency,
    ) -> Result<Begun, Error> {
        let id = CompactionId::new(Uuid::now_v7().to_string());
        let compaction = Compaction {
            id: Some(id.clone()),
            state: CompactionState::Running,
            usage: UsageTotals::default(),
            created_at: Some(self.now()),
            ..forecast
        };
        let started = Payload::CompactionStarted(Box::new(compaction.clone()));
        let beginning = Beginning {
            compaction: &id,
            seen: survey.version,
            info: &codec::compaction::encode(&compaction),
            started: &started,
            lease: self.store.lease(),
        };
        let begun = match self
            .store
            .begin_compaction(key, &beginning, idempotency)
            .await
        {
            Ok(begun) => begun,
            Err(store::Error::Duplicate(_)) => return Ok(Begun::Moved),
            Err(error) => return Err(error.into()),
        };
        if let Some(moved) = begun.moved {
            self.nudge(key, moved.last_seq);
            return Ok(Begun::Mine(Box::new(compaction)));
        }
        if let Some(remembered) = begun.remembered {
            if remembered.hash != idempotency.hash {
                return Err(mismatch(idempotency));
            }
            return Ok(Begun::Known(CompactionId::new(remembered.result)));
        }
        match (begun.context_version, begun.running) {
            (None, _) => Err(Error::SessionNotFound(key.session.clone())),
            // Its begin had landed, and the answer was lost.
            (Some(_), Some(running)) if running == id => Ok(Begun::Mine(Box::new(compaction))),
            (Some(_), Some(running)) => Ok(Begun::Running(running)),
            (Some(_), None) => Ok(Begun::Moved),
        }
    }

    /// Compacts what was surveyed, if there is something to be gained. `cut` ends it early, and
    /// says why.
    pub(in crate::turn) async fn compact_now(
        &self,
        key: &SessionKey,
        survey: &Survey,
        order: &Order,
        cut: impl Future<Output = &'static str> + Send,
    ) -> Result<Tried, Error> {
        let Some(plan) = survey.plan(order) else {
            return Ok(Tried::Nothing);
        };
        match self
            .begin_compaction(key, survey, survey.forecast(order, &plan), &unasked())
            .await?
        {
            Begun::Moved => Ok(Tried::Changed),
            Begun::Known(other) | Begun::Running(other) => {
                tokio::select! {
                    _ = cut => {}
                    seen = self.seen_through(key, &other, true) => drop(seen?),
                }
                Ok(Tried::Changed)
            }
            Begun::Mine(begun) => {
                let made = self
                    .make_compaction(key, survey, order, *begun, cut)
                    .await?;
                Ok(Tried::Ended(Box::new(made)))
            }
        }
    }

    /// Makes a compaction that is begun, and puts it in force or gives it up. `cut` ends it early,
    /// and says why.
    async fn make_compaction(
        &self,
        key: &SessionKey,
        survey: &Survey,
        order: &Order,
        begun: Compaction,
        cut: impl Future<Output = &'static str> + Send,
    ) -> Result<Compaction, Error> {
        let Some(id) = begun.id.clone() else {
            return Err(Error::Internal("a compaction without an id".to_owned()));
        };
        let span = Trace::current().compaction(key);
        let mut cost = Cost::default();
        let drafted = tokio::select! {
            biased;
            drafted = span.trace().clone().scope(self.draft(survey, order, &begun, &mut cost)) => drafted,
            why = cut => Err(given_up(why)),
            () = self.keep_compaction(key, &id) => Err(given_up("its lease ran out")),
        };
        match drafted {
            Ok(draft) => self.put_in_force(key, &id, draft, &cost).await?,
            Err(failure) => {
                self.give_up_compaction(key, &id, begun, failure, &cost)
                    .await?
            }
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
        survey: &Survey,
        order: &Order,
        begun: &Compaction,
        cost: &mut Cost,
    ) -> Result<Draft, Failure> {
        let situation = survey.situation(order);
        let mut failure = None;
        for way in survey.ways(order) {
            let Some(plan) =
                compact::plan(way, &situation).filter(|plan| survey.helps(order, plan))
            else {
                continue;
            };
            let strategy = way.strategy();
            let written = if strategy.summarises() {
                match self.summarise(survey, order, &plan, cost).await {
                    Ok(written) => Some(written),
                    Err(reason) => {
                        tracing::warn!(
                            ?strategy,
                            reason = reason.message,
                            "no summary was written"
                        );
                        failure = Some(*reason);
                        continue;
                    }
                }
            } else {
                let text = survey.substitute(order, &plan);
                text.map(|text| (text, String::new()))
            };
            let draft = survey.draft(order, begun, plan, written);
            let after = draft
                .plan
                .after(&situation, draft.summary.as_ref().map_or(0, message_tokens));
            let told = draft
                .compaction
                .tokens_after
                .as_ref()
                .map_or(after, |after| after.tokens);
            let bound = order.bound().filter(|bound| told > *bound);
            let exceeds = way.takes_unanswered() && survey.exceeds(told);
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
                Some(bound) => no_gain(&format!(
                    "it would have left {told} tokens, and {bound} were asked for"
                )),
                None if exceeds => no_gain(&format!(
                    "it would have left {told} tokens, which do not fit the window either"
                )),
                None => no_gain("it would have made the context hardly smaller"),
            });
        }
        Err(failure.unwrap_or_else(|| no_gain("nothing can be compacted")))
    }

    /// Puts a compaction in force, unless the context is another one by now: then it is given up.
    async fn put_in_force(
        &self,
        key: &SessionKey,
        id: &CompactionId,
        draft: Draft,
        cost: &Cost,
    ) -> Result<(), Error> {
        let Draft {
            compaction,
            shift,
            summary,
            estimator,
            plan,
        } = draft;
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
        let swapped = self
            .insist(|| self.store.swap_compaction(key, id, &replacement))
            .await?;
        if let Some(moved) = swapped.moved {
            tracing::info!(
                session.id = %key.session, compaction.id = %id, tokens.before = compaction.tokens_before.tokens,
                tokens.after = compaction.tokens_after.as_ref().map_or(0, |after| after.tokens),
                messages = compaction.messages_compacted, strategy = ?compaction.strategy, "context compacted"
            );
            self.metrics.compacted(&compaction);
            self.nudge(key, moved.last_seq);
        } else if swapped.status == Some(CompactionStatus::Running) {
            let failure = given_up("the context changed while it was made");
            self.give_up_compaction(key, id, compaction, failure, cost)
                .await?;
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
        let failed = GivenUp {
            rows: &rows,
            info: &info,
            cost,
        };
        let failed = self
            .insist(|| self.store.fail_compaction(key, id, &failed))
            .await?;
        if let Some(moved) = failed.moved {
            self.nudge(key, moved.last_seq);
        }
        Ok(())
    }

    /// Writes until the database gives an answer: a repetition is answered with what had been
    /// written.
    async fn insist<F>(&self, write: impl Fn() -> F + Send + Sync) -> Result<Compacted, Error>
    where
        F: Future<Output = Result<Compacted, store::Error>> + Send,
    {
        for _ in 1..WRITES {
            match write().await {
                Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
                answer => return Ok(answer?),
            }
        }
        Ok(write().await?)
    }

    /// Renews the lease of a compaction; ends when it is no longer to be had.
    async fn keep_compaction(&self, key: &SessionKey, id: &CompactionId) {
        loop {
            tokio::time::sleep(self.store.lease() / RENEWALS).await;
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
        match self.store.remembered(key, request).await? {
            Some(known) if known.hash != idempotency.hash => Err(mismatch(idempotency)),
            known => Ok(known.map(|known| CompactionId::new(known.result))),
        }
    }

    /// A compaction as it is, or as it ends.
    async fn seen_through(
        &self,
        key: &SessionKey,
        id: &CompactionId,
        wait: bool,
    ) -> Result<Compaction, Error> {
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

    /// The compactions of a session, the newest first, those after `before`.
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

    /// Gives up abandoned compactions. A session in which that fails does not hold up the others; the
    /// first error is returned.
    pub async fn tend_compactions(&self) -> Result<(), Error> {
        let mut first = Ok(());
        while !self.draining.is_cancelled() {
            let found = self.store.abandoned_compactions(ROUND).await?;
            let is_full = found.len() == ROUND as usize;
            let mut given_up = BTreeSet::new();
            for key in found {
                match self.store.expire_compaction(&key).await {
                    Ok(()) => {
                        self.wake(crate::turn::live::wakeups::Wakeup::News(key.clone()));
                        given_up.insert(key);
                    }
                    Err(error) => {
                        tracing::warn!(session.id = %key.session, %error, "an abandoned compaction was not given up");
                        first = first.and(Err(error.into()));
                    }
                }
            }
            first = first.and(self.look_for_news_of(&given_up).await);
            if !is_full || given_up.is_empty() {
                break;
            }
        }
        first
    }
}

/// The calls for a compaction, each as it is reported. The last one wrote the summary.
fn accounts(
    cost: &Cost,
    id: &CompactionId,
    summary: Option<&NewMessage>,
    ratio: f64,
) -> Vec<Payload> {
    let last = cost.calls.len().saturating_sub(1);
    let call = |(at, usage): (usize, &Option<crate::model::Usage>)| {
        Payload::UsageRecorded(UsageRecorded {
            purpose: UsagePurpose::Compaction,
            model: cost.model.clone(),
            usage: usage.clone(),
            estimate: None,
            ratio,
            message: summary
                .filter(|_| at == last)
                .map(|message| message.id.clone()),
            compaction: Some(id.clone()),
        })
    };
    cost.calls.iter().enumerate().map(call).collect()
}

/// The same would come of it again.
fn no_gain(why: &str) -> Failure {
    Failure::local(FailureReason::ContextOverflow, why, false)
}

fn given_up(why: &str) -> Failure {
    Failure::local(FailureReason::Internal, why, true)
}

fn mismatch(idempotency: &Idempotency) -> Error {
    match &idempotency.request {
        Some(request) => Error::IdempotencyMismatch(request.clone()),
        None => Error::Internal("a request without a key was remembered".to_owned()),
    }
}
