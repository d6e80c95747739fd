//! Decodes the policy overrides of a session: tool execution, limits on tool output, compaction, queue and
//! fallback models.

use super::{
    Findings, Path, duration, number, output_limits,
    text::{self, MaxLength},
    tools,
};
use crate::{
    codec::policy::Field as _,
    model::{
        compaction::{GUARD_RESTARTS, InstructionsMode, Strategy},
        config::{MAX_FALLBACK_MODELS, is_model_reference},
    },
    pb::{self, FieldReason},
};

/// Maximum number of tools with specific limits.
const MAX_LISTED_TOOLS: usize = 512;
/// Maximum length of summary instructions, in characters.
const MAX_INSTRUCTIONS_LENGTH: MaxLength = MaxLength::Chars(16_384);
/// Maximum length of a model reference, in characters.
const MAX_MODEL_LENGTH: MaxLength = MaxLength::Chars(256);
/// Lowest share of the context window that can be a threshold.
const MIN_RATIO: f64 = f64::MIN_POSITIVE;

/// Checks the policy overrides.
pub(super) fn check(at: Path<'_>, policy: &pb::Policy, found: &mut Findings) {
    let pb::Policy {
        compaction,
        prune,
        tools,
        queue,
        output_reserve,
        context_window,
        unknown_window,
        fallback_models,
    } = policy;
    if let Some(compaction) = compaction {
        check_compaction(at.field("compaction"), compaction, found);
    }
    if let Some(prune) = prune {
        check_prune(at.field("prune"), prune, found);
    }
    optional_count(at.field("output_reserve"), *output_reserve, found);
    above_zero(at.field("context_window"), *context_window, found);
    number::enum_value::<pb::UnknownWindow>(at.field("unknown_window"), *unknown_window, found);
    check_fallbacks(at.field("fallback_models"), fallback_models, found);
    if let Some(tools) = tools {
        check_tools(at.field("tools"), tools, found);
    }
    if let Some(queue) = queue {
        check_queue(at.field("queue"), queue, found);
    }
}

/// Checks fallback models. Does not check that they exist.
fn check_fallbacks(at: Path<'_>, models: &[String], found: &mut Findings) {
    if models.len() > MAX_FALLBACK_MODELS {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MAX_FALLBACK_MODELS} elements"),
        );
    }
    let models = models.iter().take(MAX_FALLBACK_MODELS);
    for (i, model) in models.clone().enumerate() {
        let at = at.index(i);
        if model.is_empty() {
            found.required(at);
        }
        if models.clone().take(i).any(|before| before == model) {
            found.invalid(at, FieldReason::Conflict, "must be listed only once");
        }
        text::check_single_line(at, model, MAX_MODEL_LENGTH, found);
    }
}

/// Reports fallback models that are the session's own model.
pub(super) fn check_other_models(
    at: Path<'_>,
    own: &str,
    overrides: &pb::Policy,
    found: &mut Findings,
) {
    let at = at.field("fallback_models");
    for (i, model) in (0..MAX_FALLBACK_MODELS).zip(&overrides.fallback_models) {
        if !own.is_empty() && model == own {
            let expected = "must differ from the session's model";
            found.invalid(at.index(i), FieldReason::Invalid, expected);
        }
    }
}

/// Decodes an optional number, for which 0 differs from unset.
pub(super) fn optional_count(
    at: Path<'_>,
    number: Option<i32>,
    found: &mut Findings,
) -> Option<u32> {
    number::not_negative(at, number.unwrap_or_default().into(), found);
    number.and_then(|number| u32::try_from(number).ok())
}

/// Checks an optional number that must not be 0: a context window of 0 tokens holds nothing.
fn above_zero(at: Path<'_>, number: Option<i32>, found: &mut Findings) {
    if number == Some(0) {
        found.invalid(at, FieldReason::OutOfRange, "must be greater than 0");
    }
    optional_count(at, number, found);
}

fn check_tools(at: Path<'_>, policy: &pb::ToolPolicy, found: &mut Findings) {
    let pb::ToolPolicy {
        execution,
        default_output_limits,
        output_limits,
        cancel_wait,
    } = policy;
    number::enum_value::<pb::ToolExecution>(at.field("execution"), *execution, found);
    if let Some(wait) = cancel_wait {
        duration::any(at.field("cancel_wait"), *wait, found);
        found.not_implemented(at.field("cancel_wait"));
    }
    if let Some(limits) = default_output_limits {
        output_limits::check(at.field("default_output_limits"), limits, found);
    }
    let at = at.field("output_limits");
    if output_limits.len() > MAX_LISTED_TOOLS {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MAX_LISTED_TOOLS} entries"),
        );
    }
    for (name, limits) in output_limits {
        tools::check_name(at.key(name), name, found);
        output_limits::check(at.key(name), limits, found);
    }
}

