//! What a session changes about its context to and from proto forms.

use crate::{
    model::{
        compaction::{CompactionOverrides, Guard, InstructionsMode, Ratio, Strategy},
        config::{ContextOverrides, PruneMode, PruneOverrides, UnknownWindow},
    },
    pb,
};

use super::{
    DecodeError,
    number::{known, signed, unsigned},
};

/// The changes for the wire; those about tools and the queue are left out.
pub(super) fn to_pb(overrides: &ContextOverrides) -> pb::Policy {
    let ContextOverrides {
        compaction,
        prune,
        output_reserve,
        context_window,
        unknown_window,
    } = overrides;
    pb::Policy {
        compaction: (*compaction != CompactionOverrides::default())
            .then(|| compaction_to_pb(compaction)),
        prune: (*prune != PruneOverrides::default()).then(|| prune_to_pb(prune)),
        output_reserve: output_reserve.map(signed),
        context_window: context_window.map(signed),
        unknown_window: unknown_window_to_pb(*unknown_window).into(),
        ..pb::Policy::default()
    }
}

/// The changes as they were stored.
pub(super) fn from_pb(policy: &pb::Policy) -> Result<ContextOverrides, DecodeError> {
    let pb::Policy {
        compaction,
        prune,
        tools: _,
        queue: _,
        output_reserve,
        context_window,
        unknown_window,
    } = policy;
    Ok(ContextOverrides {
        compaction: compaction
            .clone()
            .map(compaction_from_pb)
            .transpose()?
            .unwrap_or_default(),
        prune: prune
            .clone()
            .map(prune_from_pb)
            .transpose()?
            .unwrap_or_default(),
        output_reserve: count("output reserve", *output_reserve)?,
        context_window: count("context window", *context_window)?,
        unknown_window: unknown_window_from_pb(known("unknown window", *unknown_window)?),
    })
}

fn prune_to_pb(prune: &PruneOverrides) -> pb::PrunePolicy {
    let PruneOverrides {
        mode,
        minimum_tokens,
        protect_tokens,
        protect_turns,
        protected_tools,
    } = prune;
    pb::PrunePolicy {
        mode: mode_to_pb(*mode).into(),
        minimum_tokens: minimum_tokens.map(signed),
        protect_tokens: protect_tokens.map(signed),
        protect_turns: protect_turns.map(signed),
        protected_tools: protected_tools.clone(),
    }
}

fn prune_from_pb(prune: pb::PrunePolicy) -> Result<PruneOverrides, DecodeError> {
    let pb::PrunePolicy {
        mode,
        minimum_tokens,
        protect_tokens,
        protect_turns,
        protected_tools,
    } = prune;
    Ok(PruneOverrides {
        mode: mode_from_pb(known("prune mode", mode)?),
        minimum_tokens: count("prune minimum", minimum_tokens)?,
        protect_tokens: count("prune protection", protect_tokens)?,
        protect_turns: count("prune protection", protect_turns)?,
        protected_tools,
    })
}

fn compaction_to_pb(compaction: &CompactionOverrides) -> pb::CompactionPolicy {
    let CompactionOverrides {
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
    } = compaction;
    pb::CompactionPolicy {
        enabled: *enabled,
        strategy: strategy
            .map_or(pb::CompactionStrategy::Unspecified, strategy_to_pb)
            .into(),
        threshold: threshold.map(Ratio::get),
        keep_turns: keep_turns.map(signed),
        keep_ratio: keep_ratio.map(Ratio::get),
        summary_model: summary_model.clone().unwrap_or_default(),
        summary_max_tokens: summary_max_tokens.map(signed),
        instructions: instructions.clone().unwrap_or_default(),
        instructions_mode: instructions_mode_to_pb(*instructions_mode).into(),
        background: *background,
        guard: guard_to_pb(*guard).into(),
        guard_request_ratio: guard_request_ratio.map(Ratio::get),
        guard_stream_ratio: guard_stream_ratio.map(Ratio::get),
        guard_max_restarts: guard_max_restarts.map(signed),
    }
}

fn compaction_from_pb(
    compaction: pb::CompactionPolicy,
) -> Result<CompactionOverrides, DecodeError> {
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
    } = compaction;
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    Ok(CompactionOverrides {
        enabled,
        strategy: strategy_from_pb(known("compaction strategy", strategy)?),
        threshold: ratio(threshold)?,
        keep_turns: count("turns to keep", keep_turns)?,
        keep_ratio: ratio(keep_ratio)?,
        summary_model: text(summary_model),
        summary_max_tokens: count("cap of a summary", summary_max_tokens)?,
        instructions: text(instructions),
        instructions_mode: instructions_mode_from_pb(known(
            "instructions mode",
            instructions_mode,
        )?),
        background,
        guard: guard_from_pb(known("context guard", guard)?),
        guard_request_ratio: ratio(guard_request_ratio)?,
        guard_stream_ratio: ratio(guard_stream_ratio)?,
        guard_max_restarts: count("restarts", guard_max_restarts)?,
    })
}

