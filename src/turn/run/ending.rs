//! The ends of a turn: as the model wants, or whatever waits; and what follows.

use std::time::Instant;

use crate::{
    context::estimator::Estimator,
    model::{
        CompletionReason, Ending, Failure, FailureReason, FinishReason, MessageId, TurnResult,
        event::{CallCancelReason, StepPosition},
    },
    session::{CancelRequest, SessionState, cost::StepCost, ending::End, rows::Rows},
    store::{
        admission::Admission,
        following::{NextTurn, Starters},
        grant::Grant,
        written::Written,
    },
    telemetry::failure_reason,
    turn::{
        Error,
        lease::leases::GrantRequest,
        queue::following::Planned,
        run::{
            cause::Cause,
            starting_point::StartingPoint,
            state::{Flow, Run, StepContext},
        },
        tools::result_words::synthetic,
    },
};

/// What the end of a turn has to reckon with.
struct Ahead {
    /// Messages wait for this turn.
    waiting: bool,
    /// What follows it.
    next: Option<Planned>,
}

impl Ahead {
    /// The turn that follows, as it is admitted.
    fn next_turn<'a>(&'a self, admission: Option<&'a Admission<'a>>) -> Option<NextTurn<'a>> {
        let (next, admission) = self.next.as_ref().zip(admission)?;
        Some(next.next(admission))
    }
}

