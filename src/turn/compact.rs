//! Compactions: what stands for older messages is found, asked for, and put in force beside whatever else the session does. For
//! whoever calls Compact, and for turns that make room by themselves.
//!
//! A compaction is begun with an event and a lease of its own, so that there is one at a time and everybody sees it. Nothing changes
//! until one statement puts it in force, which compares the version of the context with the one that it was made from. It is a task of
//! the server's: whoever asked may leave.

mod revert;
mod summary;

use std::{future::Future, sync::Arc, time::Duration};

use uuid::Uuid;

use super::{Engine, Error, prune::unasked, sessions::outside_tokens, stats::budget, written::message_tokens};
use crate::{
    codec,
    context::{
        budget::Budget,
        compact::{self, Plan, Situation, Standing, words},
        estimate, prune,
        size::{size, usable},
    },
    model::{
        Category, Compaction, CompactionId, CompactionState, Failure, FailureReason, Message, MessageId, Part, Payload,
        Role, SessionKey, TenantId, TokenCount, UsagePurpose, UsageTotals,
        command::{Compact, Idempotency},
        compaction::{CompactionOverrides, CompactionPolicy, InstructionsMode, Summary, Trigger},
        derive,
        message::StoredPart,
    },
    provider::registry::Resolved,
    store::{
        self, NewMessage,
        compaction::{Beginning, Compacted, CompactionStatus, Cost, Counter, Replacement, Shift},
    },
};

/// How often something is tried again that the session changed under.
const TRIES: u32 = 10;
/// How long a pause is between looks at a compaction that is made elsewhere, and between tries to put one in force.
const PAUSE: Duration = Duration::from_millis(100);
/// Renewals within one lease.
const RENEWALS: u32 = 3;
/// Sessions whose compactions are given up in one round.
const ROUND: u32 = 32;

/// What a compaction is made from.
#[derive(Debug)]
pub(super) struct Survey {
    /// What the model sees.
    pub(super) messages: Vec<Message>,
    /// The version of that.
    pub(super) version: i64,
    /// The compaction in force.
    pub(super) standing: Option<Standing>,
    /// The model that the prompt is for.
    pub(super) model: Resolved,
    /// Its window.
    pub(super) budget: Budget,
    /// Estimated size of the prompt beside the messages.
    pub(super) outside: u32,
    /// Size of the prompt.
    pub(super) size: TokenCount,
}

/// What is wanted of a compaction.
#[derive(Debug)]
pub(super) struct Order {
    /// Why.
    pub(super) trigger: Trigger,
    /// When and how, with what one request wants otherwise.
    pub(super) policy: CompactionPolicy,
    /// Wishes of one request.
    pub(super) wishes: (String, InstructionsMode),
    /// The size that is asked for; none: by the room.
    pub(super) target: Option<u32>,
    /// Old tool results were cleared for it.
    pub(super) was_pruned: bool,
    /// It has to become smaller, whatever is lost.
    pub(super) must: bool,
}

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

/// What became of a compaction that nobody asked for by name.
#[derive(Debug)]
pub(super) enum Tried {
    /// There is nothing that may go.
    Nothing,
    /// The context is another one by now, or another compaction had to be waited for.
    Changed,
    /// It is in force, or given up.
    Ended(Box<Compaction>),
}

/// A compaction that is worked out.
struct Draft {
    compaction: Compaction,
    shift: Shift,
    summary: Option<NewMessage>,
    plan: Plan,
}

impl Survey {
    fn situation<'a>(&'a self, order: &'a Order) -> Situation<'a> {
        Situation {
            messages: &self.messages,
            standing: self.standing.as_ref(),
            outside: self.outside,
            size: self.at_most(),
            budget: self.budget,
            policy: &order.policy,
            target: order.target,
        }
    }

    /// The size that triggers compare.
    fn at_most(&self) -> u32 {
        self.size.tokens.saturating_add(self.size.margin)
    }

    /// The size of the prompt with a summary of so many tokens in place of what a plan hides, as it is shown.
    fn left(&self, order: &Order, plan: &Plan, summary: u32) -> TokenCount {
        let shown = Situation { size: self.size.tokens, ..self.situation(order) };
        estimate::count(plan.after(&shown, summary))
    }

