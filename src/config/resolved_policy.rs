//! The policies that the settings define: a setting of 0 is a limit that is not set.

use std::collections::BTreeMap;

use super::policy::{OutputLimitsConfig, PolicyConfig};
use crate::model::{
    OutputLimits,
    compaction::CompactionPolicy,
    config::{ContextPolicy, Policy},
};

impl PolicyConfig {
    /// The policy that these settings define.
    pub fn resolved(&self) -> Policy {
        let tools = &self.tools;
        let by_name: BTreeMap<_, _> =
            tools.output_limits.iter().map(|(name, limits)| (name.clone(), limits.resolved())).collect();
        Policy {
            execution: tools.execution,
            default_output_limits: tools.default_output_limits.resolved(),
            output_limits: by_name,
            max_pending: self.queue.max_pending,
            take: self.queue.take,
            fallback_models: self.fallback_models.clone(),
            context: self.resolved_context(),
        }
    }

    fn resolved_context(&self) -> ContextPolicy {
        let Self {
            output_reserve,
            context_window,
            unknown_window,
            fallback_models: _,
            compaction,
            prune,
            tools: _,
            queue: _,
        } = self.clone();
        let set = |tokens: u32| (tokens > 0).then_some(tokens);
        ContextPolicy {
            compaction: CompactionPolicy {
                summary_model: compaction.summary_model.filter(|model| !model.is_empty()),
                ..compaction
            },
            prune,
            output_reserve: set(output_reserve),
            context_window: set(context_window),
            unknown_window,
        }
    }
}

impl OutputLimitsConfig {
    fn resolved(&self) -> OutputLimits {
        let Self { max_output_chars, max_lines, max_line_length, max_matches, keep } = *self;
        let set = |limit: u32| (limit > 0).then_some(limit);
        OutputLimits {
            max_chars: set(max_output_chars),
            max_lines: set(max_lines),
            max_line_length: set(max_line_length),
            max_matches: set(max_matches),
            keep: Some(keep),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_settings_are_the_models_defaults() {
        assert_eq!(PolicyConfig::default().resolved_context(), ContextPolicy::default());
    }
}
