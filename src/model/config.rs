//! The configuration of a session: what its turns are run with.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Generation, LimitsOverride, OutputLimits, TakeMode, ToolSet,
    compaction::CompactionPolicy,
    policy::{Changeable as _, policy, set_or_kept},
};

/// What a session's turns are run with. Each change makes a new revision of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionConfig {
    /// Model reference, `PROVIDER/MODEL`.
    pub model: String,
    /// Instructions that precede every prompt; may be empty.
    pub system_prompt: String,
    /// Blocks that follow the system prompt and stay in every prompt.
    pub pinned_blocks: Vec<PinnedBlock>,
    /// The tools of its turns.
    pub tools: ToolSet,
    /// Bounds of its turns.
    pub limits: LimitsOverride,
    /// How the model is to answer.
    pub generation: Generation,
    /// Name of its policy.
    pub policy: String,
    /// What it changes in that policy.
    pub overrides: PolicyOverrides,
    /// The host's labels.
    pub metadata: BTreeMap<String, String>,
    /// The session is deleted when it was not used for this long. `None` means only the server's
    /// own setting applies.
    pub ttl: Option<Duration>,
}

/// What a session changes in its policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyOverrides {
    /// How the calls of one step are handed out.
    pub execution: Option<ToolExecution>,
    /// Limits for tools not named in `output_limits`.
    pub default_output_limits: Option<OutputLimits>,
    /// Limits by tool name; not empty: replaces the policy's as a whole.
    pub output_limits: BTreeMap<String, OutputLimits>,
    /// Most messages that may wait in the queue.
    pub max_pending: Option<u32>,
    /// How queued messages are taken.
    pub take: Option<TakeMode>,
    /// Models to go on with; not empty: replaces the policy's as a whole.
    pub fallback_models: Vec<String>,
    /// How the context is kept within its window.
    pub context: ContextOverrides,
}

/// Most models of a policy that a turn can go on with: each adds its retries to the time that a turn
/// takes to fail.
pub const MOST_FALLBACKS: usize = 4;

/// A named set of rules from the server's configuration, or one session's variant of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How the calls of one step are handed out.
    pub execution: ToolExecution,
    /// Limits for tools not named below.
    pub default_output_limits: OutputLimits,
    /// Limits by tool name.
    pub output_limits: BTreeMap<String, OutputLimits>,
    /// Most messages that may wait in the queue.
    pub max_pending: u32,
    /// How queued messages are taken.
    pub take: TakeMode,
    /// References of the models that a turn goes on with, in order, when its own cannot be called.
    pub fallback_models: Vec<String>,
    /// How the context is kept within its window.
    pub context: ContextPolicy,
}

impl Policy {
    /// The policy with a session's changes.
    #[must_use]
    pub fn with(&self, overrides: &PolicyOverrides) -> Self {
        Self {
            execution: overrides.execution.unwrap_or(self.execution),
            default_output_limits: overrides
                .default_output_limits
                .map_or(self.default_output_limits, |limits| {
                    limits.or(self.default_output_limits)
                }),
            output_limits: if overrides.output_limits.is_empty() {
                self.output_limits.clone()
            } else {
                overrides.output_limits.clone()
            },
            max_pending: overrides.max_pending.unwrap_or(self.max_pending),
            take: overrides.take.unwrap_or(self.take),
            fallback_models: self.fallback_models.with(&overrides.fallback_models),
            context: self.context.with(&overrides.context),
        }
    }

    /// The limits for one tool: its own over those by name over the default, field by field.
    pub fn limits_for(&self, name: &str, own: Option<OutputLimits>) -> OutputLimits {
        let by_name = self.output_limits.get(name).copied().unwrap_or_default();
        own.unwrap_or_default()
            .or(by_name)
            .or(self.default_output_limits)
    }
}

set_or_kept!(UnknownWindow, PruneMode);

policy! {
    /// How a context is kept within its window. The default is what is shipped.
    ContextPolicy,
    /// What a session changes in it.
    ContextOverrides {
        /// When and how it is compacted.
        compaction: CompactionPolicy = CompactionPolicy::default(),
        /// When old tool results are cleared.
        prune: PrunePolicy = PrunePolicy::default(),
        /// Tokens kept free for the answer. `None` means by the model.
        output_reserve: Option<u32> = None,
        /// The window in tokens. `None` means the model's.
        context_window: Option<u32> = None,
        /// What to do when no window is known.
        unknown_window: UnknownWindow = UnknownWindow::Assume,
    }
}

policy! {
    /// When old tool results are cleared (feature rows D17 and S2). They stay readable; the model
    /// sees a placeholder.
    PrunePolicy,
    /// What a session changes in it.
    PruneOverrides {
        /// When.
        mode: PruneMode = PruneMode::WhenItPays,
        /// Only if at least this many tokens are saved.
        minimum_tokens: u32 = 20_000,
        /// The newest tool output of this many tokens stays.
        protect_tokens: u32 = 40_000,
        /// The newest turns stay, unless they alone hold more tool output than that.
        protect_turns: u32 = 2,
        /// Tools whose results stay.
        protected_tools: Vec<String> = Vec::new(),
    }
}

/// What to do about a model whose window is not known.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum UnknownWindow {
    /// Take a small one.
    #[default]
    Assume,
    /// Refuse.
    Refuse,
}

/// When tool results are pruned.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum PruneMode {
    /// Whenever the minimum can be saved.
    Always,
    /// When that saves more than the provider bills again.
    #[default]
    WhenItPays,
    /// When the context is too large otherwise.
    OnOverflow,
}

/// The order in which the calls of one step are handed out.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ToolExecution {
    /// All at once.
    #[default]
    Parallel,
    /// The next one after the result of the one before.
    Sequential,
}

/// A block of text that stays in every prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedBlock {
    /// Name, unique in the session.
    pub name: String,
    /// The text.
    pub text: String,
    /// Where it is counted.
    pub kind: PinnedKind,
}

/// Where a pinned block is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PinnedKind {
    /// Without another tag.
    #[default]
    Pinned,
    /// A memory file.
    Memory,
    /// A skill.
    Skills,
    /// A sub-agent.
    Agents,
}

/// Whether a text can name a model: `PROVIDER/MODEL`, of which neither is empty.
pub fn is_model_reference(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty())
}