    /// What the first way that leads anywhere would stand for.
    pub(super) fn plan(&self, order: &Order) -> Option<Plan> {
        let situation = self.situation(order);
        compact::ladder(order.policy.strategy, order.must).find_map(|strategy| compact::plan(strategy, &situation))
    }
}

impl Engine {
    /// Compacts, or says what would be compacted. Answers with the compaction as it is by then.
    pub async fn compact(self: &Arc<Self>, tenant: TenantId, command: Compact) -> Result<Compaction, Error> {
        let engine = Arc::clone(self);
        self.supervised(async move {
            let key = SessionKey::new(tenant, command.session.clone());
            for _ in 0..TRIES {
                if let Some(compaction) = engine.try_compact(&key, &command).await? {
                    return Ok(compaction);
                }
            }
            Err(kept_changing())
        })
        .await
    }

    /// One try; none: the context changed between the look and the beginning.
    async fn try_compact(self: &Arc<Self>, key: &SessionKey, command: &Compact) -> Result<Option<Compaction>, Error> {
        let Compact { overrides, wishes, target, wait, dry_run, idempotency, session: _ } = command;
        if let Some(known) = self.compacted_before(key, idempotency).await? {
            return self.seen_through(key, &known, *wait).await.map(Some);
        }
        let (survey, timeout, order) = self.survey_idle(key, overrides, wishes, *target).await?;
        let before = survey.size.tokens;
        let plan = survey.plan(&order).ok_or(Error::CompactionNoGain { before, after: before })?;
        let forecast = forecast(&survey, &order, &plan);
        if *dry_run {
            return Ok(Some(forecast));
        }
        match self.begin_compaction(key, &survey, forecast, idempotency).await? {
            Begun::Moved => Ok(None),
            Begun::Running(running) => Err(Error::CompactionInProgress(running)),
            Begun::Known(known) => self.seen_through(key, &known, *wait).await.map(Some),
            Begun::Mine(begun) => {
                let (engine, key, made) = (Arc::clone(self), key.clone(), Compaction::clone(&begun));
                let task = self.tasks.spawn(async move {
                    Box::pin(engine.make_compaction(&key, &survey, &order, made, engine.cut_short(timeout))).await
                });
                if !*wait {
                    return Ok(Some(*begun));
                }
                task.await.map_err(|error| Error::Internal(format!("a task ended early: {error}")))?.map(Some)
            }
        }
    }

