//! The configuration of a session: what its turns are run with.

use std::collections::BTreeMap;

use super::{Generation, LimitsOverride, OutputLimits, TakeMode, ToolSet};

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
}

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
}

impl Policy {
    /// The policy with a session's changes.
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
        }
    }

    /// The limits for one tool: its own over those by name over the default, field by field.
    pub fn limits_for(&self, name: &str, own: Option<OutputLimits>) -> OutputLimits {
        let by_name = self.output_limits.get(name).copied().unwrap_or_default();
        own.unwrap_or_default().or(by_name).or(self.default_output_limits)
    }
}

/// The order in which the calls of one step are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
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
