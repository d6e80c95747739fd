//! A turn as its loop holds it, and what one step works with.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    context::{
        budget::ASSUMED,
        estimator::Estimator,
        prune::Pruning,
        size::{ContextSize, Size},
    },
    fair::FairPlace,
    model::{
        Category, Ending, Fence, Limits, MessageId, Seq, SessionKey, ToolSet, TurnId, Usage,
        compaction::Trigger, config::Policy, event::StepPosition,
    },
    provider::registry::Resolved,
    store::owned::Owned,
    turn::{
        context::media::Carried,
        engine::Engine,
        lease::leases::Lease,
        live::hub::Channel,
        run::{spans::Spans, watch::Watch},
    },
};

/// How often the next step is held up by a configuration that changed; then it begins as it was
/// made.
const CONFIG_TRIES: u32 = 10;

/// Whether the loop goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// With the next look at what is committed.
    On,
    /// Not here.
    Over,
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
    /// Nothing was waited for since its last commit.
    pub(super) is_as_left: bool,
    pub(super) last_usage: Option<Usage>,
    pub(super) writing: Option<MessageId>,
    /// How often the next step could not begin because the configuration had changed.
    pub(super) moved: u32,
    /// It is noted that its events must be read.
    pub(super) attended: bool,
    /// A step, and the calls that this owner made for it.
    pub(super) calls: (u32, u32),
    /// The step whose prompt was made smaller because the provider found it too long.
    pub(super) recovered: Option<u32>,
    /// The step whose model was called once more because its answer said nothing.
    pub(super) called_again: Option<u32>,
    pub(super) making: Making,
    /// It came to its end here.
    pub(super) is_over: bool,
    /// The transcript is as large as what has to be saved at least.
    pub(super) is_worth_pruning: bool,
    /// Its part of the memory for prompts, if its messages or their media are large.
    pub(super) memory: Option<FairPlace>,
    /// Bytes of media that this part is for, beside the messages, or that it waits for one for.
    pub(super) media: u64,
    /// The media of its prompts.
    pub(super) carried: Carried,
    pub(super) watch: Watch,
    pub(super) spans: Spans,
}

impl Run<'_> {
    /// Whether the next step begins also if the configuration has changed.
    pub(super) fn begins_in_any_case(&self) -> bool {
        self.moved >= CONFIG_TRIES
    }
}

/// What one step works with.
pub(super) struct StepContext<'a> {
    pub(super) owned: &'a Owned,
    pub(super) model: &'a Resolved,
    /// Who counts what is stored.
    pub(super) estimator: Estimator,
    pub(super) limits: Limits,
    pub(super) tools: &'a ToolSet,
    /// There may be calls that the model does not see.
    pub(super) hides: bool,
    /// How the context is kept, and how calls run.
    pub(super) policy: Policy,
    /// The size of the prompt, and what it was computed from.
    pub(super) size: Size,
    pub(super) context: ContextSize<'a>,
    /// Tokens of the transcript that the model is not sent.
    pub(super) unsupported: BTreeMap<Category, u32>,
    pub(super) at: StepPosition,
    pub(super) read: Instant,
}

impl StepContext<'_> {
    /// Cached tokens that the provider bills again after a prune.
    pub(super) fn rebilled(&self, pruning: &Pruning) -> u32 {
        pruning.rebilled(
            self.context.cached_tokens(),
            self.context.non_transcript_tokens(),
        )
    }

    /// How much of the time after the turn's own is left.
    pub(super) fn grace_left(&self) -> Duration {
        self.owned.grace_left(self.limits.grace)
    }

    /// How long a call may take.
    pub(super) fn time_left(&self) -> Duration {
        self.owned.time_with_grace(self.limits.grace)
    }

    /// The most tokens that an answer may take, as far as that is known.
    pub(super) fn most_output(&self) -> u32 {
        let of_model = self.model.info.max_output.map(|limit| limit.tokens);
        let limit = self.limits.max_output_tokens.or(of_model);
        limit.unwrap_or(ASSUMED.1)
    }

    /// Whether the turn's time is up by now: no tool is asked for any more.
    pub(super) fn is_over(&self) -> bool {
        self.read.elapsed() >= self.owned.time_left
    }
}

/// Whether the model can be called.
pub(super) enum Room {
    /// It can.
    Fits,
    /// The context is another one by now, or something happened that the turn has to look at.
    Changed,
    /// There is no room, and none to be made.
    Over(Ending),
}

/// What the turn makes room for, and what it has tried.
#[derive(Debug, Default)]
pub(super) struct Making {
    /// It was found too large, and has to get down to so many tokens.
    pub(super) forced: Option<(Trigger, u32)>,
    /// The step that old results were cleared for.
    pub(super) pruned: Option<u32>,
    /// The step that was compacted for: once each will do, unless it does not fit.
    pub(super) step: Option<u32>,
    /// A step, and how often its answer was stopped because it filled the window.
    pub(super) restarts: (u32, u32),
}
