//! PrepareContext: makes the next prompt fit, for a host that calls the model itself. Each action
//! is its own transaction. The outcome of all of them is remembered with the last one.

use std::{
    ops::ControlFlow::{Break, Continue},
    sync::Arc,
};

use crate::{
    codec,
    context::{
        budget::Budget,
        compact,
        prune::{Pruning, choose, is_due},
    },
    model::{
        AppliedMessage, Category, CompactionState, PrepareReport, PromptFormat, PruneReport, SessionKey, TenantId,
        TokenCount,
        command::PrepareContext,
        compaction::{CompactionPolicy, Trigger},
        config::PrunePolicy,
        ledger::{CategoryTokens, ContextCategory},
    },
    provider::registry::ResolvedModel,
    store::{self, idempotency::StoredRequest},
    turn::{
        Error,
        context::{
            compact::{CompactionAttempt, CompactionRequest},
            prune::{report, unkeyed},
            session_view::SessionView,
            size::{Excerpt, unsupported},
            window::budget,
        },
        engine::Engine,
        host::{render::Rendered, take_queue::TakeOutcome},
        optimistic::retry_with,
    },
};

/// The actions that a preparation has completed so far.
#[derive(Debug, Default)]
struct Progress {
    /// The messages taken from the queue. `None` means the queue was not taken yet.
    applied: Option<Vec<AppliedMessage>>,
    /// The prune and the compaction.
    report: Option<PrepareReport>,
}

impl Progress {
    /// The report so far, or a new one for a prompt of this size.
    fn report(&mut self, size: &TokenCount) -> &mut PrepareReport {
        let applied = || self.applied.clone().unwrap_or_default();
        self.report.get_or_insert_with(|| PrepareReport {
            before: size.clone(),
            pruned: size.clone(),
            compacted: size.clone(),
            prune: None,
            compaction: None,
            applied: applied(),
        })
    }
}

impl Engine {
    /// Prepares the next prompt. A repeated request gets the report of the first one, with the
    /// current prompt.
    pub async fn prepare_context(
        self: &Arc<Self>,
        tenant: TenantId,
        command: PrepareContext,
    ) -> Result<(Rendered, PrepareReport), Error> {
        self.supervised(async move |engine| {
            let key = SessionKey::new(tenant, command.session.clone());
            let media = engine.max_media_bytes(&key, command.format).await?;
            let memory = engine.reserve_session_memory(&key, media).await?;
            let (engine, key, command) = (&engine, &key, &command);
            let (rendered, report) = retry_with(Progress::default(), |mut so_far| async move {
                let tried = Box::pin(engine.try_prepare(key, command, &mut so_far)).await?;
                Ok(tried.map_or(Continue(so_far), Break))
            })
            .await?;
            let memory = Some(memory);
            Ok((Rendered { memory, ..rendered }, report))
        })
        .await
    }

    /// One attempt. Returns `None` if an action was completed, or the context changed between the
    /// read and the write. In both cases the context has to be read again.
    async fn try_prepare(
        &self,
        key: &SessionKey,
        command: &PrepareContext,
        so_far: &mut Progress,
    ) -> Result<Option<(Rendered, PrepareReport)>, Error> {
        let view = self.session_view(key).await?;
        let done = self.prepared(key, command).await?;
        if let Some(turn) = &view.session.current_turn {
            return Err(Error::TurnInProgress { turn: turn.clone(), last: view.session.last_seq });
        }
        let model = view.model(command.model.as_deref());
        let model = self.model_to_call(model, &view.session.config).await?;
        if command.applies_queued && done.is_none() && so_far.applied.is_none() {
            so_far.applied = match self.take_queued_messages(key, &view, &model).await? {
                TakeOutcome::Nothing => Some(Vec::new()),
                TakeOutcome::Taken(applied) => {
                    so_far.applied = Some(applied);
                    return Ok(None);
                }
                TakeOutcome::Moved => return Ok(None),
            }
        }
        // Check first: if the prompt cannot be built, nothing more is done for it.
        self.prompt(&view, &model)?;
        let size = view.size(&model).size();
        let policy = self.policy(&view.session.config)?.context;
        let budget = budget(&policy, &model)?;
        if let Some(report) = done {
            return self.fitting(key, &view, &model, command.format, budget).await.map(|shown| Some((shown, report)));
        }
        let due = |at_most| compact::trigger::due(&policy.compaction, budget, at_most, model.provider.is_local());
        let now = due(size.at_most());
        if let Some((pruning, report)) = view.due(&policy.prune, &model, budget, now.is_some()) {
            if so_far.report.is_none() && due(report.pruned.at_most()).is_none() {
                let applied = so_far.applied.clone().unwrap_or_default();
                let report = PrepareReport { applied, ..report };
                return self.prune_for(key, command, &view, &pruning, report).await;
            }
            self.prune_first(key, &view, &pruning, report, so_far).await?;
            return Ok(None);
        }
        let report = so_far.report(&size.count);
        // A successful compaction is followed by another one only if the prompt still exceeds the
        // window.
        let exceeds = !budget.assumed && size.count.tokens > budget.window;
        if let Some(trigger) = now.filter(|_| report.compaction.is_none() || exceeds)
            && self.compact_for(key, &view, &policy.compaction, (&model, budget), trigger, report).await?
        {
            return Ok(None);
        }
        let shown = self.fitting(key, &view, &model, command.format, budget).await?;
        let report = PrepareReport { compacted: size.count, ..report.clone() };
        let known = self.remember_prepared(key, command, &report).await?;
        Ok(Some((shown, known.unwrap_or(report))))
    }