    /// Comes when a compaction that belongs to no turn has to end; says why.
    pub(super) async fn cut_short(&self, timeout: Duration) -> &'static str {
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
        wishes: &(String, InstructionsMode),
        target: Option<u32>,
    ) -> Result<(Survey, Duration, Order), Error> {
        let session = self.session(key).await?;
        let config = &session.config;
        let policy = self.policy(config)?.context;
        let model = self.model(&config.model)?;
        let compaction = policy.compaction.with(overrides);
        if let Some(model) = &compaction.summary_model {
            self.model(model)?;
        }
        let outside = outside_tokens(config, &config.tools, model.info.supports_tools);
        let anchor = usable(session.anchor.as_ref(), &model.reference, session.context_version);
        let count = size(anchor, session.context_tokens + i64::from(outside)).count;
        let budget = budget(&policy, &model)?;
        let survey = self.survey(key, model, budget, outside, count).await?;
        let timeout = self.limits(config, &crate::model::command::TurnRequest::default()).turn_timeout;
        let must = target.is_some() || budget.overflows(survey.at_most());
        let order = Order {
            trigger: Trigger::Manual,
            policy: compaction.within(budget.window),
            wishes: wishes.clone(),
            target,
            was_pruned: false,
            must,
        };
        Ok((survey, timeout, order))
    }

    /// What a compaction of this prompt would be made from.
    pub(super) async fn survey(
        &self,
        key: &SessionKey,
        model: Resolved,
        budget: Budget,
        outside: u32,
        size: TokenCount,
    ) -> Result<Survey, Error> {
        let (seen, standing) =
            futures_util::future::try_join(self.store.transcript(key), self.store.compaction_in_force(key)).await?;
        Ok(Survey {
            messages: seen.messages,
            version: seen.context_version.unwrap_or_default(),
            standing: standing.and_then(standing_of),
            model,
            budget,
            outside,
            size,
        })
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
            started: &codec::event::encode(&started).payload,
            expired: &codec::event::encode_compaction_lost(),
            idempotency,
        };
        let begun = match self.store.begin_compaction(key, &beginning).await {
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

    /// Compacts what was surveyed, if there is something to be gained. `cut` ends it early, and says why.
    pub(super) async fn compact_now(
        &self,
        key: &SessionKey,
        survey: &Survey,
        order: &Order,
        cut: impl Future<Output = &'static str> + Send,
    ) -> Result<Tried, Error> {
        let Some(plan) = survey.plan(order) else { return Ok(Tried::Nothing) };
        match self.begin_compaction(key, survey, forecast(survey, order, &plan), &unasked()).await? {
            Begun::Moved => Ok(Tried::Changed),
            Begun::Known(other) | Begun::Running(other) => {
                tokio::select! {
                    _ = cut => {}
                    seen = self.seen_through(key, &other, true) => drop(seen?),
                }
                Ok(Tried::Changed)
            }
            Begun::Mine(begun) => {
                let made = self.make_compaction(key, survey, order, *begun, cut).await?;
                Ok(Tried::Ended(Box::new(made)))
            }
        }
    }

    /// Makes a compaction that is begun, and puts it in force or gives it up. `cut` ends it early, and says why.
    async fn make_compaction(
        &self,
        key: &SessionKey,
        survey: &Survey,
        order: &Order,
        begun: Compaction,
        cut: impl Future<Output = &'static str> + Send,
    ) -> Result<Compaction, Error> {
        let Some(id) = begun.id.clone() else { return Err(Error::Internal("a compaction without an id".to_owned())) };
        let mut cost = Cost::default();
        let drafted = tokio::select! {
            biased;
            drafted = self.draft(survey, order, &begun, &mut cost) => drafted,
            why = cut => Err(given_up(why)),
            () = self.keep_compaction(key, &id) => Err(given_up("its lease ran out")),
        };
        match drafted {
            Ok(draft) => self.put_in_force(key, &id, draft, &cost).await?,
            Err(failure) => self.give_up_compaction(key, &id, begun, failure, &cost).await?,
        }
        let made = self.store.compaction(key, &id).await?;
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
        for strategy in compact::ladder(order.policy.strategy, order.must) {
            let Some(plan) = compact::plan(strategy, &situation) else { continue };
            let written = if strategy.summarises() {
                match self.summarise(survey, order, &plan, cost).await {
                    Ok(written) => Some(written),
                    Err(reason) => {
                        tracing::warn!(?strategy, reason = reason.message, "no summary was written");
                        failure = Some(*reason);
                        continue;
                    }
                }
            } else {
                let carried = survey.standing.as_ref().and_then(|standing| standing.summary.clone());
                carried.filter(|_| plan.carries).map(|text| (text, String::new()))
            };
            let draft = drafted(survey, order, begun, plan, written);
            let after = draft.plan.after(&situation, draft.summary.as_ref().map_or(0, message_tokens));
            if compact::is_progress(situation.size, after) {
                return Ok(Draft { compaction: Compaction { usage: cost.usage, ..draft.compaction }, ..draft });
            }
            tracing::warn!(
                ?strategy,
                tokens.before = situation.size,
                tokens.after = after,
                "a compaction would gain too little"
            );
            failure = Some(given_up("it would have made the context hardly smaller"));
        }
        Err(failure.unwrap_or_else(|| given_up("there is nothing that may go")))
    }

    /// Puts a compaction in force, unless the context is another one by now: then it is given up.
    async fn put_in_force(&self, key: &SessionKey, id: &CompactionId, draft: Draft, cost: &Cost) -> Result<(), Error> {
        let Draft { compaction, shift, summary, plan } = draft;
        let compaction = Compaction { state: CompactionState::Applied, ended_at: Some(self.now()), ..compaction };
        let completed = Payload::CompactionCompleted(Box::new(compaction.clone()));
        let replacement = Replacement {
            from: plan.from,
            to: plan.to,
            kept: &plan.kept,
            shift,
            summary: summary.as_ref(),
            estimator: estimate::ESTIMATOR,
            info: &codec::compaction::encode(&compaction),
            completed: &codec::event::encode(&completed).payload,
            cost,
            usage_recorded: (cost.usage.calls > 0).then(|| accounted(cost, summary.as_ref())),
        };
        let swapped = self.insist(|| self.store.swap_compaction(key, id, &replacement)).await?;
        if let Some(moved) = swapped.moved {
            tracing::info!(
                session.id = %key.session, compaction.id = %id, tokens.before = compaction.tokens_before.tokens,
                tokens.after = compaction.tokens_after.as_ref().map_or(0, |after| after.tokens),
                messages = compaction.messages_compacted, strategy = ?compaction.strategy, "a context was compacted"
            );
            self.nudge(key, moved.last_seq);
        } else if swapped.status == Some(CompactionStatus::Running) {
            let failure = given_up("the context changed while it was made");
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
        tracing::warn!(session.id = %key.session, compaction.id = %id, reason = failure.message, "a compaction was given up");
        let compaction = Compaction {
            state: CompactionState::Failed,
            tokens_after: None,
            usage: cost.usage,
            failure: Some(failure),
            ended_at: Some(self.now()),
            ..compaction
        };
        let info = codec::compaction::encode(&compaction);
        let failed = codec::event::encode(&Payload::CompactionFailed(Box::new(compaction))).payload;
        let failed = self.insist(|| self.store.fail_compaction(key, id, &info, &failed, cost)).await?;
        if let Some(moved) = failed.moved {
            self.nudge(key, moved.last_seq);
        }
        Ok(())
    }

    /// Writes until the database gives an answer: a repetition is told what had landed.
    async fn insist<F>(&self, write: impl Fn() -> F + Send + Sync) -> Result<Compacted, Error>
    where
        F: Future<Output = Result<Compacted, store::Error>> + Send,
    {
        for _ in 1..TRIES {
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
        let Some(request) = &idempotency.request else { return Ok(None) };
        match self.store.remembered(key, request).await? {
            Some(known) if known.hash != idempotency.hash => Err(mismatch(idempotency)),
            known => Ok(known.map(|known| CompactionId::new(known.result))),
        }
    }

    /// A compaction as it is, or as it ends.
    async fn seen_through(&self, key: &SessionKey, id: &CompactionId, wait: bool) -> Result<Compaction, Error> {
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

    /// The compactions of a session, the newest first, those behind `before`.
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

    /// Gives up compactions that nobody goes on with.
    pub async fn tend_compactions(&self) -> Result<(), Error> {
        for key in self.store.abandoned_compactions(ROUND).await? {
            self.store.expire_compaction(&key, &codec::event::encode_compaction_lost()).await?;
            self.wake(super::wakeups::Wakeup::News(key));
        }
        Ok(())
    }
}

/// What a compaction would do.
fn forecast(survey: &Survey, order: &Order, plan: &Plan) -> Compaction {
    let expected = if plan.strategy.summarises() {
        order.policy.summary_max_tokens.saturating_add(estimate::MESSAGE_OVERHEAD)
    } else {
        0
    };
    let carried = survey.messages.iter().filter(|message| plan.carries && message.is_summary).map(prune::size);
    let after = survey.left(order, plan, expected.saturating_add(carried.sum()));
    let read = plan.gone(&survey.messages).map(|message| i64::from(prune::size(message))).sum();
    let input = if plan.strategy.summarises() { read } else { 0 };
    let (referenced_tools, unreferenced_tools) = plan.tools(&survey.messages);
    Compaction {
        id: None,
        state: CompactionState::Planned,
        trigger: order.trigger,
        strategy: plan.strategy,
        range: Some((plan.from, plan.to)),
        messages_compacted: plan.stands_for,
        messages_before: number(survey.messages.len()),
        messages_after: number(
            survey.messages.len() - plan.hidden.len() + usize::from(plan.strategy.summarises() || plan.carries),
        ),
        tokens_before: survey.size.clone(),
        tokens_after: Some(after),
        limit: order.target.unwrap_or_else(|| survey.budget.room()),
        was_pruned: order.was_pruned,
        summary: None,
        usage: UsageTotals { calls: i64::from(input > 0), input, ..UsageTotals::default() },
        predecessor: survey.standing.as_ref().map(|standing| standing.id.clone()),
        referenced_tools,
        unreferenced_tools,
        failure: None,
        created_at: None,
        ended_at: None,
        reverted_at: None,
    }
}

/// A plan with what is to stand there: words, and who wrote them.
fn drafted(survey: &Survey, order: &Order, begun: &Compaction, plan: Plan, written: Option<(String, String)>) -> Draft {
    let id = begun.id.clone();
    let named = id.as_ref().zip(written);
    let summary = named.map(|(id, (text, model))| Summary { text, message: derive::summary(id), model });
    let message = summary.as_ref().map(summary_message);
    let after = survey.left(order, &plan, message.as_ref().map_or(0, message_tokens));
    let compaction = Compaction {
        id,
        state: begun.state,
        tokens_after: Some(after),
        messages_after: number(survey.messages.len() - plan.hidden.len() + usize::from(summary.is_some())),
        summary,
        created_at: begun.created_at,
        ..forecast(survey, order, &plan)
    };
    let shift = shift(&survey.messages, &plan, message.as_ref());
    Draft { compaction, shift, summary: message, plan }
}

/// The message that stands for what was compacted.
fn summary_message(summary: &Summary) -> NewMessage {
    let part = Part::text(words::message(&summary.text));
    let mut size = estimate::part(&part, Role::User);
    size.category = Category::Summary;
    NewMessage {
        id: summary.message.clone(),
        role: Role::User,
        parts: vec![StoredPart { part, size, estimator: estimate::ESTIMATOR.to_owned(), pruned: None }],
        overhead: estimate::MESSAGE_OVERHEAD,
        pinned: false,
        metadata: std::collections::BTreeMap::new(),
        response: None,
        queued: Vec::new(),
    }
}

/// What the counters change by.
fn shift(messages: &[Message], plan: &Plan, summary: Option<&NewMessage>) -> Shift {
    let mut shift = Shift::default();
    for message in plan.hidden.iter().map(|at| &messages[*at]) {
        shift.messages(-1, -i64::from(message.overhead));
        for part in &message.parts {
            shift.count(counter(part.size.category), -1, -i64::from(part.size.tokens));
            if let Some(pruned) = &part.pruned {
                let saved = i64::from(pruned.original_tokens) - i64::from(part.size.tokens);
                shift.count(Counter::Pruned, -1, -saved);
            }
        }
    }
    if let Some(summary) = summary {
        shift.messages(1, i64::from(summary.overhead));
        for part in &summary.parts {
            shift.count(Counter::Summary, 1, i64::from(part.size.tokens));
        }
    }
    shift
}

fn counter(category: Category) -> Counter {
    match category {
        Category::User => Counter::User,
        Category::Assistant => Counter::Assistant,
        Category::Reasoning => Counter::Reasoning,
        Category::ToolCalls => Counter::ToolCalls,
        Category::ToolResults => Counter::ToolResults,
        Category::Media => Counter::Media,
        Category::Summary => Counter::Summary,
        Category::Pinned => Counter::Pinned,
    }
}

/// The calls for a compaction as they are told.
fn accounted(cost: &Cost, summary: Option<&NewMessage>) -> Payload {
    let usage = cost.usage;
    let tokens = |sum: i64| u32::try_from(sum.max(0)).unwrap_or(u32::MAX);
    Payload::UsageRecorded {
        purpose: UsagePurpose::Compaction,
        model: cost.model.clone(),
        usage: Some(crate::model::Usage {
            input: tokens(usage.input),
            output: tokens(usage.output),
            reasoning: tokens(usage.reasoning),
            cache_read: tokens(usage.cache_read),
            cache_write: tokens(usage.cache_write),
            provider_json: String::new(),
        }),
        estimate: None,
        message: summary.map(|message| MessageId::clone(&message.id)),
    }
}

/// The compaction in force, as the next one has to know it.
fn standing_of(compaction: Compaction) -> Option<Standing> {
    let Compaction { id, range, messages_compacted, summary, .. } = compaction;
    let (from, to) = range?;
    Some(Standing { id: id?, from, to, messages: messages_compacted, summary: summary.map(|summary| summary.text) })
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

fn kept_changing() -> Error {
    Error::Store(store::Error::Conflict("the context kept changing".to_owned()))
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
