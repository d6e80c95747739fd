//! The prompt of a turn and its window: measured sizes, the prune before a call, and the end of a
//! turn that does not fit.

use std::{sync::Arc, time::Duration};

use crate::{
    context::{
        prune::{self, choose, is_due},
        sent_prompt::{SentPrompt, uncertain_tokens},
        size::ReportedCall,
        stats::{BreakdownInput, breakdown},
    },
    model::{
        Anchor, ClosedTranscript, Ending, Failure, FailureReason, MessageId, Prompt, SessionConfig, Usage,
        compaction::Trigger, config::PrunePolicy, ledger::CategoryTokens,
    },
    provider::Finish,
    session::{
        cost::StepCost,
        rows::{NewMessage, Rows},
    },
    turn::{
        Error,
        context::{
            compact::CompactionBlocker,
            estimators::estimator,
            measured::{is_believed, message_tokens},
            prune::report,
            reasoning,
            window::{budget, known_window},
        },
        run::state::{Flow, Run, StepContext},
    },
};

/// After the provider rejected a prompt as too long, a prune has to save at least one part in this
/// many of it. Otherwise the context is also compacted.
const MIN_SAVING_DIVISOR: u32 = 4;

impl Run<'_> {
    /// Prunes old tool results, if the policy requires it. Returns `false` if there is nothing to
    /// prune, or it does not pay off.
    pub(super) async fn prune(&self, step: &StepContext<'_>, transcript: &ClosedTranscript) -> Result<bool, Error> {
        let policy = &step.policy.context;
        let Some(pruning) = choose(transcript.messages(), &policy.prune) else {
            return Ok(false);
        };
        let rebilled = step.rebilled(&pruning);
        // An unknown window never overflows: the provider reports it.
        let overflows = budget(policy, step.model).is_ok_and(|budget| budget.overflows(step.size.at_most()));
        if !overflows {
            let prices = step.model.info.cache_prices;
            let by_itself = is_due(policy.prune.mode, &pruning, rebilled, prices, false);
            // Prune before a summary is requested, even if that alone does not pay off. While a
            // summary is being written, leave its context unchanged.
            if !by_itself && self.due(step).is_none() {
                return Ok(false);
            }
            match self.engine.prompts.compaction_blocker(self.key, step.owned.context_version).await? {
                Some(CompactionBlocker::Running) => return Ok(false),
                Some(CompactionBlocker::NoGain) if !by_itself => return Ok(false),
                Some(CompactionBlocker::NoGain) | None => {}
            }
        }
        let report = report(&pruning, rebilled);
        let version = step.owned.context_version;
        let cleared = self.engine.sessions.clear(self.key, &pruning, report, version, None).await?;
        Ok(cleared.is_some())
    }

    /// The ending of the turn if its prompt exceeds the window. Returns `None` for an unknown
    /// window: the provider decides.
    pub(super) async fn too_large(&self, step: &StepContext<'_>) -> Result<Option<Ending>, Error> {
        let size = step.size.count.tokens;
        let window = known_window(&step.policy.context, step.model);
        let Some(window) = window.filter(|window| size > *window) else {
            return Ok(None);
        };
        let words =
            format!("the prompt has about {size} tokens and exceeds the model's context window of {window} tokens");
        self.overflow(step, Failure::local(FailureReason::ContextOverflow, words, false)).await.map(Some)
    }

    /// Handles a prompt that the provider rejected as too long: prunes all old results, also
    /// compacts the context if that is not enough, and repeats the step. This happens once per
    /// step; then the turn ends.
    pub(super) async fn recover(
        &mut self,
        step: &StepContext<'_>,
        failure: Failure,
        voided: Option<MessageId>,
        rows: Rows,
        cost: StepCost<'_>,
    ) -> Result<Flow, Error> {
        let seen = self.engine.store.transcript(self.key).await?;
        let policy = &step.policy.context.prune;
        // The newest results are what the model is working on: up to half of the usually protected
        // tokens stay.
        let prune = PrunePolicy {
            minimum_tokens: 1,
            protect_tokens: policy.protect_tokens.min(step.size.count.tokens) / 2,
            protect_turns: 0,
            ..policy.clone()
        };
        let again = self.recovered != Some(step.at.step);
        let chosen = choose(&seen.messages, &prune).zip(seen.context_version);
        let cleared = chosen.as_ref().map_or(0, |(pruning, _)| pruning.saved);
        // The excess is unknown, so that a small reduction may not suffice.
        let forced = (Trigger::ProviderOverflow, step.size.count.tokens / 2);
        let compacts = again
            && cleared < step.size.count.tokens / MIN_SAVING_DIVISOR
            && self.can_compact(step, &seen.messages, forced).await?;
        if !again || chosen.is_none() && !compacts {
            let ending = self.overflow(step, failure).await?;
            return self.stop(step, rows, cost, ending, None).await;
        }
        self.recovered = Some(step.at.step);
        self.reductions.forced = compacts.then_some(forced);
        tracing::warn!(
            session.id = %self.key.session, turn.id = %self.turn, step = step.at.step, tokens.estimated = step.size.count.tokens,
            "the provider rejected the prompt as too long; reducing the context"
        );
        let failure = Failure { recoverable: true, ..failure };
        let flow = self.begin_attempt(step, rows, &cost, (failure, Duration::ZERO, voided)).await?;
        if let (Flow::Continue, Some((pruning, version))) = (flow, chosen) {
            let report = report(&pruning, step.rebilled(&pruning));
            // If the context changed concurrently, the prune does not apply. The changed prompt is
            // then tried as is.
            self.engine.sessions.clear(self.key, &pruning, report, version, None).await?;
        }
        Ok(flow)
    }

    /// The prompt of a step, with the media that the model accepts.
    pub(super) async fn prompt(
        &mut self,
        step: &StepContext<'_>,
        transcript: ClosedTranscript,
    ) -> Result<Arc<Prompt>, Error> {
        let transcript =
            self.engine.prompts.load_media(&self.key.tenant, step.model, transcript, &mut self.prompt_media).await?;
        let prompt = step.call.prompt(transcript, step.limits.max_output_tokens);
        Ok(Arc::new(Prompt { contents: self.prompt_media.contents(), ..prompt }))
    }

    /// New rows, with the events for media that the last prompt left out.
    pub(super) fn rows_with_media_events(&mut self, step: &StepContext<'_>) -> Rows {
        let mut rows = Self::no_rows(step);
        for left_out in self.prompt_media.take_events(step.model) {
            rows.event(left_out, step.at);
        }
        rows
    }

    /// The ending of a turn whose prompt does not fit, with what fills the window.
    pub(super) async fn overflow(&self, step: &StepContext<'_>, failure: Failure) -> Result<Ending, Error> {
        let categories = match self.engine.store.stats(self.key).await? {
            Some(stats) => {
                let config = SessionConfig { tools: step.call.tools.clone(), ..step.owned.prepared_for.config.clone() };
                let whole = BreakdownInput {
                    config: &config,
                    supports_tools: step.model.info.supports_tools,
                    provider: &step.model.provider_name,
                    estimator: step.estimator,
                    non_transcript: step.context.non_transcript(),
                    ledger: &stats.ledger.less(&step.unsupported),
                    queued: stats.queued,
                    used: step.size.count.tokens,
                };
                largest_first(breakdown(&whole).shares)
            }
            None => Vec::new(),
        };
        Ok(Ending::Failed(Failure { categories, ..failure }))
    }
}

