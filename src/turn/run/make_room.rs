//! Room in the window before a call: a context that is too large is compacted, and the turn reads
//! its state again. That read also finds messages that were queued during the compaction.

use std::time::Duration;

use crate::{
    context::compact::trigger::{due, guard_stream_limit, is_background_due},
    model::{CompactionState, Failure, FailureReason, Message, MessageId, compaction::Trigger},
    turn::{
        Error,
        context::{
            compact::{CompactionAttempt, CompactionBlocker, CompactionInput, CompactionRequest},
            stats::budget,
        },
        run::state::{Flow, PromptFit, Run, StepContext},
    },
};

impl Run<'_> {
    /// Compacts the context, if it has to be before the call.
    pub(super) async fn make_room(
        &mut self,
        scene: &StepContext<'_>,
        messages: &[Message],
    ) -> Result<PromptFit, Error> {
        let forced = self.reductions.forced.take();
        let due = || self.due(scene).map(|trigger| (trigger, None));
        match forced.map(|(why, target)| (why, Some(target))).or_else(due) {
            Some((trigger, target))
                if target.is_some() || self.may_compact(scene, trigger).await? =>
            {
                if self.compact(scene, messages, trigger, target).await? {
                    return Ok(PromptFit::Changed);
                }
            }
            Some(_) => {}
            None => self.compact_in_background(scene, messages).await?,
        }
        Ok(self
            .too_large(scene)
            .await?
            .map_or(PromptFit::Fits, PromptFit::TooLarge))
    }

    /// Most tokens of a response before the window is too full. Returns `None` if that is not
    /// checked.
    pub(super) fn room_for_answer(scene: &StepContext<'_>) -> Option<u32> {
        let policy = &scene.policy.context;
        let budget = budget(policy, scene.model).ok()?;
        let most = guard_stream_limit(&policy.compaction, budget, scene.model.provider.is_local())?;
        Some(most.saturating_sub(scene.size.count.tokens))
    }

    /// Handles a response that fills the window: voids it, compacts the context and repeats the
    /// step. After `guard_max_restarts` of these, the turn ends.
    pub(super) async fn restart(
        &mut self,
        scene: &StepContext<'_>,
        message: &MessageId,
    ) -> Result<Flow, Error> {
        let (step, before) = self.reductions.restarts;
        let restarts = if step == scene.at.step { before + 1 } else { 1 };
        let words = format!(
            "the response filled the context window of {}",
            scene.model.reference
        );
        let mut rows = Self::no_rows(scene);
        let cost = self.unreported_call(scene, &mut rows, None).await;
        if restarts > scene.policy.context.compaction.guard_max_restarts {
            let failure = Failure::local(FailureReason::ContextOverflow, words, false);
            let ending = self.overflow(scene, failure).await?;
            return self.stop(scene, rows, Some(cost), ending, None).await;
        }
        self.reductions.restarts = (scene.at.step, restarts);
        self.reductions.forced = Some((Trigger::Threshold, scene.size.count.tokens / 2));
        tracing::warn!(
            session.id = %self.key.session, turn.id = %self.turn, step = scene.at.step, restarts,
            "a response filled the context window; reducing the context"
        );
        let failure = Failure::local(FailureReason::ContextOverflow, words, true);
        let retried = (failure, Duration::ZERO, Some(message.clone()));
        self.begin_attempt(scene, rows, &cost, retried).await
    }

    /// Whether to compact. A prompt that does not fit must be compacted. After a compaction without
    /// gain, the threshold is ignored until the context changes.
    async fn may_compact(&self, scene: &StepContext<'_>, trigger: Trigger) -> Result<bool, Error> {
        match trigger {
            Trigger::Overflow | Trigger::Manual | Trigger::ProviderOverflow => Ok(true),
            Trigger::Threshold => {
                let last = self
                    .engine
                    .compaction_blocker(self.key, scene.owned.context_version)
                    .await?;
                Ok(last != Some(CompactionBlocker::NoGain))
            }
        }
    }

    /// Why the context has to be compacted before the next call. Returns `None` if it need not be.
    pub(super) fn due(&self, scene: &StepContext<'_>) -> Option<Trigger> {
        let policy = &scene.policy.context;
        // With an unknown window and a policy that assumes none, the provider reports an overflow.
        let budget = budget(policy, scene.model).ok()?;
        let local = scene.model.provider.is_local();
        due(&policy.compaction, budget, scene.size.at_most(), local).filter(|trigger| match trigger
        {
            Trigger::Overflow | Trigger::Manual | Trigger::ProviderOverflow => true,
            Trigger::Threshold => {
                !policy.compaction.summarises_in_background()
                    && self.reductions.step != Some(scene.at.step)
            }
        })
    }

    /// What a compaction would be planned from.
    async fn compaction_input(
        &self,
        scene: &StepContext<'_>,
        messages: &[Message],
    ) -> Result<CompactionInput, Error> {
        Ok(CompactionInput {
            tenant: self.key.tenant.clone(),
            messages: messages.to_vec(),
            version: scene.owned.context_version,
            in_force: self.engine.in_force(self.key).await?,
            model: scene.model.clone(),
            budget: budget(&scene.policy.context, scene.model)?,
            non_transcript_tokens: scene.context.non_transcript_tokens(),
            size: scene.size.count.clone(),
            lesson: scene.context.correction(),
        })
    }

    fn compaction_request(
        &self,
        scene: &StepContext<'_>,
        survey: &CompactionInput,
        trigger: Trigger,
        target: Option<u32>,
    ) -> CompactionRequest {
        let was_pruned = self.reductions.pruned == Some(scene.at.step);
        CompactionRequest::of_policy(
            &scene.policy.context.compaction,
            survey,
            trigger,
            target,
            was_pruned,
        )
    }

    /// Whether a compaction for this reason can make the context smaller.
    pub(super) async fn can_compact(
        &self,
        scene: &StepContext<'_>,
        messages: &[Message],
        (trigger, target): (Trigger, u32),
    ) -> Result<bool, Error> {
        let policy = &scene.policy.context;
        if !policy.compaction.enabled || budget(policy, scene.model).is_err() {
            return Ok(false);
        }
        let survey = self.compaction_input(scene, messages).await?;
        Ok(survey
            .plan(&self.compaction_request(scene, &survey, trigger, Some(target)))
            .is_some())
    }

    /// Compacts. Returns `false` if there is nothing to gain.
    async fn compact(
        &mut self,
        scene: &StepContext<'_>,
        messages: &[Message],
        trigger: Trigger,
        target: Option<u32>,
    ) -> Result<bool, Error> {
        let survey = self.compaction_input(scene, messages).await?;
        let order = self.compaction_request(scene, &survey, trigger, target);
        let tried = self
            .engine
            .compact_now(self.key, &survey, &order, self.stop_waiting_reason(scene))
            .await?;
        self.watch.waited();
        match tried {
            CompactionAttempt::Nothing => Ok(false),
            CompactionAttempt::Changed => Ok(true),
            CompactionAttempt::Ended(made) => {
                self.reductions.step = Some(scene.at.step);
                Ok(made.state == CompactionState::Applied || self.must_stop_waiting(scene))
            }
        }
    }

    /// Starts a compaction in parallel to the turn, if the policy allows it and one will be needed
    /// soon. It continues after the end of the turn.
    async fn compact_in_background(
        &mut self,
        scene: &StepContext<'_>,
        messages: &[Message],
    ) -> Result<(), Error> {
        let policy = &scene.policy.context;
        let version = scene.owned.context_version;
        let size = scene.size.at_most();
        let local = scene.model.provider.is_local();
        let ahead = budget(policy, scene.model)
            .is_ok_and(|it| is_background_due(&policy.compaction, it, size, local));
        if !ahead
            || self
                .engine
                .compaction_blocker(self.key, version)
                .await?
                .is_some()
        {
            return Ok(());
        }
        let survey = self.compaction_input(scene, messages).await?;
        let order = self.compaction_request(scene, &survey, Trigger::Threshold, None);
        self.engine
            .compact_in_background(self.key, survey, order, scene.limits.turn_timeout)
            .await
    }

    /// Resolves with the reason when the turn must stop waiting.
    async fn stop_waiting_reason(&self, scene: &StepContext<'_>) -> &'static str {
        tokio::select! {
            () = self.lease.lost().cancelled() => "the turn has another owner",
            () = self.lease.cancelled().cancelled() => "the turn was cancelled",
            () = self.engine.aborting.cancelled() => "the server is shutting down",
            () = tokio::time::sleep(scene.time_left().saturating_sub(scene.read.elapsed())) => "the turn's timeout expired",
        }
    }

    fn must_stop_waiting(&self, scene: &StepContext<'_>) -> bool {
        self.lease.lost().is_cancelled()
            || self.lease.cancelled().is_cancelled()
            || self.engine.aborting.is_cancelled()
            || scene.read.elapsed() >= scene.time_left()
    }
}
