//! PrepareContext: makes the next prompt fit, for a host that calls the model itself. Each action
//! is its own transaction. The outcome of all of them is remembered with the last one.

use std::{
    ops::ControlFlow::{Break, Continue},
    sync::Arc,
};

use crate::{
    codec,
    context::{budget::Budget, compact::trigger::due, prune::Pruning},
    model::{
        AppliedMessage, CompactionState, PrepareReport, SessionKey, TenantId, TokenCount,
        command::PrepareContext,
        compaction::Trigger,
        config::ContextPolicy,
        ledger::{CategoryTokens, ContextCategory},
    },
    provider::registry::ResolvedModel,
    store,
    turn::{
        Error,
        context::{
            compact::{CompactionAttempt, CompactionRequest},
            session_view::SessionView,
            window::budget,
        },
        engine::{SessionCommands, supervised},
        host::{render::Rendered, take_queue::TakeOutcome},
        optimistic::retry_with,
    },
};

impl SessionCommands {
    /// Prepares the next prompt. A repeated request gets the report of the first one, with the
    /// current prompt.
    pub async fn prepare_context(
        self: &Arc<Self>,
        tenant: TenantId,
        command: PrepareContext,
    ) -> Result<(Rendered, PrepareReport), Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let key = SessionKey::new(tenant, command.session.clone());
            let media = sessions.prompts.max_media_bytes(&key, command.format).await?;
            let memory = sessions.prompts.reserve_session_memory(&key, media).await?;
            let first = Preparation { sessions: &sessions, key: &key, command: &command, applied: None, report: None };
            let (rendered, report) = retry_with(first, |mut preparation| async move {
                let tried = Box::pin(preparation.attempt()).await?;
                Ok(tried.map_or(Continue(preparation), Break))
            })
            .await?;
            Ok((Rendered { memory: Some(memory), ..rendered }, report))
        })
        .await
    }
}

/// A preparation, and the actions that it has completed so far.
struct Preparation<'a> {
    sessions: &'a SessionCommands,
    key: &'a SessionKey,
    command: &'a PrepareContext,
    /// The messages taken from the queue. `None` means the queue was not taken yet.
    applied: Option<Vec<AppliedMessage>>,
    /// The prune and the compaction.
    report: Option<PrepareReport>,
}

/// The session as read, and what its next prompt has to fit.
struct NextPrompt {
    view: SessionView,
    model: ResolvedModel,
    policy: ContextPolicy,
    budget: Budget,
}

