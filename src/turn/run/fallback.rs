//! Fallback models: which model replaces one that cannot be called, and how the turn continues.

use std::time::Duration;

use crate::{
    model::{
        Failure, FailureReason, MessageId, Payload,
        command::TurnRequest,
        config::Policy,
        event::{ModelFallback, StepPosition, TurnRetrying},
    },
    provider::{self, registry::ResolvedModel},
    session::{cost::StepCost, rows::Rows},
    store::owned::OwnedTurn,
    turn::{
        Error,
        context::{estimators::estimator, prompt_call::PromptCall, window::budget},
        engine::Prompts,
        run::state::{ContextReductions, Flow, Run, StepContext},
    },
};

/// A model that could not be called, and its replacement.
pub(super) struct Fallback<'a> {
    /// Reference of the model that could not be called.
    pub(super) from: &'a str,
    pub(super) to: ResolvedModel,
    pub(super) failure: Failure,
    /// The open message, which becomes void.
    pub(super) voided: Option<MessageId>,
}

impl Prompts {
    /// The model to use when the model `from` cannot be called. Returns `None` if none is left.
    pub(super) fn fallback(&self, policy: &Policy, from: &str) -> Option<ResolvedModel> {
        let reference = |listed: &str| match self.model(listed) {
            Ok(model) => model.reference,
            Err(_) => listed.to_owned(),
        };
        following(&policy.fallback_models, |listed| reference(listed) == from)
            .iter()
            .find_map(|listed| self.model(listed).ok())
    }
}

/// The rest of a list after the model itself. The whole list, if it does not contain the model.
fn following(list: &[String], is_own: impl Fn(&str) -> bool) -> &[String] {
    let own = list.iter().rposition(|listed| is_own(listed));
    &list[own.map_or(0, |at| at + 1)..]
}

impl Run<'_> {
    /// The model to call instead of the one that failed. Returns `None` if the turn ends with the
    /// error: another model would fail too, none is left, or there is no time.
    pub(super) fn instead_of(&self, step: &StepContext<'_>, error: &provider::Error) -> Option<ResolvedModel> {
        let has_time = step.read.elapsed() < step.time_left();
        self.engine
            .prompts
            .fallback(&step.policy, &step.model.reference)
            .filter(|_| has_time && error.another_model_may_answer())
    }

    /// Handles a turn whose model is no longer configured.
    pub(super) async fn without_model(&mut self, owned: &OwnedTurn, from: &str, error: Error) -> Result<Flow, Error> {
        let policy = self.engine.prompts.policy(&owned.prepared_for.config)?;
        let is_gone = matches!(error, Error::ModelNotFound(_)) && owned.step > 0;
        let Some(to) = self.engine.prompts.fallback(&policy, from).filter(|_| is_gone && !owned.time_left.is_zero())
        else {
            return Err(error);
        };
        let message = error.to_string();
        let rows = Rows::new(&estimator(&to).name(), 0);
        let fallback =
            Fallback { from, to, failure: Failure::local(FailureReason::ModelNotFound, message, false), voided: None };
        self.fall_back(owned, fallback, rows, StepCost::default()).await
    }

    /// Continues with another model, for the next attempt at the step and the rest of the turn.
    pub(super) async fn fall_back(
        &mut self,
        owned: &OwnedTurn,
        fallback: Fallback<'_>,
        mut rows: Rows,
        cost: StepCost<'_>,
    ) -> Result<Flow, Error> {
        let Fallback { from, to, failure, voided } = fallback;
        tracing::warn!(
            session.id = %self.key.session, turn.id = %self.turn, step = owned.step, attempt = owned.attempt,
            model = from, fallback = to.reference, error = failure.message,
            "switching to a fallback model"
        );
        let config = &owned.prepared_for.config;
        let budget = budget(&self.engine.prompts.policy(config)?.context, &to).ok();
        let switched = Payload::ModelFallback(ModelFallback {
            from: from.to_owned(),
            to: to.reference.clone(),
            reason: failure.reason,
            window: budget.filter(|budget| !budget.assumed).map_or(0, |budget| budget.window),
            reserve: budget.map_or(0, |budget| budget.reserve),
        });
        let next_attempt = owned.attempt + 1;
        let retrying = Payload::TurnRetrying(TurnRetrying { failure, next_attempt, delay: Duration::ZERO, voided });
        let call = PromptCall::new(config, &owned.request, owned.step, owned.is_late(), &to);
        for event in [retrying, switched].into_iter().chain(call.left_out()) {
            rows.event(event, StepPosition { step: owned.step, attempt: owned.attempt });
        }
        let request = TurnRequest { model: Some(to.reference), ..owned.request.clone() };
        let written = self.engine.store.retry(self.key, self.turn_fence(), &rows, &cost, Some(&request)).await?;
        // Attempts and recoveries of this step belong to the previous model.
        self.calls = (owned.step, 0);
        self.recovered = None;
        self.reductions = ContextReductions::default();
        self.apply_written(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallbacks_go_on_after_the_model_that_failed() {
        let list = ["a/1", "a/2", "b/1"].map(str::to_owned);
        let table: [(&str, &[&str]); 4] =
            [("c/1", &["a/1", "a/2", "b/1"]), ("a/1", &["a/2", "b/1"]), ("a/2", &["b/1"]), ("b/1", &[])];
        for (own, left) in table {
            assert_eq!(following(&list, |listed| listed == own), left, "{own}");
        }
    }
}