    /// What the same request did before.
    async fn prepared(&self, key: &SessionKey, command: &PrepareContext) -> Result<Option<PrepareReport>, Error> {
        let Some(request) = &command.idempotency.request else {
            return Ok(None);
        };
        let remembered = self.store.stored_request(key, request).await?;
        remembered.map(|remembered| same(&remembered, command)).transpose()
    }

    /// Prunes, and remembers the outcome in the same transaction. A request without a key is
    /// answered immediately. Another one reads the context again, as a repetition would.
    async fn prune_for(
        &self,
        key: &SessionKey,
        command: &PrepareContext,
        view: &SessionView,
        pruning: &Pruning,
        report: PrepareReport,
    ) -> Result<Option<(Rendered, PrepareReport)>, Error> {
        let Some(planned) = report.prune.clone() else {
            return Ok(None);
        };
        let led = codec::receipt::write_prepare_report(&report);
        let version = view.session.context_version;
        let cleared = self.clear(key, pruning, planned, version, (&command.idempotency, &led)).await?;
        let (Some(cleared), None) = (cleared, &command.idempotency.request) else {
            return Ok(None);
        };
        let report = PrepareReport { prune: Some(cleared), ..report };
        let view = self.session_view(key).await?;
        let model = self.model(view.model(command.model.as_deref()))?;
        let budget = budget(&self.policy(&view.session.config)?.context, &model)?;
        self.fitting(key, &view, &model, command.format, budget).await.map(|shown| Some((shown, report)))
    }

    /// Prunes before other actions. The outcome of all actions is remembered at the end.
    async fn prune_first(
        &self,
        key: &SessionKey,
        view: &SessionView,
        pruning: &Pruning,
        report: PrepareReport,
        so_far: &mut Progress,
    ) -> Result<(), Error> {
        let planned = report.prune.clone().unwrap_or_default();
        let version = view.session.context_version;
        let cleared = self.clear(key, pruning, planned, version, (&unkeyed(), "")).await?;
        let Some(cleared) = cleared else {
            return Ok(());
        };
        // Actions before a concurrent append are still reported.
        let (before, compaction) = match so_far.report.take() {
            Some(first) => (first.before, first.compaction),
            None => (report.before, None),
        };
        so_far.report = Some(PrepareReport {
            before,
            prune: Some(cleared),
            compaction,
            applied: so_far.applied.clone().unwrap_or_default(),
            ..report
        });
        Ok(())
    }

    /// Compacts. Returns `false` if that gains nothing, or the compaction was given up.
    async fn compact_for(
        &self,
        key: &SessionKey,
        view: &SessionView,
        policy: &CompactionPolicy,
        (model, budget): (&ResolvedModel, Budget),
        trigger: Trigger,
        report: &mut PrepareReport,
    ) -> Result<bool, Error> {
        let survey = self.compaction_input(key, view, model, budget).await?;
        let order = CompactionRequest::of_policy(policy, &survey, trigger, None, report.prune.is_some());
        let timeout = self.limits(&view.session.config, &view.request).turn_timeout;
        match self.compact_now(key, &survey, &order, self.compaction_stop_reason(timeout)).await? {
            CompactionAttempt::Nothing => Ok(false),
            CompactionAttempt::Changed => Ok(true),
            CompactionAttempt::Ended(made) => {
                let applied = made.state == CompactionState::Applied;
                report.compaction = Some(made);
                Ok(applied)
            }
        }
    }