/// The report of a call, if it contains the size of the prompt. Returns `None` if it does not, or
/// the size is not plausible: then the report is recorded, but not used for the next prompt's size
/// or for calibration.
pub(super) fn size_report<'f>(step: &StepContext<'_>, sent: SentPrompt, finish: &'f Finish) -> Option<&'f Usage> {
    let usage = finish.size_report()?;
    let sent = SentPrompt { has_unknown_parts: sent.has_unknown_parts || finish.ran_provider_tools(), ..sent };
    let numbers = (usage.input, step.size.count.tokens);
    let is_believed = is_believed(&step.model.reference, sent, numbers);
    (is_believed && usage.input > 0).then_some(usage)
}

/// What is known of a prompt's size without the reports of earlier calls.
pub(super) fn sent(step: &StepContext<'_>, prompt: &Prompt) -> SentPrompt {
    let messages = prompt.transcript.messages();
    let shows = messages.iter().any(|message| message.media().next().is_some());
    let stored = messages.iter().map(prune::size).fold(step.context.non_transcript_tokens(), u32::saturating_add);
    let of_characters = prompt.size.tokens;
    SentPrompt {
        estimated: stored.max(of_characters),
        certain: of_characters.saturating_sub(uncertain_tokens(messages)),
        has_unknown_parts: shows,
        window: known_window(&step.policy.context, step.model),
    }
}

/// The size that a call measured. Reasoning that is not sent with later prompts is excluded: that
/// of the response, and that of the loop if a response without calls ends it.
pub(super) fn measured(
    step: &StepContext<'_>,
    (usage, in_rounds): (&Usage, bool),
    answer: &NewMessage,
    of_loop: reasoning::SentLoop,
) -> Anchor {
    let was_appended = !answer.parts.is_empty();
    let kept = reasoning::kept(step.model, &answer.parts, of_loop);
    let ends_loop = reasoning::ends_loop(&answer.parts);
    step.context.anchor_after(ReportedCall {
        model: &step.model.reference,
        usage,
        message_tokens: if was_appended { message_tokens(answer) } else { 0 },
        output: estimator(step.model).response(&answer.parts, usage, kept),
        dropped_input: if ends_loop { of_loop.passing } else { 0 },
        ran_provider_tools: in_rounds,
    })
}

fn largest_first(shares: Vec<CategoryTokens>) -> Vec<CategoryTokens> {
    let mut shares: Vec<CategoryTokens> = shares.into_iter().filter(CategoryTokens::in_total).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.tokens));
    shares
}