fn check_compaction(at: Path<'_>, policy: &pb::CompactionPolicy, found: &mut Findings) {
    let pb::CompactionPolicy {
        enabled: _,
        strategy,
        threshold,
        keep_turns,
        keep_ratio,
        summary_model,
        summary_max_tokens,
        instructions,
        instructions_mode,
        background: _,
        guard,
        guard_request_ratio,
        guard_stream_ratio,
        guard_max_restarts,
    } = policy;
    above_zero(at.field("summary_max_tokens"), *summary_max_tokens, found);
    number::enum_value::<pb::CompactionStrategy>(at.field("strategy"), *strategy, found);
    check_share(at.field("threshold"), *threshold, MIN_RATIO, 1.0, found);
    optional_count(at.field("keep_turns"), *keep_turns, found);
    check_share(at.field("keep_ratio"), *keep_ratio, 0.0, 0.9, found);
    check_summary_model(at.field("summary_model"), summary_model, found);
    text::check_length(
        at.field("instructions"),
        instructions,
        MAX_INSTRUCTIONS_LENGTH,
        found,
    );
    number::enum_value::<pb::InstructionsMode>(
        at.field("instructions_mode"),
        *instructions_mode,
        found,
    );
    number::enum_value::<pb::ContextGuard>(at.field("guard"), *guard, found);
    check_share(
        at.field("guard_request_ratio"),
        *guard_request_ratio,
        MIN_RATIO,
        1.0,
        found,
    );
    check_share(
        at.field("guard_stream_ratio"),
        *guard_stream_ratio,
        MIN_RATIO,
        1.0,
        found,
    );
    let at = at.field("guard_max_restarts");
    if let Some(restarts) = optional_count(at, *guard_max_restarts, found) {
        number::within(at, &restarts, &GUARD_RESTARTS, found);
    }
}

/// Checks the model of summaries. Empty means the session's model.
pub(super) fn check_summary_model(at: Path<'_>, model: &str, found: &mut Findings) {
    if text::check_length(at, model, MAX_MODEL_LENGTH, found)
        && !model.is_empty()
        && !is_model_reference(model)
    {
        found.invalid(at, FieldReason::Invalid, "must be PROVIDER/MODEL");
    }
}

/// Decodes a compaction strategy. Returns `None` to use the policy's.
pub(super) fn strategy(at: Path<'_>, strategy: i32, found: &mut Findings) -> Option<Strategy> {
    number::enum_value::<pb::CompactionStrategy>(at, strategy, found);
    found.converted(at, Option::from_field("strategy", strategy))
}

/// Decodes instructions for a summary. Returns `None` to use the policy's.
pub(super) fn instructions(
    at: Path<'_>,
    instructions: String,
    found: &mut Findings,
) -> Option<String> {
    text::check_length(at, &instructions, MAX_INSTRUCTIONS_LENGTH, found);
    Some(instructions).filter(|text| !text.is_empty())
}

/// Decodes how the instructions are used. Returns `None` to use the policy's.
pub(super) fn instructions_mode(
    at: Path<'_>,
    mode: i32,
    found: &mut Findings,
) -> Option<InstructionsMode> {
    number::enum_value::<pb::InstructionsMode>(at, mode, found);
    found.converted(at, Option::from_field("instructions_mode", mode))
}

fn check_prune(at: Path<'_>, policy: &pb::PrunePolicy, found: &mut Findings) {
    let pb::PrunePolicy {
        mode,
        minimum_tokens,
        protect_tokens,
        protect_turns,
        protected_tools,
    } = policy;
    let named = at.field("protected_tools");
    if protected_tools.len() > MAX_LISTED_TOOLS {
        found.invalid(
            named,
            FieldReason::TooLarge,
            format!("must have at most {MAX_LISTED_TOOLS} elements"),
        );
    }
    for (i, name) in protected_tools.iter().take(MAX_LISTED_TOOLS).enumerate() {
        tools::check_name(named.index(i), name, found);
    }
    number::enum_value::<pb::PruneMode>(at.field("mode"), *mode, found);
    optional_count(at.field("minimum_tokens"), *minimum_tokens, found);
    optional_count(at.field("protect_tokens"), *protect_tokens, found);
    optional_count(at.field("protect_turns"), *protect_turns, found);
}

fn check_queue(at: Path<'_>, policy: &pb::QueuePolicy, found: &mut Findings) {
    let pb::QueuePolicy { max_pending, take } = policy;
    if let Some(most) = max_pending {
        number::within(at.field("max_pending"), most, &(1..=1_000), found);
    }
    number::enum_value::<pb::TakeMode>(at.field("take"), *take, found);
}

fn check_share(at: Path<'_>, share: Option<f64>, from: f64, to: f64, found: &mut Findings) {
    if share.is_some_and(|share| !(from..=to).contains(&share)) {
        let above = if from > 0.0 {
            "greater than 0 and at most"
        } else {
            "0 to"
        };
        found.invalid(at, FieldReason::OutOfRange, format!("must be {above} {to}"));
    }
}