    /// Remembers the outcome. Returns the outcome that a concurrent repetition of the request has
    /// stored, if any.
    async fn remember_prepared(
        &self,
        key: &SessionKey,
        command: &PrepareContext,
        report: &PrepareReport,
    ) -> Result<Option<PrepareReport>, Error> {
        if command.idempotency.request.is_none() {
            return Ok(None);
        }
        let pruned_at = report.prune.as_ref().and_then(|prune| prune.at).map_or(0, |seq| seq.0);
        let led = format!("{pruned_at}{}", codec::receipt::write_prepare_report(report));
        let first = self.store.store_request_result(key, &command.idempotency, &led).await?;
        first.map(|first| same(&first, command)).transpose()
    }

    /// The prompt.
    ///
    /// # Errors
    ///
    /// [`Error::ContextOverflow`] if it exceeds a known window.
    async fn fitting(
        &self,
        key: &SessionKey,
        view: &SessionView,
        model: &ResolvedModel,
        shape: PromptFormat,
        budget: Budget,
    ) -> Result<Rendered, Error> {
        let used = view.size(model).size().count.tokens;
        if budget.assumed || used <= budget.window {
            return self.shown(key, view, model, shape).await;
        }
        let shares = self.context_stats(key, Some(&model.reference)).await?.breakdown.shares;
        let largest = shares.iter().filter(|share| share.in_total()).max_by_key(|share| share.tokens);
        let largest = largest.map_or(ContextCategory::User, |CategoryTokens { occupant, .. }| *occupant);
        Err(Error::ContextOverflow { used, window: budget.window, largest })
    }
}

impl SessionView {
    /// The prune that the policy requires, and the report of a preparation that does only that.
    /// Returns `None` if nothing is to be pruned, or the prune does not pay off. `compacts`: the
    /// context would otherwise be compacted.
    pub(in crate::turn) fn due(
        &self,
        policy: &PrunePolicy,
        model: &ResolvedModel,
        budget: Budget,
        compacts: bool,
    ) -> Option<(Pruning, PrepareReport)> {
        let pruning = choose(&self.messages, policy)?;
        let size = self.size(model);
        let before = size.size();
        let rebilled = pruning.rebilled(size.cached_tokens(), size.non_transcript_tokens());
        if !is_due(
            policy.mode,
            &pruning,
            rebilled,
            model.info.cache_prices,
            compacts || budget.overflows(before.at_most()),
        ) {
            return None;
        }
        // The measured size does not apply to a pruned prompt.
        let left = size.with_rewritten_transcript(self.session.context_tokens - i64::from(pruning.saved));
        let left = left.without_unsupported(self.unsupported_without_results(model)).size().count;
        let prune: PruneReport = report(&pruning, rebilled);
        let report = PrepareReport {
            before: before.count,
            pruned: left.clone(),
            compacted: left,
            prune: Some(prune),
            compaction: None,
            applied: Vec::new(),
        };
        Some((pruning, report))
    }

    /// Tokens of the transcript that are not sent to the model, without tool results: pruned results
    /// lose their media too.
    fn unsupported_without_results(&self, model: &ResolvedModel) -> i64 {
        let unsupported = unsupported(model, &Excerpt::whole(&self.messages)).into_iter();
        unsupported
            .filter(|(category, _)| *category != Category::ToolResults)
            .map(|(_, tokens)| i64::from(tokens))
            .sum()
    }
}

/// The remembered outcome, if it was stored for this request.
fn same(remembered: &StoredRequest, command: &PrepareContext) -> Result<PrepareReport, Error> {
    match &command.idempotency.request {
        Some(request) if remembered.hash != command.idempotency.hash => {
            Err(Error::IdempotencyMismatch(request.clone()))
        }
        Some(_) | None => Ok(codec::receipt::read_prepare_report(&remembered.result).map_err(store::Error::from)?),
    }
}
