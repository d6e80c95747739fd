//! What a session changes in its policy: how tools run, limits on their output, and what a later version takes.

use std::collections::BTreeMap;

use super::{
    Findings, Path, duration, number, output_limits,
    text::{self, AtMost},
    tools,
};
use crate::{
    codec,
    model::{
        OutputLimits, TakeMode, ToolExecution,
        compaction::{CompactionOverrides, InstructionsMode, Ratio, Strategy},
        config::{ContextOverrides, PolicyOverrides, PruneOverrides},
    },
    pb::{self, FieldReason},
};

/// Most tools with limits of their own.
const MOST_LIMITS: usize = 512;
/// Most characters of the wishes for a summary.
const LONGEST_INSTRUCTIONS: AtMost = AtMost::Chars(16_384);
/// Most characters of a model reference.
const LONGEST_MODEL: AtMost = AtMost::Chars(256);
/// Lowest share of the window that can trigger something.
const SMALLEST_SHARE: f64 = f64::MIN_POSITIVE;

/// Reads the changes to a policy.
pub(super) fn overrides(at: Path<'_>, policy: Option<pb::Policy>, found: &mut Findings) -> PolicyOverrides {
    let pb::Policy { compaction, prune, tools, queue, output_reserve, context_window, unknown_window } =
        policy.unwrap_or_default();
    let context = ContextOverrides {
        compaction: self::compaction(at.field("compaction"), compaction.unwrap_or_default(), found),
        prune: self::prune(at.field("prune"), prune.unwrap_or_default(), found),
        output_reserve: optional_count(at.field("output_reserve"), output_reserve, found),
        context_window: window(at.field("context_window"), context_window, found),
        unknown_window: number::known(at.field("unknown_window"), unknown_window, found)
            .and_then(codec::policy::unknown_window_from_pb),
    };
    let pb::QueuePolicy { max_pending, take } = queue.unwrap_or_default();
    let tools = tool_policy(at.field("tools"), tools.unwrap_or_default(), context, found);
    PolicyOverrides {
        max_pending: self::max_pending(at.field("queue").field("max_pending"), max_pending, found),
        take: self::take(at.field("queue").field("take"), take, found),
        ..tools
    }
}

/// A number that may be missing, which is not the same as 0.
pub(super) fn optional_count(at: Path<'_>, number: Option<i32>, found: &mut Findings) -> Option<u32> {
    number::not_negative(at, number.unwrap_or_default().into(), found);
    number.and_then(|number| u32::try_from(number).ok())
}

/// A window: one of nothing holds nothing.
fn window(at: Path<'_>, number: Option<i32>, found: &mut Findings) -> Option<u32> {
    if number == Some(0) {
        found.invalid(at, FieldReason::OutOfRange, "must be above 0");
    }
    optional_count(at, number, found)
}

fn tool_policy(
    at: Path<'_>,
    policy: pb::ToolPolicy,
    context: ContextOverrides,
    found: &mut Findings,
) -> PolicyOverrides {
    let pb::ToolPolicy { execution, default_output_limits, output_limits, cancel_wait } = policy;
    let execution = self::execution(at.field("execution"), execution, found);
    if let Some(wait) = cancel_wait {
        duration::any(at.field("cancel_wait"), wait, found);
        found.not_implemented(at.field("cancel_wait"));
    }
    PolicyOverrides {
        execution,
        default_output_limits: default_output_limits
            .map(|limits| output_limits::read(at.field("default_output_limits"), limits, found)),
        output_limits: limits_by_name(at.field("output_limits"), output_limits, found),
        context,
        ..PolicyOverrides::default()
    }
}

fn execution(at: Path<'_>, execution: i32, found: &mut Findings) -> Option<ToolExecution> {
    match number::known(at, execution, found) {
        Some(pb::ToolExecution::Unspecified) | None => None,
        Some(pb::ToolExecution::Parallel) => Some(ToolExecution::Parallel),
        Some(pb::ToolExecution::Sequential) => Some(ToolExecution::Sequential),
    }
}

fn limits_by_name(
    at: Path<'_>,
    limits: BTreeMap<String, pb::ToolOutputLimits>,
    found: &mut Findings,
) -> BTreeMap<String, OutputLimits> {
    if limits.len() > MOST_LIMITS {
        found.invalid(at, FieldReason::TooLarge, format!("must have at most {MOST_LIMITS} entries"));
    }
    let mut read = |(name, limits): (String, _)| {
        tools::check_name(at.key(&name), &name, found);
        let limits = output_limits::read(at.key(&name), limits, found);
        (name, limits)
    };
    limits.into_iter().map(&mut read).collect()
}

