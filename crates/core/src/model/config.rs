//! The configuration of a session: the settings of its turns.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Generation, LimitsOverride, OutputLimits, TakeMode, ToolSet,
    compaction::CompactionPolicy,
    policy::{Changeable as _, policy, set_or_kept},
};
use crate::settings::choices;

/// The settings that a session's turns run with. Each change creates a new revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionConfig {
    /// Model reference, `PROVIDER/MODEL`.
    pub model: String,
    /// Instructions at the beginning of every prompt; may be empty.
    pub system_prompt: String,
    /// Blocks that follow the system prompt in every prompt.
    pub pinned_blocks: Vec<PinnedBlock>,
    pub tools: ToolSet,
    pub limits: LimitsOverride,
    pub generation: Generation,
    /// Name of the policy.
    pub policy: String,
    /// Overrides of that policy.
    pub overrides: PolicyOverrides,
    /// Labels set by the host.
    pub metadata: BTreeMap<String, String>,
    /// The session is deleted after it was not used for this long. `None` means only the server's own setting applies.
    pub ttl: Option<Duration>,
}

/// A session's overrides of its policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyOverrides {
    pub execution: Option<ToolExecution>,
    /// Limits for tools that are not in `output_limits`.
    pub default_output_limits: Option<OutputLimits>,
    /// Limits by tool name. If not empty, it replaces the policy's map as a whole.
    pub output_limits: BTreeMap<String, OutputLimits>,
    /// Maximum number of queued messages.
    pub max_pending: Option<u32>,
    /// How queued messages are taken.
    pub take: Option<TakeMode>,
    /// Fallback models. If not empty, it replaces the policy's list as a whole.
    pub fallback_models: Vec<String>,
    pub context: ContextOverrides,
}

/// Maximum number of fallback models of a policy: each adds its retries to the time until a turn fails.
pub const MAX_FALLBACK_MODELS: usize = 4;

/// A named set of rules from the server's configuration, or a session's variant of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub execution: ToolExecution,
    /// Limits for tools that are not in `output_limits`.
    pub default_output_limits: OutputLimits,
    /// Limits by tool name.
    pub output_limits: BTreeMap<String, OutputLimits>,
    /// Maximum number of queued messages.
    pub max_pending: u32,
    /// How queued messages are taken.
    pub take: TakeMode,
    /// References of the models to fall back to, in order, if the turn's own model cannot be called.
    pub fallback_models: Vec<String>,
    pub context: ContextPolicy,
}

impl Policy {
    /// The policy with a session's overrides applied.
    #[must_use]
    pub fn with(&self, overrides: &PolicyOverrides) -> Self {
        Self {
            execution: overrides.execution.unwrap_or(self.execution),
            default_output_limits: overrides
                .default_output_limits
                .map_or(self.default_output_limits, |limits| limits.or(self.default_output_limits)),
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

    /// The limits for one tool, field by field: the tool's own, then those by name, then the default.
    pub fn limits_for(&self, name: &str, own: Option<OutputLimits>) -> OutputLimits {
        let by_name = self.output_limits.get(name).copied().unwrap_or_default();
        own.unwrap_or_default().or(by_name).or(self.default_output_limits)
    }
}

set_or_kept!(UnknownWindow, PruneMode);
choices!(UnknownWindow, PruneMode, ToolExecution);

policy! {
    /// How a context is kept within its window. The default is the shipped policy.
    ContextPolicy,
    /// Overrides of a session.
    ContextOverrides {
        /// When and how it is compacted.
        compaction: CompactionPolicy = CompactionPolicy::default(),
        /// When old tool results are pruned.
        prune: PrunePolicy = PrunePolicy::default(),
        /// Tokens reserved for the response. `None` means it depends on the model.
        output_reserve: Option<u32> = None,
        /// The window in tokens. `None` means the model's window.
        context_window: Option<u32> = None,
        /// What to do if the window is not known.
        unknown_window: UnknownWindow = UnknownWindow::Assume,
    }
}

policy! {
    /// When old tool results are pruned (feature rows D17 and S2). They stay readable; the model gets a placeholder.
    PrunePolicy,
    /// Overrides of a session.
    PruneOverrides {
        /// When pruning takes place.
        mode: PruneMode = PruneMode::WhenItPays,
        /// Prune only if at least this many tokens are saved.
        minimum_tokens: u32 = 20_000,
        /// The newest tool output, up to this many tokens, is kept.
        protect_tokens: u32 = 40_000,
        /// The tool output of this many newest turns is kept, unless it alone exceeds `protect_tokens`.
        protect_turns: u32 = 2,
        /// Tools whose results are kept.
        protected_tools: Vec<String> = Vec::new(),
    }
}

/// What to do about a model whose window is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownWindow {
    /// Assume a small window.
    #[default]
    Assume,
    /// Reject the turn.
    Refuse,
}

/// When tool results are pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PruneMode {
    /// If the minimum is saved.
    Always,
    /// If it saves more than the provider bills again because of the changed prefix.
    #[default]
    WhenItPays,
    /// Only if the context would be too large otherwise.
    OnOverflow,
}

/// The order in which the calls of one step are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolExecution {
    /// All at once.
    #[default]
    Parallel,
    /// Each call after the result of the previous one.
    Sequential,
}

/// A block of text that stays in every prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedBlock {
    /// Unique in the session.
    pub name: String,
    pub text: String,
    pub kind: PinnedKind,
}

/// The category that a pinned block is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PinnedKind {
    /// No specific category.
    #[default]
    Pinned,
    Memory,
    Skills,
    Agents,
}

/// Whether the text is a model reference: `PROVIDER/MODEL`, with both parts not empty.
pub fn is_model_reference(text: &str) -> bool {
    text.split_once('/').is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty())
}
