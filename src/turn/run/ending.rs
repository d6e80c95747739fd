//! The end of a turn, at the model's choice or forced, and the turn that follows it.

use std::time::Instant;

use crate::{
    context::estimator::Estimator,
    model::{
        CompletionReason, Ending, Failure, FailureReason, FinishReason, MessageId, TurnResult,
        event::{CallCancelReason, StepPosition},
    },
    session::{CancelRequest, SessionState, cost::StepCost, ending::TurnEnd, rows::Rows},
    store::{following::TurnStarters, grant::Grant, written::WriteOutcome},
    telemetry::failure_reason,
    turn::{
        Error,
        context::result_texts::synthetic,
        lease::leases::GrantRequest,
        opening::StartingPoint,
        queue::plan::PlannedTurn,
        run::{
            cause::Cause,
            state::{Flow, NotReleased, Run, StepContext},
        },
    },
};

impl Run<'_> {
    /// Ends the turn at the model's choice, unless there are queued messages for it or a cancel was
    /// requested.
    pub(super) async fn finish(
        &mut self,
        step: &StepContext<'_>,
        rows: Rows,
        cost: StepCost<'_>,
        (reason, finish): (CompletionReason, Option<FinishReason>),
    ) -> Result<Flow, Error> {
        let ending = Ending::Completed(reason);
        let result = self.result(step, &cost, finish);
        let end = TurnEnd {
            ending: &ending,
            result: &result,
            synthetic: synthetic(CallCancelReason::TurnEnded, step.estimator),
        };
        let mut request = self.engine.capacity.leases.request(self.key);
        let store = &self.engine.store;
        let at_once = store.finish_at_once(self.key, self.turn_fence(), &rows, &cost, &end);
        if let Some(written) = at_once.await? {
            return self.ended(step, &ending, (written, None), (false, &request));
        }
        let (is_waiting, planned) = self.read_queue_at_end(step, TurnStarters::AfterCompletion).await?;
        if is_waiting && rows.count() > 0 {
            // The turn continues with the queued messages.
            let written = self.engine.store.append(self.key, self.turn_fence(), &rows, &cost, None).await?;
            return self.apply_written(written);
        }
        let next = planned.as_ref().map(PlannedTurn::next);
        let ended = store.finish(self.key, self.turn_fence(), &rows, &cost, &end, next.as_ref()).await;
        let ended = request.answered(ended)?;
        self.ended(step, &ending, ended, (next.is_some(), &request))
    }

    /// Ends the turn, even if there are queued messages for it.
    pub(super) async fn stop(
        &mut self,
        step: &StepContext<'_>,
        rows: Rows,
        cost: StepCost<'_>,
        ending: Ending,
        finish: Option<FinishReason>,
    ) -> Result<Flow, Error> {
        let result = self.result(step, &cost, finish);
        let reason = match ending {
            Ending::Cancelled { .. } => CallCancelReason::TurnCancelled,
            Ending::Completed(_) | Ending::Failed(_) => CallCancelReason::TurnEnded,
        };
        let end = TurnEnd { ending: &ending, result: &result, synthetic: synthetic(reason, step.estimator) };
        let starters = match ending {
            Ending::Completed(_) => TurnStarters::AfterCompletion,
            Ending::Cancelled { .. } | Ending::Failed(_) => TurnStarters::AfterAnyEnd,
        };
        let (_, planned) = self.read_queue_at_end(step, starters).await?;
        let next = planned.as_ref().map(PlannedTurn::next);
        let mut request = self.engine.capacity.leases.request(self.key);
        let store = &self.engine.store;
        let ended = store.stop(self.key, self.turn_fence(), &rows, &cost, &end, next.as_ref()).await;
        let ended = request.answered(ended)?;
        self.ended(step, &ending, ended, (next.is_some(), &request))
    }

    /// Reads whether queued messages keep the turn from ending, and plans the turn that follows.
    async fn read_queue_at_end(
        &self,
        step: &StepContext<'_>,
        starters: TurnStarters,
    ) -> Result<(bool, Option<PlannedTurn>), Error> {
        let found = self.retry_transient(|| self.engine.store.queue_at_turn_end(self.key, starters)).await?;
        let Some(starter) = found.starter.filter(|_| !self.engine.capacity.draining.is_cancelled()) else {
            return Ok((found.waiting, None));
        };
        let planned = self.engine.sessions.plan_for(self.key, &starter, StartingPoint::after(step.owned)).await;
        let planned = match planned {
            Ok(planned) => planned,
            Err(error @ Error::Store(_)) => return Err(error),
            // The message stays queued until such a model is configured again. This turn ends
            // regardless.
            Err(error) => {
                tracing::warn!(session.id = %self.key.session, %error, "cannot start a turn for a queued message; it stays queued");
                None
            }
        };
        Ok((found.waiting, planned))
    }

    /// Applies the outcome of the turn's end, and starts the turn that follows.
    fn ended(
        &mut self,
        step: &StepContext<'_>,
        ending: &Ending,
        (written, grant): (WriteOutcome, Option<Grant>),
        (planned, request): (bool, &GrantRequest),
    ) -> Result<Flow, Error> {
        let idle = matches!(written, WriteOutcome::Applied(ack) if ack.state == SessionState::Idle);
        let flow = self.apply_written(written)?;
        if idle {
            self.record_end(ending, step.at, None);
        }
        match grant {
            Some(grant) => self.engine.start(self.key.clone(), grant, request.sent(), Cause::Queued),
            // The message or the configuration has changed concurrently.
            None if planned && idle => self.engine.start_waiting_soon(self.key),
            None => {}
        }
        Ok(flow)
    }

    /// Adds the messages to be rolled back to the ending, including the partial response. No other
    /// message is added to a turn that is being cancelled.
    pub(super) async fn with_rollback(
        &self,
        mut ending: Ending,
        request: Option<&CancelRequest>,
        partial: Option<&MessageId>,
    ) -> Result<Ending, Error> {
        if let Ending::Cancelled { undone, .. } = &mut ending
            && request.is_some_and(|request| request.rollback)
        {
            let mut all = self.retry_transient(|| self.engine.store.undone(self.key, self.turn)).await?;
            all.messages.extend(partial.cloned());
            *undone = Some(all);
        }
        Ok(ending)
    }

    /// Handles an error of the loop. A transient one leaves the turn to its next owner; any other
    /// ends it.
    pub(super) async fn give_up(&mut self, error: &Error) -> Result<(), NotReleased> {
        if matches!(error, Error::Store(error) if error.is_transient()) {
            tracing::warn!(
                session.id = %self.key.session, turn.id = %self.turn, %error,
                "turn stopped on this replica: the database is unavailable; another owner will resume the turn"
            );
            // The next owner need not wait until the lease expires.
            self.engine.capacity.leases.abandon(self.key, self.fence.epoch, Instant::now());
            // A draining replica has no later round that would release the turn.
            if self.engine.capacity.draining.is_cancelled()
                && let Err(error) = self.hand_over().await
            {
                tracing::warn!(
                    session.id = %self.key.session, turn.id = %self.turn, %error, "failed to hand over the turn"
                );
            }
            return Ok(());
        }
        if self.lease.lost().is_cancelled() {
            tracing::warn!(
                session.id = %self.key.session, turn.id = %self.turn, %error,
                "turn stopped on this replica, which no longer owns it"
            );
            return Ok(());
        }
        let failure = if let Error::ModelNotFound(missing) = error {
            Failure::local(FailureReason::ModelNotFound, missing.to_string(), false)
        } else if let Error::PolicyNotFound(policy) = error {
            let message = format!("the configuration no longer names the policy {policy}");
            Failure::local(FailureReason::PolicyNotFound, message, false)
        } else if let Error::ContextWindowUnknown(model) = error {
            let message = format!(
                "the context window of {model} is unknown, and the policy requires a known one: set policy_overrides.context_window"
            );
            Failure::local(FailureReason::ContextOverflow, message, false)
        } else {
            let message = "an internal error ended the turn; see the server's log";
            Failure::local(FailureReason::Internal, message, true)
        };
        if let Err(not_ended) = self.fail(failure, error).await {
            tracing::error!(
                session.id = %self.key.session, turn.id = %self.turn, tenant.id = %self.key.tenant, %error,
                end.error = %not_ended, "failed to end the turn"
            );
            return Err(NotReleased);
        }
        Ok(())
    }

    /// Ends the turn as failed, without reading its messages.
    async fn fail(&mut self, failure: Failure, error: &Error) -> Result<(), Error> {
        let Some(owned) = self.engine.store.owned(self.key, self.turn, self.fence.epoch).await? else {
            return Ok(());
        };
        let at = StepPosition { step: owned.step, attempt: owned.attempt };
        let ending = Ending::Failed(failure);
        let estimator = Estimator::Characters;
        let result = TurnResult {
            step_count: owned.step,
            final_message: owned.final_message.clone(),
            total_usage: owned.totals,
            elapsed: owned.elapsed(),
            ..TurnResult::default()
        };
        let end =
            TurnEnd { ending: &ending, result: &result, synthetic: synthetic(CallCancelReason::TurnEnded, estimator) };
        let rows = Rows::new(&estimator.name(), 0);
        let (store, cost) = (&self.engine.store, StepCost::default());
        let (written, _) = store.stop(self.key, self.turn_fence(), &rows, &cost, &end, None).await?;
        self.apply_written(written)?;
        if self.is_over {
            self.record_end(&ending, at, Some(error));
        }
        Ok(())
    }

    /// Records the end of the turn for metrics, its span and the log. Message content, including the
    /// provider's error text, is not logged; it is in the failure of the turn.
    fn record_end(&self, ending: &Ending, at: StepPosition, error: Option<&Error>) {
        self.engine.metrics.turn_ended(ending);
        self.spans.turn_ended(ending);
        let Ending::Failed(failure) = ending else {
            return;
        };
        let Failure { reason, recoverable, provider, provider_status, provider_code, provider_request_id, .. } =
            failure;
        tracing::error!(
            session.id = %self.key.session, turn.id = %self.turn, tenant.id = %self.key.tenant,
            step = at.step, attempt = at.attempt, reason = failure_reason(*reason), recoverable,
            provider, provider.status = provider_status, provider.code = provider_code,
            provider.request_id = provider_request_id, error = error.map(tracing::field::display),
            "turn failed"
        );
    }

    /// The result of the turn, including this step.
    fn result(&self, step: &StepContext<'_>, cost: &StepCost<'_>, finish: Option<FinishReason>) -> TurnResult {
        let owned = step.owned;
        TurnResult {
            step_count: owned.step,
            final_message: cost.message.cloned().or_else(|| owned.final_message.clone()),
            finish,
            last_step_usage: self.last_usage.clone(),
            total_usage: cost.call.map_or(owned.totals, |usage| owned.totals.plus(usage)),
            elapsed: owned.elapsed() + step.read.elapsed(),
        }
    }
}
