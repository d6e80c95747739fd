//! What a session changes in its policy: how tools run, limits on their output, and what a later version takes.

use std::collections::BTreeMap;

use super::{
    Findings, Path, duration, number, output_limits,
    text::{self, AtMost},
    tools,
};
use crate::{
    model::{OutputLimits, TakeMode, ToolExecution, config::PolicyOverrides},
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
    check_compaction(at.field("compaction"), compaction.unwrap_or_default(), found);
    check_prune(at.field("prune"), prune.unwrap_or_default(), found);
    later_count(at.field("output_reserve"), output_reserve, found);
    later_count(at.field("context_window"), context_window, found);
    later_enum::<pb::UnknownWindow>(at.field("unknown_window"), unknown_window, found);
    let pb::QueuePolicy { max_pending, take } = queue.unwrap_or_default();
    let tools = tool_policy(at.field("tools"), tools.unwrap_or_default(), found);
    PolicyOverrides {
        max_pending: self::max_pending(at.field("queue").field("max_pending"), max_pending, found),
        take: self::take(at.field("queue").field("take"), take, found),
        ..tools
    }
}

fn tool_policy(at: Path<'_>, policy: pb::ToolPolicy, found: &mut Findings) -> PolicyOverrides {
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

fn check_compaction(at: Path<'_>, policy: pb::CompactionPolicy, found: &mut Findings) {
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
    later(at.field("enabled"), enabled.is_some(), found);
    later_enum::<pb::CompactionStrategy>(at.field("strategy"), strategy, found);
    later_share(at.field("threshold"), threshold, SMALLEST_SHARE, 1.0, found);
    later_count(at.field("keep_turns"), keep_turns, found);
    later_share(at.field("keep_ratio"), keep_ratio, 0.0, 0.9, found);
    later_text(at.field("summary_model"), summary_model, LONGEST_MODEL, found);
    later_count(at.field("summary_max_tokens"), summary_max_tokens, found);
    later_text(at.field("instructions"), instructions, LONGEST_INSTRUCTIONS, found);
    later_enum::<pb::InstructionsMode>(at.field("instructions_mode"), instructions_mode, found);
    later(at.field("background"), background.is_some(), found);
    later_enum::<pb::ContextGuard>(at.field("guard"), guard, found);
    later_share(at.field("guard_request_ratio"), guard_request_ratio, SMALLEST_SHARE, 1.0, found);
    later_share(at.field("guard_stream_ratio"), guard_stream_ratio, SMALLEST_SHARE, 1.0, found);
    later_count(at.field("guard_max_restarts"), guard_max_restarts, found);
}

fn check_prune(at: Path<'_>, policy: pb::PrunePolicy, found: &mut Findings) {
    let pb::PrunePolicy { mode, minimum_tokens, protect_tokens, protect_turns, protected_tools } = policy;
    later_enum::<pb::PruneMode>(at.field("mode"), mode, found);
    later_count(at.field("minimum_tokens"), minimum_tokens, found);
    later_count(at.field("protect_tokens"), protect_tokens, found);
    later_count(at.field("protect_turns"), protect_turns, found);
    let at = at.field("protected_tools");
    later(at, !protected_tools.is_empty(), found);
    for (i, name) in protected_tools.iter().enumerate() {
        tools::check_name(at.index(i), name, found);
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

/// Notes a field that is set and that a later version takes.
fn later(at: Path<'_>, is_set: bool, found: &mut Findings) {
    if is_set {
        found.not_implemented(at);
    }
}

fn later_count(at: Path<'_>, number: Option<i32>, found: &mut Findings) {
    number::not_negative(at, number.unwrap_or_default().into(), found);
    later(at, number.is_some(), found);
}

fn later_enum<E: TryFrom<i32>>(at: Path<'_>, number: i32, found: &mut Findings) {
    number::known::<E>(at, number, found);
    later(at, number != 0, found);
}

fn later_share(at: Path<'_>, share: Option<f64>, from: f64, to: f64, found: &mut Findings) {
    let Some(share) = share else { return };
    if !(from..=to).contains(&share) {
        let above = if from > 0.0 { "above 0 and up to" } else { "0 to" };
        found.invalid(at, FieldReason::OutOfRange, format!("must be {above} {to}"));
    }
    later(at, true, found);
}

fn later_text(at: Path<'_>, text: String, most: AtMost, found: &mut Findings) {
    later(at, !text.is_empty(), found);
    text::bounded(at, &text, most, found);
}