impl Preparation<'_> {
    /// One attempt. Returns `None` if an action was completed, or the context changed between the
    /// read and the write. In both cases the context has to be read again.
    async fn attempt(&mut self) -> Result<Option<(Rendered, PrepareReport)>, Error> {
        let prompts = &self.sessions.prompts;
        let view = prompts.session_view(self.key).await?;
        let done = prompts.stored_result(self.key, &self.command.idempotency).await?;
        let done = done.map(|stored| report_of(&stored)).transpose()?;
        if let Some(turn) = &view.session.current_turn {
            return Err(Error::TurnInProgress { turn: turn.clone(), last: view.session.last_seq });
        }
        let model = view.model(self.command.model.as_deref());
        let model = prompts.model_to_call(model, &view.session.config).await?;
        if self.command.applies_queued && done.is_none() && self.applied.is_none() {
            self.applied = match self.sessions.take_queued_messages(self.key, &view, &model).await? {
                TakeOutcome::Nothing => Some(Vec::new()),
                TakeOutcome::Taken(applied) => {
                    self.applied = Some(applied);
                    return Ok(None);
                }
                TakeOutcome::Moved => return Ok(None),
            }
        }
        // Check first: if the prompt cannot be built, nothing more is done for it.
        prompts.prompt(&view, &model)?;
        let next = self.next_prompt(view, model)?;
        let NextPrompt { view, model, policy, budget } = &next;
        if let Some(report) = done {
            return self.fitting(&next).await.map(|shown| Some((shown, report)));
        }
        let size = view.size(model).size();
        let due = |at_most| due(&policy.compaction, *budget, at_most, model.provider.is_local());
        if let Some((pruning, report)) = view.due(policy, model, *budget) {
            if self.report.is_none() && due(report.pruned.at_most()).is_none() {
                let applied = self.applied.clone().unwrap_or_default();
                return self.prune_only(&next, &pruning, PrepareReport { applied, ..report }).await;
            }
            self.prune_first(view, &pruning, report).await?;
            return Ok(None);
        }
        // A successful compaction is followed by another one only if the prompt still exceeds the
        // window.
        let exceeds = !budget.assumed && size.count.tokens > budget.window;
        let was_compacted = self.report_so_far(&size.count).compaction.is_some();
        if let Some(trigger) = due(size.at_most()).filter(|_| !was_compacted || exceeds)
            && self.compact(&next, trigger).await?
        {
            return Ok(None);
        }
        let shown = self.fitting(&next).await?;
        let report = PrepareReport { compacted: size.count.clone(), ..self.report_so_far(&size.count).clone() };
        let known = self.remember(&report).await?;
        Ok(Some((shown, known.unwrap_or(report))))
    }

    fn next_prompt(&self, view: SessionView, model: ResolvedModel) -> Result<NextPrompt, Error> {
        let policy = self.sessions.prompts.policy(&view.session.config)?.context;
        let budget = budget(&policy, &model)?;
        Ok(NextPrompt { view, model, policy, budget })
    }

    /// The report so far, or a new one for a prompt of this size.
    fn report_so_far(&mut self, size: &TokenCount) -> &mut PrepareReport {
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

    /// Prunes, and remembers the outcome in the same transaction. A request without a key is
    /// answered immediately. Another one reads the context again, as a repetition would.
    async fn prune_only(
        &self,
        next: &NextPrompt,
        pruning: &Pruning,
        report: PrepareReport,
    ) -> Result<Option<(Rendered, PrepareReport)>, Error> {
        let Some(planned) = report.prune.clone() else {
            return Ok(None);
        };
        let led = codec::receipt::write_prepare_report(&report);
        let (version, idempotency) = (next.view.session.context_version, &self.command.idempotency);
        let cleared = self.sessions.clear(self.key, pruning, planned, version, Some((idempotency, &led))).await?;
        let (Some(cleared), None) = (cleared, &idempotency.request) else {
            return Ok(None);
        };
        let report = PrepareReport { prune: Some(cleared), ..report };
        let prompts = &self.sessions.prompts;
        let view = prompts.session_view(self.key).await?;
        let model = prompts.model(view.model(self.command.model.as_deref()))?;
        self.fitting(&self.next_prompt(view, model)?).await.map(|shown| Some((shown, report)))
    }

    /// Prunes before other actions. The outcome of all actions is remembered at the end.
    async fn prune_first(&mut self, view: &SessionView, pruning: &Pruning, report: PrepareReport) -> Result<(), Error> {
        let planned = report.prune.clone().unwrap_or_default();
        let version = view.session.context_version;
        let cleared = self.sessions.clear(self.key, pruning, planned, version, None).await?;
        let Some(cleared) = cleared else {
            return Ok(());
        };
        // Actions before a concurrent append are still reported.
        let (before, compaction) = match self.report.take() {
            Some(first) => (first.before, first.compaction),
            None => (report.before, None),
        };
        let applied = self.applied.clone().unwrap_or_default();
        self.report = Some(PrepareReport { before, prune: Some(cleared), compaction, applied, ..report });
        Ok(())
    }

    /// Compacts. Returns `false` if that gains nothing, or the compaction was given up.
    async fn compact(&mut self, next: &NextPrompt, trigger: Trigger) -> Result<bool, Error> {
        let NextPrompt { view, model, policy, budget } = next;
        let (sessions, prompts) = (self.sessions, &self.sessions.prompts);
        let input = prompts.compaction_input(self.key, view, model, *budget).await?;
        let was_pruned = self.report_so_far(&input.size).prune.is_some();
        let request = CompactionRequest::of_policy(&policy.compaction, input, trigger, None, was_pruned);
        let timeout = prompts.limits(&view.session.config, &view.request).turn_timeout;
        let stop = sessions.capacity.compaction_stop_reason(timeout);
        match sessions.compact_now(self.key, &request, stop).await? {
            CompactionAttempt::Nothing => Ok(false),
            CompactionAttempt::Changed => Ok(true),
            CompactionAttempt::Ended(made) => {
                let applied = made.state == CompactionState::Applied;
                self.report_so_far(&request.input.size).compaction = Some(made);
                Ok(applied)
            }
        }
    }

    /// Remembers the outcome. Returns the outcome that a concurrent repetition of the request has
    /// stored, if any.
    async fn remember(&self, report: &PrepareReport) -> Result<Option<PrepareReport>, Error> {
        let pruned_at = report.prune.as_ref().and_then(|prune| prune.at).map_or(0, |seq| seq.0);
        let led = format!("{pruned_at}{}", codec::receipt::write_prepare_report(report));
        let first = self.sessions.prompts.store_result(self.key, &self.command.idempotency, &led).await?;
        first.map(|first| report_of(&first)).transpose()
    }

    /// The prompt.
    ///
    /// # Errors
    ///
    /// [`Error::ContextOverflow`] if it exceeds a known window.
    async fn fitting(&self, next: &NextPrompt) -> Result<Rendered, Error> {
        let NextPrompt { view, model, policy: _, budget } = next;
        let prompts = &self.sessions.prompts;
        let used = view.size(model).size().count.tokens;
        if budget.assumed || used <= budget.window {
            return prompts.shown(self.key, view, model, self.command.format).await;
        }
        let shares = prompts.context_stats(self.key, Some(&model.reference)).await?.breakdown.shares;
        let largest = shares.iter().filter(|share| share.in_total()).max_by_key(|share| share.tokens);
        let largest = largest.map_or(ContextCategory::User, |CategoryTokens { occupant, .. }| *occupant);
        Err(Error::ContextOverflow { used, window: budget.window, largest })
    }
}

fn report_of(stored: &str) -> Result<PrepareReport, Error> {
    Ok(codec::receipt::read_prepare_report(stored).map_err(store::Error::from)?)
}
