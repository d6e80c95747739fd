//! Converts configured policies to the model's.

use std::collections::BTreeMap;

use crate::{
    config::{self, PolicyConfig},
    model::{
        OutputLimits,
        compaction::CompactionPolicy,
        config::{ContextPolicy, Policy},
    },
};

/// Converts a configured policy.
pub(super) fn policy(config: &PolicyConfig) -> Policy {
    let tools = &config.tools;
    let by_name: BTreeMap<_, _> = tools
        .output_limits
        .iter()
        .map(|(name, limits)| (name.clone(), output_limits(limits)))
        .collect();
    Policy {
        execution: tools.execution,
        default_output_limits: output_limits(&tools.default_output_limits),
        output_limits: by_name,
        max_pending: config.queue.max_pending,
        take: config.queue.take,
        fallback_models: config.fallback_models.clone(),
        context: context_policy(config),
    }
}

fn context_policy(config: &PolicyConfig) -> ContextPolicy {
    let PolicyConfig {
        output_reserve,
        context_window,
        unknown_window,
        fallback_models: _,
        compaction,
        prune,
        tools: _,
        queue: _,
    } = config.clone();
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

fn output_limits(limits: &config::OutputLimitsConfig) -> OutputLimits {
    let config::OutputLimitsConfig {
        max_output_chars,
        max_lines,
        max_line_length,
        max_matches,
        keep,
    } = *limits;
    let set = |limit: u32| (limit > 0).then_some(limit);
    OutputLimits {
        max_chars: set(max_output_chars),
        max_lines: set(max_lines),
        max_line_length: set(max_line_length),
        max_matches: set(max_matches),
        keep: Some(keep),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_settings_are_the_models_defaults() {
        assert_eq!(
            context_policy(&PolicyConfig::default()),
            ContextPolicy::default()
        );
    }
}
