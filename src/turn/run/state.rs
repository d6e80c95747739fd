//! The state of a turn's loop and of one step.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    context::{
        budget::ASSUMED_WINDOW_AND_RESERVE,
        estimator::Estimator,
        prune::Pruning,
        size::{ContextSize, Size},
    },
    fair::FairPermit,
    model::{
        Category, Ending, Fence, Limits, MessageId, Seq, SessionKey, TurnId, Usage, compaction::Trigger,
        config::Policy, event::StepPosition,
    },
    provider::registry::ResolvedModel,
    store::owned::OwnedTurn,
    turn::{
        context::{media::PromptMedia, prompt_call::PromptCall},
        engine::Engine,
        lease::leases::Lease,
        live::hub::Channel,
        run::{spans::Spans, watch::Watch},
    },
};

/// How often a configuration change may delay the next step. After that the step begins with the
/// configuration that it was built for.
const CONFIG_TRIES: u32 = 10;

/// A turn was neither ended nor left to another owner.
#[derive(Debug, Clone, Copy)]
pub(in crate::turn) struct NotReleased;

/// Whether the loop continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// With the next read of the committed state.
    Continue,
    /// The turn does not continue here.
    Stop,
}

/// A turn that this replica owns.
pub(super) struct Run<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) key: &'a SessionKey,
    pub(super) turn: &'a TurnId,
    pub(super) lease: &'a Arc<Lease>,
    pub(super) channel: &'a Arc<Channel>,
    pub(super) fence: Fence,
    pub(super) seq: Seq,
    /// The turn has not waited since its last commit.
    pub(super) is_just_committed: bool,
    pub(super) last_usage: Option<Usage>,
    pub(super) writing: Option<MessageId>,
    /// How often the next step could not begin because the session had changed.
    pub(super) conflicts: u32,
    /// It is recorded that the turn has a reader.
    pub(super) attended: bool,
    /// A step, and the calls that this owner made for it.
    pub(super) calls: (u32, u32),
    /// The step whose context was reduced because the provider rejected the prompt as too long.
    pub(super) recovered: Option<u32>,
    /// The step whose model was called again because its response was empty.
    pub(super) called_again: Option<u32>,
    pub(super) reductions: ContextReductions,
    /// The turn ended here.
    pub(super) is_over: bool,
    /// The transcript is at least as large as the minimum saving of a prune.
    pub(super) is_worth_pruning: bool,
    /// Memory reserved for the prompt, if its messages or media are large.
    pub(super) memory: Option<FairPermit>,
    /// Bytes of media that `memory` covers, or that the turn waits for.
    pub(super) media: u64,
    /// The media of its prompts.
    pub(super) prompt_media: PromptMedia,
    pub(super) watch: Watch,
    pub(super) spans: Spans,
}

impl Run<'_> {
    /// Whether the next step begins even if the configuration has changed.
    pub(super) fn begins_in_any_case(&self) -> bool {
        self.conflicts >= CONFIG_TRIES
    }
}

/// The state of one step.
pub(super) struct StepContext<'a> {
    pub(super) owned: &'a OwnedTurn,
    pub(super) model: &'a ResolvedModel,
    /// The estimator for stored content.
    pub(super) estimator: Estimator,
    pub(super) limits: Limits,
    /// The call of the step.
    pub(super) call: PromptCall<'a>,
    /// There may be calls that the model does not see.
    pub(super) hides: bool,
    /// Settings for the context and for tool calls.
    pub(super) policy: Policy,
    /// The size of the prompt, computed from `context`.
    pub(super) size: Size,
    pub(super) context: ContextSize<'a>,
    /// Tokens of the transcript that are not sent to the model.
    pub(super) unsupported: BTreeMap<Category, u32>,
    pub(super) at: StepPosition,
    pub(super) read: Instant,
}

impl StepContext<'_> {
    /// Cached tokens that the provider bills again after a prune.
    pub(super) fn rebilled(&self, pruning: &Pruning) -> u32 {
        pruning.rebilled(self.context.cached_tokens(), self.context.non_transcript_tokens())
    }

    /// Remaining grace period.
    pub(super) fn grace_left(&self) -> Duration {
        self.owned.grace_left(self.limits.grace)
    }

    /// Longest duration of a call: the remaining time and grace period.
    pub(super) fn time_left(&self) -> Duration {
        self.owned.time_with_grace(self.limits.grace)
    }

    /// Most tokens of a response. Assumed if it is not known.
    pub(super) fn most_output(&self) -> u32 {
        let of_model = self.model.info.max_output.map(|limit| limit.tokens);
        let limit = self.limits.max_output_tokens.or(of_model);
        limit.unwrap_or(ASSUMED_WINDOW_AND_RESERVE.1)
    }

    /// Whether the turn's time has passed: no more tools are called.
    pub(super) fn is_over(&self) -> bool {
        self.read.elapsed() >= self.owned.time_left
    }
}

/// Whether the model can be called.
pub(super) enum PromptFit {
    /// The prompt fits.
    Fits,
    /// The context changed, or the turn has to read its state again.
    Changed,
    /// The prompt does not fit and cannot be made to.
    TooLarge(Ending),
}

/// Attempts to make the context smaller.
#[derive(Debug, Default)]
pub(super) struct ContextReductions {
    /// A compaction that is required for the next call, with its target in tokens.
    pub(super) forced: Option<(Trigger, u32)>,
    /// The step for which the context was pruned.
    pub(super) pruned: Option<u32>,
    /// The step for which the context was compacted. One compaction per step suffices, unless the
    /// prompt does not fit.
    pub(super) step: Option<u32>,
    /// A step, and how often its response was stopped because it filled the window.
    pub(super) restarts: (u32, u32),
}
