//! Policies of the settings as the model has them.

use std::collections::BTreeMap;

use crate::{
    config::{self, KeepPart, PolicyConfig},
    model::{
        Keep, OutputLimits, TakeMode, ToolExecution,
        compaction::{CompactionPolicy, Guard, InstructionsMode, Ratio, Strategy},
        config::{ContextPolicy, Policy, PruneMode, PrunePolicy, UnknownWindow},
    },
};

/// A policy of the settings.
pub(super) fn policy(config: &PolicyConfig) -> Policy {
    let tools = &config.tools;
    let by_name: BTreeMap<_, _> = tools
        .output_limits
        .iter()
        .map(|(name, limits)| (name.clone(), output_limits(limits)))
        .collect();
    let execution = match tools.execution {
        config::ToolExecution::Parallel => ToolExecution::Parallel,
        config::ToolExecution::Sequential => ToolExecution::Sequential,
    };
    let take = match config.queue.take {
        config::TakeMode::All => TakeMode::All,
        config::TakeMode::OneAtATime => TakeMode::OneAtATime,
        config::TakeMode::Latest => TakeMode::Latest,
    };
    Policy {
        execution,
        default_output_limits: output_limits(&tools.default_output_limits),
        output_limits: by_name,
        max_pending: config.queue.max_pending,
        take,
        context: context_policy(config),
    }
}

fn context_policy(config: &PolicyConfig) -> ContextPolicy {
    let PolicyConfig {
        output_reserve,
        context_window,
        unknown_window,
        compaction,
        prune,
        tools: _,
        queue: _,
    } = config;
    let config::PrunePolicyConfig {
        mode,
        minimum_tokens,
        protect_tokens,
        protect_turns,
        protected_tools,
    } = prune.clone();
    let mode = match mode {
        config::PruneMode::Always => PruneMode::Always,
        config::PruneMode::WhenItPays => PruneMode::WhenItPays,
        config::PruneMode::OnOverflow => PruneMode::OnOverflow,
    };
    let unknown_window = match unknown_window {
        config::UnknownWindow::Assume => UnknownWindow::Assume,
        config::UnknownWindow::Refuse => UnknownWindow::Refuse,
    };
    ContextPolicy {
        compaction: compaction_policy(compaction),
        prune: PrunePolicy {
            mode,
            minimum_tokens,
            protect_tokens,
            protect_turns,
            protected_tools,
        },
        output_reserve: (*output_reserve > 0).then_some(*output_reserve),
        context_window: (*context_window > 0).then_some(*context_window),
        unknown_window,
    }
}

fn compaction_policy(config: &config::CompactionPolicyConfig) -> CompactionPolicy {
    let config::CompactionPolicyConfig {
        enabled,
        strategy,
        threshold,
        keep_turns,
        keep_ratio,
        summary_model,
        summary_max_tokens,
        instructions,
        instructions_mode,
        background,
        guard,
        guard_request_ratio,
        guard_stream_ratio,
        guard_max_restarts,
    } = config.clone();
    CompactionPolicy {
        enabled,
        strategy: match strategy {
            config::CompactionStrategy::ReactiveOverflow => Strategy::ReactiveOverflow,
            config::CompactionStrategy::ProactiveThreshold => Strategy::ProactiveThreshold,
            config::CompactionStrategy::MiddleRemoval => Strategy::MiddleRemoval,
            config::CompactionStrategy::Truncation => Strategy::Truncation,
        },
        threshold: threshold.map(Ratio::clamped),
        keep_turns,
        keep_ratio: Ratio::clamped(keep_ratio),
        summary_model: Some(summary_model).filter(|model| !model.is_empty()),
        summary_max_tokens,
        instructions,
        background,
        instructions_mode: match instructions_mode {
            config::InstructionsMode::Append => InstructionsMode::Append,
            config::InstructionsMode::Replace => InstructionsMode::Replace,
        },
        guard: guard.map(|guard| match guard {
            config::ContextGuard::None => Guard::None,
            config::ContextGuard::TwoLevel => Guard::TwoLevel,
        }),
        guard_request_ratio: Ratio::clamped(guard_request_ratio),
        guard_stream_ratio: Ratio::clamped(guard_stream_ratio),
        guard_max_restarts,
    }
}

fn output_limits(limits: &config::OutputLimits) -> OutputLimits {
    let config::OutputLimits {
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
        keep: Some(match keep {
            KeepPart::Head => Keep::Head,
            KeepPart::HeadAndTail => Keep::HeadAndTail,
        }),
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
