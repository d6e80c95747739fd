//! A prompt that does not fit: what is cleared then, and how the turn ends when that is not enough.

use super::{Flow, Run, Scene};
use crate::{
    context::{
        prune::choose,
        stats::{Whole, breakdown},
    },
    model::{Ending, Failure, FailureReason, MessageId, Payload, SessionConfig, config::PrunePolicy, ledger::Share},
    store::{Rows, turn::StepCost},
    turn::{
        Error,
        prune::{report, unasked},
        stats::budget,
    },
};

impl Run<'_> {
    /// How the turn ends if its prompt is larger than the window. What nobody knows the size of is left to the provider.
    pub(super) async fn too_large(&self, scene: &Scene<'_>) -> Result<Option<Ending>, Error> {
        let policy = self.engine.policy(&scene.owned.made_for.config)?.context;
        let window = budget(&policy, scene.model).ok().filter(|budget| !budget.assumed).map(|budget| budget.window);
        let size = scene.size.count.tokens;
        let Some(window) = window.filter(|window| size > *window) else { return Ok(None) };
        let words = format!("the prompt has about {size} tokens, and the model's window {window}");
        self.overflow(scene, Failure::local(FailureReason::ContextOverflow, words, false)).await.map(Some)
    }

    /// What follows on a provider's word that the prompt is too long: all old results are cleared and the step is repeated, once; else
    /// the turn ends.
    pub(super) async fn recover(
        &mut self,
        scene: &Scene<'_>,
        failure: Failure,
        voided: Option<MessageId>,
        mut rows: Rows,
        cost: StepCost<'_>,
    ) -> Result<Flow, Error> {
        let seen = self.engine.store.transcript(self.key).await?;
        let policy = self.engine.policy(&scene.owned.made_for.config)?.context;
        // The newest results are what the model is at: half of what is protected otherwise stays.
        let prune = PrunePolicy {
            minimum_tokens: 1,
            protect_tokens: policy.prune.protect_tokens.min(scene.size.count.tokens) / 2,
            protect_turns: 0,
            ..policy.prune
        };
        let again = self.recovered != Some(scene.at.step);
        let chosen = choose(&seen.messages, &prune).filter(|_| again).zip(seen.context_version);
        let Some((pruning, version)) = chosen else {
            let ending = self.overflow(scene, failure).await?;
            return self.stop(scene, rows, Some(cost), ending, None).await;
        };
        self.recovered = Some(scene.at.step);
        tracing::warn!(
            session.id = %self.key.session, turn.id = %self.turn, step = scene.at.step, tokens.estimated = scene.size.count.tokens,
            "the provider takes the prompt for too long; old tool results are cleared"
        );
        let (next_attempt, delay) = (scene.at.attempt + 1, std::time::Duration::ZERO);
        let failure = Failure { recoverable: true, ..failure };
        rows.event(&Payload::TurnRetrying { failure, next_attempt, delay, voided }, scene.at);
        let written = self.engine.store.retry(self.key, self.fence, &rows, &cost).await?;
        let flow = self.after(written)?;
        if flow == Flow::On {
            let report = report(&pruning, pruning.rebilled(scene.cached, scene.outside));
            // Whoever changed the context meanwhile made another prompt of it: that one is tried as it is.
            self.engine.clear(self.key, &pruning, report, version, &unasked()).await?;
        }
        Ok(flow)
    }

    /// The end of a turn whose prompt does not fit, with what fills the window.
    async fn overflow(&self, scene: &Scene<'_>, failure: Failure) -> Result<Ending, Error> {
        let categories = match self.engine.store.stats(self.key).await? {
            Some(stats) => {
                let config = SessionConfig { tools: scene.tools.clone(), ..scene.owned.made_for.config.clone() };
                let whole = Whole {
                    config: &config,
                    supports_tools: scene.model.info.supports_tools,
                    ledger: &stats.ledger,
                    queued: stats.queued,
                    used: scene.size.count.tokens,
                };
                largest_first(breakdown(&whole).shares)
            }
            None => Vec::new(),
        };
        Ok(Ending::Failed(Failure { categories, ..failure }))
    }
}

fn largest_first(shares: Vec<Share>) -> Vec<Share> {
    let mut shares: Vec<Share> = shares.into_iter().filter(Share::in_total).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.tokens));
    shares
}
