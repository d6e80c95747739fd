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
            window::budget,
        },
        run::state::{Flow, PromptFit, Run, StepContext},
    },
};

impl Run<'_> {
    /// Compacts the context, if it has to be before the call.
    pub(super) async fn make_room(&mut self, step: &StepContext<'_>, messages: &[Message]) -> Result<PromptFit, Error> {
        let forced = self.reductions.forced.take();
        let due = || self.due(step).map(|trigger| (trigger, None));
        match forced.map(|(why, target)| (why, Some(target))).or_else(due) {
            Some((trigger, target)) if target.is_some() || self.may_compact(step, trigger).await? => {
                if self.compact(step, messages, trigger, target).await? {
                    return Ok(PromptFit::Changed);
                }
            }
            Some(_) => {}
            None => self.compact_in_background(step, messages).await?,
        }
        Ok(self.too_large(step).await?.map_or(PromptFit::Fits, PromptFit::TooLarge))
    }

    /// Most tokens of a response before the window is too full. Returns `None` if that is not
    /// checked.
    pub(super) fn room_for_answer(step: &StepContext<'_>) -> Option<u32> {
        let policy = &step.policy.context;
        let budget = budget(policy, step.model).ok()?;
        let most = guard_stream_limit(&policy.compaction, budget, step.model.provider.is_local())?;
        Some(most.saturating_sub(step.size.count.tokens))
    }

    /// Handles a response that fills the window: voids it, compacts the context and repeats the
    /// step. After `guard_max_restarts` of these, the turn ends.
    pub(super) async fn restart(&mut self, step: &StepContext<'_>, message: &MessageId) -> Result<Flow, Error> {
        let (last_step, before) = self.reductions.restarts;
        let restarts = if last_step == step.at.step { before + 1 } else { 1 };
        let words = format!("the response filled the context window of {}", step.model.reference);
        let mut rows = Self::no_rows(step);
        let cost = self.unreported_call(step, &mut rows, None).await;
        if restarts > step.policy.context.compaction.guard_max_restarts {
            let failure = Failure::local(FailureReason::ContextOverflow, words, false);
            let ending = self.overflow(step, failure).await?;
            return self.stop(step, rows, cost, ending, None).await;
        }
        self.reductions.restarts = (step.at.step, restarts);
        self.reductions.forced = Some((Trigger::Threshold, step.size.count.tokens / 2));
        tracing::warn!(
            session.id = %self.key.session, turn.id = %self.turn, step = step.at.step, restarts,
            "a response filled the context window; reducing the context"
        );
        let failure = Failure::local(FailureReason::ContextOverflow, words, true);
        let retried = (failure, Duration::ZERO, Some(message.clone()));
        self.begin_attempt(step, rows, &cost, retried).await
    }

    /// Whether to compact. A prompt that does not fit must be compacted. After a compaction without
    /// gain, the threshold is ignored until the context changes.
    async fn may_compact(&self, step: &StepContext<'_>, trigger: Trigger) -> Result<bool, Error> {
        match trigger {
            Trigger::Overflow | Trigger::Manual | Trigger::ProviderOverflow => Ok(true),
            Trigger::Threshold => {
                let last = self.engine.prompts.compaction_blocker(self.key, step.owned.context_version).await?;
                Ok(last != Some(CompactionBlocker::NoGain))
            }
        }
    }

    /// Why the context has to be compacted before the next call. Returns `None` if it need not be.
    pub(super) fn due(&self, step: &StepContext<'_>) -> Option<Trigger> {
        let policy = &step.policy.context;
        // With an unknown window and a policy that assumes none, the provider reports an overflow.
        let budget = budget(policy, step.model).ok()?;
        let local = step.model.provider.is_local();
        due(&policy.compaction, budget, step.size.at_most(), local).filter(|trigger| match trigger {
            Trigger::Overflow | Trigger::Manual | Trigger::ProviderOverflow => true,
            Trigger::Threshold => {
                !policy.compaction.summarises_in_background() && self.reductions.step != Some(step.at.step)
            }
        })
    }

    /// A compaction of the messages, to this size if there is a target.
    async fn compaction_request(
        &self,
        step: &StepContext<'_>,
        messages: &[Message],
        trigger: Trigger,
        target: Option<u32>,
    ) -> Result<CompactionRequest, Error> {
        let policy = &step.policy.context;
        let in_force = self.engine.prompts.in_force(self.key).await?;
        let context = (messages.to_vec(), step.owned.context_version);
        let budget = budget(policy, step.model)?;
        let input = CompactionInput::new(context, in_force, (step.model, budget), &step.context);
        let was_pruned = self.reductions.pruned == Some(step.at.step);
        Ok(CompactionRequest::of_policy(&policy.compaction, input, trigger, target, was_pruned))
    }

    /// Whether a compaction for this reason can make the context smaller.
    pub(super) async fn can_compact(
        &self,
        step: &StepContext<'_>,
        messages: &[Message],
        (trigger, target): (Trigger, u32),
    ) -> Result<bool, Error> {
        let policy = &step.policy.context;
        if !policy.compaction.enabled || budget(policy, step.model).is_err() {
            return Ok(false);
        }
        Ok(self.compaction_request(step, messages, trigger, Some(target)).await?.plan().is_some())
    }

    /// Compacts. Returns `false` if there is nothing to gain.
    async fn compact(
        &mut self,
        step: &StepContext<'_>,
        messages: &[Message],
        trigger: Trigger,
        target: Option<u32>,
    ) -> Result<bool, Error> {
        let request = self.compaction_request(step, messages, trigger, target).await?;
        let tried = self.engine.sessions.compact_now(self.key, &request, self.stop_waiting_reason(step)).await?;
        self.watch.waited();
        match tried {
            CompactionAttempt::Nothing => Ok(false),
            CompactionAttempt::Changed => Ok(true),
            CompactionAttempt::Ended(made) => {
                self.reductions.step = Some(step.at.step);
                Ok(made.state == CompactionState::Applied || self.must_stop_waiting(step))
            }
        }
    }

    /// Starts a compaction in parallel to the turn, if the policy allows it and one will be needed
    /// soon. It continues after the end of the turn.
    async fn compact_in_background(&mut self, step: &StepContext<'_>, messages: &[Message]) -> Result<(), Error> {
        let policy = &step.policy.context;
        let version = step.owned.context_version;
        let size = step.size.at_most();
        let local = step.model.provider.is_local();
        let ahead = budget(policy, step.model).is_ok_and(|it| is_background_due(&policy.compaction, it, size, local));
        if !ahead || self.engine.prompts.compaction_blocker(self.key, version).await?.is_some() {
            return Ok(());
        }
        let request = self.compaction_request(step, messages, Trigger::Threshold, None).await?;
        self.engine.sessions.compact_in_background(self.key, request, step.limits.turn_timeout).await
    }

    /// Resolves with the reason when the turn must stop waiting.
    async fn stop_waiting_reason(&self, step: &StepContext<'_>) -> &'static str {
        tokio::select! {
            () = self.lease.lost().cancelled() => "the turn has another owner",
            () = self.lease.cancelled().cancelled() => "the turn was cancelled",
            () = self.engine.capacity.aborting.cancelled() => "the server is shutting down",
            () = tokio::time::sleep(step.time_left().saturating_sub(step.read.elapsed())) => "the turn's timeout expired",
        }
    }

    fn must_stop_waiting(&self, step: &StepContext<'_>) -> bool {
        self.lease.lost().is_cancelled()
            || self.lease.cancelled().is_cancelled()
            || self.engine.capacity.aborting.is_cancelled()
            || step.read.elapsed() >= step.time_left()
    }
}
