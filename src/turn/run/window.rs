//! The prompt of a turn and its window: what a call measured, what is cleared before the next, and
//! how a turn ends that does not fit.

use std::{sync::Arc, time::Duration};

use crate::{
    context::{
        prompt::{self, Asked},
        prune::{self, choose, is_due},
        sent_prompt::{SentPrompt, uncertain_tokens},
        size::ReportedCall,
        stats::{Whole, breakdown},
    },
    model::{
        Anchor, Closed, Ending, Failure, FailureReason, MessageId, Prompt, SessionConfig, Usage,
        compaction::Trigger, config::PrunePolicy, ledger::Share,
    },
    provider::Finish,
    session::{
        cost::StepCost,
        rows::{NewMessage, Rows},
    },
    turn::{
        Error,
        context::{
            compact::TriedLast,
            estimators::estimator,
            prune::{report, unasked},
            reasoning,
            stats::{budget, known_window},
        },
        run::{
            measured::{is_believed, message_tokens},
            state::{Flow, Run, StepContext},
        },
    },
};

/// What is cleared on a provider's word that the prompt is too long has to be one part in so many
/// of it; else it is compacted too.
const WORTH_A_TRY: u32 = 4;

impl Run<'_> {
    /// Clears old tool results, where the policy says so. False: there is nothing to clear, or it
    /// does not pay.
    pub(super) async fn prune(
        &self,
        scene: &StepContext<'_>,
        transcript: &Closed,
    ) -> Result<bool, Error> {
        let policy = &scene.policy.context;
        let Some(pruning) = choose(transcript.messages(), &policy.prune) else {
            return Ok(false);
        };
        let rebilled = scene.rebilled(&pruning);
        // An unknown window never overflows: the provider reports it.
        let overflows =
            budget(policy, scene.model).is_ok_and(|budget| budget.overflows(scene.size.at_most()));
        if !overflows {
            let prices = scene.model.info.cache_prices;
            let by_itself = is_due(policy.prune.mode, &pruning, rebilled, prices, false);
            // Before a summary is asked for, what can be cleared is. While one is written, its
            // context is let be.
            if !by_itself && self.due(scene).is_none() {
                return Ok(false);
            }
            match self
                .engine
                .tried_last(self.key, scene.owned.context_version)
                .await?
            {
                Some(TriedLast::Running) => return Ok(false),
                Some(TriedLast::NoGain) if !by_itself => return Ok(false),
                Some(TriedLast::NoGain) | None => {}
            }
        }
        let report = report(&pruning, rebilled);
        let version = scene.owned.context_version;
        let cleared = self
            .engine
            .clear(self.key, &pruning, report, version, (&unasked(), ""))
            .await?;
        Ok(cleared.is_some())
    }

    /// How the turn ends if its prompt is larger than the window. An unknown window is left to the
    /// provider.
    pub(super) async fn too_large(&self, scene: &StepContext<'_>) -> Result<Option<Ending>, Error> {
        let size = scene.size.count.tokens;
        let window = known_window(&scene.policy.context, scene.model);
        let Some(window) = window.filter(|window| size > *window) else {
            return Ok(None);
        };
        let words = format!("the prompt has about {size} tokens, and the model's window {window}");
        self.overflow(
            scene,
            Failure::local(FailureReason::ContextOverflow, words, false),
        )
        .await
        .map(Some)
    }

    /// What follows on a provider's word that the prompt is too long: all old results are cleared,
    /// where that is not enough the context is compacted, and the step is repeated, once; else
    /// the turn ends.
    pub(super) async fn recover(
        &mut self,
        scene: &StepContext<'_>,
        failure: Failure,
        voided: Option<MessageId>,
        rows: Rows,
        cost: StepCost<'_>,
    ) -> Result<Flow, Error> {
        let seen = self.engine.store.transcript(self.key).await?;
        let policy = &scene.policy.context.prune;
        // The newest results are what the model is at: half of what is protected otherwise stays.
        let prune = PrunePolicy {
            minimum_tokens: 1,
            protect_tokens: policy.protect_tokens.min(scene.size.count.tokens) / 2,
            protect_turns: 0,
            ..policy.clone()
        };
        let again = self.recovered != Some(scene.at.step);
        let chosen = choose(&seen.messages, &prune).zip(seen.context_version);
        let cleared = chosen.as_ref().map_or(0, |(pruning, _)| pruning.saved);
        // A little less will not do: by how much it is too long is not known.
        let forced = (Trigger::ProviderOverflow, scene.size.count.tokens / 2);
        let compacts = again
            && cleared < scene.size.count.tokens / WORTH_A_TRY
            && self.can_compact(scene, &seen.messages, forced).await?;
        if !again || chosen.is_none() && !compacts {
            let ending = self.overflow(scene, failure).await?;
            return self.stop(scene, rows, Some(cost), ending, None).await;
        }
        self.recovered = Some(scene.at.step);
        self.making.forced = compacts.then_some(forced);
        tracing::warn!(
            session.id = %self.key.session, turn.id = %self.turn, step = scene.at.step, tokens.estimated = scene.size.count.tokens,
            "the provider refused the prompt as too long; making the context smaller"
        );
        let failure = Failure {
            recoverable: true,
            ..failure
        };
        let flow = self
            .begin_attempt(scene, rows, &cost, (failure, Duration::ZERO, voided))
            .await?;
        if let (Flow::On, Some((pruning, version))) = (flow, chosen) {
            let report = report(&pruning, scene.rebilled(&pruning));
            // Whoever changed the context meanwhile made another prompt of it: that one is tried as
            // it is.
            self.engine
                .clear(self.key, &pruning, report, version, (&unasked(), ""))
                .await?;
        }
        Ok(flow)
    }

    /// The prompt of a step, its media as the model gets them.
    pub(super) async fn prompt(
        &mut self,
        scene: &StepContext<'_>,
        transcript: Closed,
        asked: &Asked<'_>,
    ) -> Result<Arc<Prompt>, Error> {
        let transcript = self
            .engine
            .carry(&self.key.tenant, scene.model, transcript, &mut self.carried)
            .await?;
        let prompt = prompt::build(&scene.owned.made_for.config, scene.tools, transcript, asked);
        Ok(Arc::new(Prompt {
            contents: self.carried.contents(),
            ..prompt
        }))
    }

    /// No rows yet but those that tell which media the last prompt left out.
    pub(super) fn told(&mut self, scene: &StepContext<'_>) -> Rows {
        let mut rows = Self::no_rows(scene);
        for left_out in self.carried.told(scene.model) {
            rows.event(left_out, scene.at);
        }
        rows
    }

    /// The end of a turn whose prompt does not fit, with what fills the window.
    pub(super) async fn overflow(
        &self,
        scene: &StepContext<'_>,
        failure: Failure,
    ) -> Result<Ending, Error> {
        let categories = match self.engine.store.stats(self.key).await? {
            Some(stats) => {
                let config = SessionConfig {
                    tools: scene.tools.clone(),
                    ..scene.owned.made_for.config.clone()
                };
                let whole = Whole {
                    config: &config,
                    supports_tools: scene.model.info.supports_tools,
                    provider: &scene.model.provider_name,
                    estimator: scene.estimator,
                    non_transcript: scene.context.non_transcript(),
                    ledger: &stats.ledger.less(&scene.unsupported),
                    queued: stats.queued,
                    used: scene.size.count.tokens,
                };
                largest_first(breakdown(&whole).shares)
            }
            None => Vec::new(),
        };
        Ok(Ending::Failed(Failure {
            categories,
            ..failure
        }))
    }
}