impl Run<'_> {
    /// Ends the turn as the model wants, unless messages wait for it or a cancel was requested.
    pub(super) async fn finish(
        &mut self,
        scene: &StepContext<'_>,
        rows: Rows,
        cost: Option<StepCost<'_>>,
        (reason, finish): (CompletionReason, Option<FinishReason>),
    ) -> Result<Flow, Error> {
        let cost = cost.unwrap_or_default();
        let ending = Ending::Completed(reason);
        let result = self.result(scene, &cost, finish);
        let end = End {
            ending: &ending,
            result: &result,
            synthetic: synthetic(CallCancelReason::TurnEnded, scene.estimator),
        };
        let mut request = self.engine.leases.request(self.key);
        let store = &self.engine.store;
        let at_once = store.finish_at_once(self.key, self.right(), &rows, &cost, &end);
        if let Some(written) = at_once.await? {
            return self.ended(scene, &ending, (written, None), (false, &request));
        }
        let ahead = self.ahead(scene, Starters::All).await?;
        if ahead.waiting && rows.count() > 0 {
            // It goes on anyhow.
            let written = self
                .engine
                .store
                .append(self.key, self.right(), &rows, &cost, None)
                .await?;
            return self.after(written);
        }
        let admission = ahead.next.as_ref().map(Planned::admission);
        let next = ahead.next_turn(admission.as_ref());
        let ended = store
            .finish_and_start(self.key, self.right(), &rows, &cost, &end, next.as_ref())
            .await;
        let ended = request.answered(ended)?;
        self.ended(scene, &ending, ended, (next.is_some(), &request))
    }

    /// Ends the turn, whatever waits.
    pub(super) async fn stop(
        &mut self,
        scene: &StepContext<'_>,
        rows: Rows,
        cost: Option<StepCost<'_>>,
        ending: Ending,
        finish: Option<FinishReason>,
    ) -> Result<Flow, Error> {
        let cost = cost.unwrap_or_default();
        let result = self.result(scene, &cost, finish);
        let reason = match ending {
            Ending::Cancelled { .. } => CallCancelReason::TurnCancelled,
            Ending::Completed(_) | Ending::Failed(_) => CallCancelReason::TurnEnded,
        };
        let end = End {
            ending: &ending,
            result: &result,
            synthetic: synthetic(reason, scene.estimator),
        };
        let starters = match ending {
            Ending::Completed(_) => Starters::All,
            Ending::Cancelled { .. } | Ending::Failed(_) => Starters::InAnyCase,
        };
        let ahead = self.ahead(scene, starters).await?;
        let admission = ahead.next.as_ref().map(Planned::admission);
        let next = ahead.next_turn(admission.as_ref());
        let mut request = self.engine.leases.request(self.key);
        let store = &self.engine.store;
        let ended = store
            .stop_and_start(self.key, self.right(), &rows, &cost, &end, next.as_ref())
            .await;
        let ended = request.answered(ended)?;
        self.ended(scene, &ending, ended, (next.is_some(), &request))
    }

    /// What the end of the turn has to reckon with: messages that hold it up, and the turn that
    /// follows it.
    async fn ahead(&self, scene: &StepContext<'_>, starters: Starters) -> Result<Ahead, Error> {
        let found = self
            .patiently(|| self.engine.store.ahead(self.key, starters))
            .await?;
        let mut ahead = Ahead {
            waiting: found.waiting,
            next: None,
        };
        let Some(starter) = found
            .starter
            .filter(|_| !self.engine.draining.is_cancelled())
        else {
            return Ok(ahead);
        };
        match self
            .engine
            .plan_for(self.key, &starter, StartingPoint::after(scene.owned))
            .await
        {
            Ok(next) => ahead.next = next,
            Err(error @ Error::Store(_)) => return Err(error),
            // It waits until there is such a model again; this turn's end does not.
            Err(error) => {
                tracing::warn!(session.id = %self.key.session, %error, "queued message cannot start a turn")
            }
        }
        Ok(ahead)
    }

    /// Takes in what the end of the turn answered, and runs what follows it.
    fn ended(
        &mut self,
        scene: &StepContext<'_>,
        ending: &Ending,
        (written, grant): (Written, Option<Grant>),
        (planned, request): (bool, &GrantRequest),
    ) -> Result<Flow, Error> {
        let idle = matches!(written, Written::Applied(ack) if ack.state == SessionState::Idle);
        let flow = self.after(written)?;
        if idle {
            self.engine.metrics.turn_ended(ending);
            self.spans.turn_ended(ending);
            if let Ending::Failed(failure) = ending {
                self.log_failure(failure, scene.at, None);
            }
        }
        match grant {
            Some(grant) => {
                self.engine
                    .start(self.key.clone(), grant, request.sent(), Cause::Queued)
            }
            // The message, or the configuration, is another one by now.
            None if planned && idle => self.engine.start_waiting_soon(self.key),
            None => {}
        }
        Ok(flow)
    }

    /// The end of a turn with what is to be taken back, its last words included. Nothing is added
    /// to a turn that is being cancelled.
    pub(super) async fn undoing(
        &self,
        mut ending: Ending,
        request: Option<&CancelRequest>,
        partial: Option<&MessageId>,
    ) -> Result<Ending, Error> {
        if let Ending::Cancelled { undone, .. } = &mut ending
            && request.is_some_and(|request| request.rollback)
        {
            let mut all = self
                .patiently(|| self.engine.store.undone(self.key, self.turn))
                .await?;
            all.messages.extend(partial.cloned());
            *undone = Some(all);
        }
        Ok(ending)
    }

    /// An error on the way. One that may pass leaves the turn to its next owner; another one ends
    /// it.
    pub(super) async fn give_up(&mut self, error: &Error) {
        if matches!(error, Error::Store(error) if error.is_transient()) {
            tracing::warn!(
                session.id = %self.key.session, turn.id = %self.turn, %error,
                "turn stopped on this replica: no answer from the database; its next owner goes on with it"
            );
            // The next owner need not wait for the lease to run out.
            self.engine
                .leases
                .abandon(self.key, self.fence.epoch, Instant::now());
            // No later round of this replica does it.
            if self.engine.draining.is_cancelled()
                && let Err(error) = self.hand_over().await
            {
                tracing::warn!(
                    session.id = %self.key.session, turn.id = %self.turn, %error, "turn not handed over"
                );
            }
            return;
        }
        if self.lease.lost().is_cancelled() {
            tracing::warn!(
                session.id = %self.key.session, turn.id = %self.turn, %error,
                "turn stopped on this replica, which no longer owns it"
            );
            return;
        }
        let failure = if let Error::ModelNotFound(missing) = error {
            Failure::local(FailureReason::ModelNotFound, missing.to_string(), false)
        } else if let Error::PolicyNotFound(policy) = error {
            let message = format!("the configuration no longer names the policy {policy}");
            Failure::local(FailureReason::PolicyNotFound, message, false)
        } else if let Error::ContextWindowUnknown(model) = error {
            let message = format!(
                "the context window of {model} is not known, and the policy refuses such a model: set policy_overrides.context_window"
            );
            Failure::local(FailureReason::ContextOverflow, message, false)
        } else {
            let message = "an internal error ended the turn; the server's log has it";
            Failure::local(FailureReason::Internal, message, true)
        };
        if let Err(not_ended) = self.fail(failure, error).await {
            tracing::error!(
                session.id = %self.key.session, turn.id = %self.turn, tenant.id = %self.key.tenant, %error,
                end.error = %not_ended, "turn not ended"
            );
        }
    }

    /// Ends the turn as failed without looking at what it was doing.
    async fn fail(&mut self, failure: Failure, error: &Error) -> Result<(), Error> {
        let Some(owned) = self
            .engine
            .store
            .owned(self.key, self.turn, self.fence.epoch)
            .await?
        else {
            return Ok(());
        };
        let at = StepPosition {
            step: owned.step,
            attempt: owned.attempt,
        };
        let ending = Ending::Failed(failure.clone());
        let estimator = Estimator::Characters;
        let result = TurnResult {
            step_count: owned.step,
            final_message: owned.final_message.clone(),
            total_usage: owned.totals,
            elapsed: owned.elapsed(),
            ..TurnResult::default()
        };
        let end = End {
            ending: &ending,
            result: &result,
            synthetic: synthetic(CallCancelReason::TurnEnded, estimator),
        };
        let rows = Rows::new(&estimator.name(), 0);
        let written = self
            .engine
            .store
            .stop(self.key, self.right(), &rows, &StepCost::default(), &end)
            .await?;
        self.after(written)?;
        if self.is_over {
            self.engine.metrics.turn_ended(&ending);
            self.spans.turn_ended(&ending);
            self.log_failure(&failure, at, Some(error));
        }
        Ok(())
    }

    /// The one line about a turn that failed. What was said, a provider's words about it included,
    /// is not in it; the failure of the turn has those.
    fn log_failure(&self, failure: &Failure, at: StepPosition, error: Option<&Error>) {
        let Failure {
            reason,
            recoverable,
            provider,
            provider_status,
            provider_code,
            provider_request_id,
            ..
        } = failure;
        tracing::error!(
            session.id = %self.key.session, turn.id = %self.turn, tenant.id = %self.key.tenant,
            step = at.step, attempt = at.attempt, reason = failure_reason(*reason), recoverable,
            provider, provider.status = provider_status, provider.code = provider_code,
            provider.request_id = provider_request_id, error = error.map(tracing::field::display),
            "turn failed"
        );
    }

    /// What came of the turn, this step included.
    fn result(
        &self,
        scene: &StepContext<'_>,
        cost: &StepCost<'_>,
        finish: Option<FinishReason>,
    ) -> TurnResult {
        let owned = scene.owned;
        TurnResult {
            step_count: owned.step,
            final_message: cost
                .message
                .cloned()
                .or_else(|| owned.final_message.clone()),
            finish,
            last_step_usage: self.last_usage.clone(),
            total_usage: cost
                .call
                .map_or(owned.totals, |usage| owned.totals.plus(usage)),
            elapsed: owned.elapsed() + scene.read.elapsed(),
        }
    }
}