fn ratio(share: Option<f64>) -> Result<Option<Ratio>, DecodeError> {
    let read = |share| {
        Ratio::new(share).ok_or_else(|| DecodeError::new("share", format_args!("{share} is none")))
    };
    share.map(read).transpose()
}

/// A way to make a context smaller.
pub fn strategy_to_pb(strategy: Strategy) -> pb::CompactionStrategy {
    match strategy {
        Strategy::ReactiveOverflow => pb::CompactionStrategy::ReactiveOverflow,
        Strategy::ProactiveThreshold => pb::CompactionStrategy::ProactiveThreshold,
        Strategy::MiddleRemoval => pb::CompactionStrategy::MiddleRemoval,
        Strategy::Truncation => pb::CompactionStrategy::Truncation,
    }
}

/// A way to make a context smaller. `None` means as the policy says.
pub fn strategy_from_pb(strategy: pb::CompactionStrategy) -> Option<Strategy> {
    match strategy {
        pb::CompactionStrategy::Unspecified => None,
        pb::CompactionStrategy::ReactiveOverflow => Some(Strategy::ReactiveOverflow),
        pb::CompactionStrategy::ProactiveThreshold => Some(Strategy::ProactiveThreshold),
        pb::CompactionStrategy::MiddleRemoval => Some(Strategy::MiddleRemoval),
        pb::CompactionStrategy::Truncation => Some(Strategy::Truncation),
    }
}

fn instructions_mode_to_pb(mode: Option<InstructionsMode>) -> pb::InstructionsMode {
    match mode {
        None => pb::InstructionsMode::Unspecified,
        Some(InstructionsMode::Append) => pb::InstructionsMode::Append,
        Some(InstructionsMode::Replace) => pb::InstructionsMode::Replace,
    }
}

/// How wishes are used. `None` means as the policy says.
pub fn instructions_mode_from_pb(mode: pb::InstructionsMode) -> Option<InstructionsMode> {
    match mode {
        pb::InstructionsMode::Unspecified => None,
        pb::InstructionsMode::Append => Some(InstructionsMode::Append),
        pb::InstructionsMode::Replace => Some(InstructionsMode::Replace),
    }
}

fn guard_to_pb(guard: Option<Guard>) -> pb::ContextGuard {
    match guard {
        None => pb::ContextGuard::Unspecified,
        Some(Guard::None) => pb::ContextGuard::None,
        Some(Guard::TwoLevel) => pb::ContextGuard::TwoLevel,
    }
}

/// How closely the size is watched. `None` means as the policy says.
pub fn guard_from_pb(guard: pb::ContextGuard) -> Option<Guard> {
    match guard {
        pb::ContextGuard::Unspecified => None,
        pb::ContextGuard::None => Some(Guard::None),
        pb::ContextGuard::TwoLevel => Some(Guard::TwoLevel),
    }
}

/// A number that may be missing, which is not the same as 0.
fn count(what: &'static str, number: Option<i32>) -> Result<Option<u32>, DecodeError> {
    number.map(|number| unsigned(what, number)).transpose()
}

fn mode_to_pb(mode: Option<PruneMode>) -> pb::PruneMode {
    match mode {
        None => pb::PruneMode::Unspecified,
        Some(PruneMode::Always) => pb::PruneMode::Always,
        Some(PruneMode::WhenItPays) => pb::PruneMode::WhenItPays,
        Some(PruneMode::OnOverflow) => pb::PruneMode::OnOverflow,
    }
}

/// When to prune. `None` means as the policy says.
pub fn mode_from_pb(mode: pb::PruneMode) -> Option<PruneMode> {
    match mode {
        pb::PruneMode::Unspecified => None,
        pb::PruneMode::Always => Some(PruneMode::Always),
        pb::PruneMode::WhenItPays => Some(PruneMode::WhenItPays),
        pb::PruneMode::OnOverflow => Some(PruneMode::OnOverflow),
    }
}

fn unknown_window_to_pb(unknown: Option<UnknownWindow>) -> pb::UnknownWindow {
    match unknown {
        None => pb::UnknownWindow::Unspecified,
        Some(UnknownWindow::Assume) => pb::UnknownWindow::Assume,
        Some(UnknownWindow::Refuse) => pb::UnknownWindow::Refuse,
    }
}

/// What to do about an unknown window. `None` means as the policy says.
pub fn unknown_window_from_pb(unknown: pb::UnknownWindow) -> Option<UnknownWindow> {
    match unknown {
        pb::UnknownWindow::Unspecified => None,
        pb::UnknownWindow::Assume => Some(UnknownWindow::Assume),
        pb::UnknownWindow::Refuse => Some(UnknownWindow::Refuse),
    }
}