/// The report of a call that tells the size of its prompt. `None` if it tells nothing of that, or something that
/// cannot be: it is recorded, and neither taken for the size of the next prompt nor learnt from.
pub(super) fn size_report<'f>(
    scene: &StepContext<'_>,
    sent: SentPrompt,
    finish: &'f Finish,
) -> Option<&'f Usage> {
    let usage = finish.size_report()?;
    let sent = SentPrompt {
        holds_unknown: sent.holds_unknown || finish.ran_in_rounds(),
        ..sent
    };
    let numbers = (usage.input, scene.size.count.tokens);
    let is_believed = is_believed(&scene.model.reference, sent, numbers);
    (is_believed && usage.input > 0).then_some(usage)
}

/// What is known of the size of a prompt, whatever earlier calls reported.
pub(super) fn sent(scene: &StepContext<'_>, prompt: &Prompt) -> SentPrompt {
    let messages = prompt.transcript.messages();
    let shows = messages
        .iter()
        .any(|message| message.media().next().is_some());
    let stored = messages
        .iter()
        .map(prune::size)
        .fold(scene.context.non_transcript_tokens(), u32::saturating_add);
    let of_characters = prompt.size.tokens;
    SentPrompt {
        estimated: stored.max(of_characters),
        certain: of_characters.saturating_sub(uncertain_tokens(messages)),
        holds_unknown: shows,
        window: known_window(&scene.policy.context, scene.model),
    }
}

/// What a call measured. Reasoning that goes with no later prompt is no part of it: the answer's
/// own, and what the prompt held of the loop that an answer without calls ends.
pub(super) fn measured(
    scene: &StepContext<'_>,
    (usage, in_rounds): (&Usage, bool),
    answer: &NewMessage,
    of_loop: reasoning::SentLoop,
) -> Anchor {
    let was_appended = !answer.parts.is_empty();
    let kept = reasoning::kept(scene.model, &answer.parts, of_loop);
    let ends_loop = reasoning::ends_loop(&answer.parts);
    scene.context.anchor_after(ReportedCall {
        model: &scene.model.reference,
        usage,
        message_tokens: if was_appended {
            message_tokens(answer)
        } else {
            0
        },
        output: estimator(scene.model).answer(&answer.parts, usage, kept),
        dropped_input: if ends_loop { of_loop.passing } else { 0 },
        in_rounds,
    })
}

fn largest_first(shares: Vec<Share>) -> Vec<Share> {
    let mut shares: Vec<Share> = shares.into_iter().filter(Share::in_total).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.tokens));
    shares
}