fn compaction(at: Path<'_>, policy: pb::CompactionPolicy, found: &mut Findings) -> CompactionOverrides {
    let pb::CompactionPolicy {
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
    } = policy;
    if summary_max_tokens == Some(0) {
        found.invalid(at.field("summary_max_tokens"), FieldReason::OutOfRange, "must be above 0");
    }
    CompactionOverrides {
        enabled,
        strategy: self::strategy(at.field("strategy"), strategy, found),
        threshold: share(at.field("threshold"), threshold, SMALLEST_SHARE, 1.0, found),
        keep_turns: optional_count(at.field("keep_turns"), keep_turns, found),
        keep_ratio: share(at.field("keep_ratio"), keep_ratio, 0.0, 0.9, found),
        summary_model: words(at.field("summary_model"), summary_model, LONGEST_MODEL, found),
        summary_max_tokens: optional_count(at.field("summary_max_tokens"), summary_max_tokens, found),
        instructions: self::instructions(at.field("instructions"), instructions, found),
        instructions_mode: self::instructions_mode(at.field("instructions_mode"), instructions_mode, found),
        background,
        guard: number::known(at.field("guard"), guard, found).and_then(codec::policy::guard_from_pb),
        guard_request_ratio: share(at.field("guard_request_ratio"), guard_request_ratio, SMALLEST_SHARE, 1.0, found),
        guard_stream_ratio: share(at.field("guard_stream_ratio"), guard_stream_ratio, SMALLEST_SHARE, 1.0, found),
        guard_max_restarts: optional_count(at.field("guard_max_restarts"), guard_max_restarts, found),
    }
}

/// A way to make a context smaller. `None` means by the policy.
pub(super) fn strategy(at: Path<'_>, strategy: i32, found: &mut Findings) -> Option<Strategy> {
    number::known(at, strategy, found).and_then(codec::policy::strategy_from_pb)
}

/// Wishes for a summary. `None` means by the policy.
pub(super) fn instructions(at: Path<'_>, instructions: String, found: &mut Findings) -> Option<String> {
    words(at, instructions, LONGEST_INSTRUCTIONS, found)
}

/// How wishes are used. `None` means by the policy.
pub(super) fn instructions_mode(at: Path<'_>, mode: i32, found: &mut Findings) -> Option<InstructionsMode> {
    number::known(at, mode, found).and_then(codec::policy::instructions_mode_from_pb)
}

fn prune(at: Path<'_>, policy: pb::PrunePolicy, found: &mut Findings) -> PruneOverrides {
    let pb::PrunePolicy { mode, minimum_tokens, protect_tokens, protect_turns, protected_tools } = policy;
    let named = at.field("protected_tools");
    if protected_tools.len() > MOST_LIMITS {
        found.invalid(named, FieldReason::TooLarge, format!("must have at most {MOST_LIMITS} elements"));
    }
    for (i, name) in protected_tools.iter().take(MOST_LIMITS).enumerate() {
        tools::check_name(named.index(i), name, found);
    }
    PruneOverrides {
        mode: number::known(at.field("mode"), mode, found).and_then(codec::policy::mode_from_pb),
        minimum_tokens: optional_count(at.field("minimum_tokens"), minimum_tokens, found),
        protect_tokens: optional_count(at.field("protect_tokens"), protect_tokens, found),
        protect_turns: optional_count(at.field("protect_turns"), protect_turns, found),
        protected_tools,
    }
}

fn max_pending(at: Path<'_>, most: Option<i32>, found: &mut Findings) -> Option<u32> {
    let most = most?;
    number::within(at, &most, &(1..=1_000), found);
    u32::try_from(most).ok()
}

fn take(at: Path<'_>, take: i32, found: &mut Findings) -> Option<TakeMode> {
    match number::known(at, take, found) {
        Some(pb::TakeMode::Unspecified) | None => None,
        Some(pb::TakeMode::All) => Some(TakeMode::All),
        Some(pb::TakeMode::OneAtATime) => Some(TakeMode::OneAtATime),
        Some(pb::TakeMode::Latest) => Some(TakeMode::Latest),
    }
}

fn share(at: Path<'_>, share: Option<f64>, from: f64, to: f64, found: &mut Findings) -> Option<Ratio> {
    let share = share?;
    if !(from..=to).contains(&share) {
        let above = if from > 0.0 { "above 0 and up to" } else { "0 to" };
        found.invalid(at, FieldReason::OutOfRange, format!("must be {above} {to}"));
    }
    Ratio::new(share)
}

/// A text. `None` means by the policy.
fn words(at: Path<'_>, text: String, most: AtMost, found: &mut Findings) -> Option<String> {
    text::bounded(at, &text, most, found);
    Some(text).filter(|text| !text.is_empty())
}
