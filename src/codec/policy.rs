//! What a session changes about its context to and from proto forms.

use crate::{
    model::config::{ContextOverrides, PruneMode, PruneOverrides, UnknownWindow},
    pb,
};

use super::{
    DecodeError,
    number::{known, signed, unsigned},
};

/// The changes for the wire; those about tools and the queue are left out.
pub(super) fn to_pb(overrides: &ContextOverrides) -> pb::Policy {
    let ContextOverrides { prune, output_reserve, context_window, unknown_window } = overrides;
    pb::Policy {
        prune: (*prune != PruneOverrides::default()).then(|| prune_to_pb(prune)),
        output_reserve: output_reserve.map(signed),
        context_window: context_window.map(signed),
        unknown_window: unknown_window_to_pb(*unknown_window).into(),
        ..pb::Policy::default()
    }
}

/// The changes as they were stored.
pub(super) fn from_pb(policy: &pb::Policy) -> Result<ContextOverrides, DecodeError> {
    let pb::Policy { compaction: _, prune, tools: _, queue: _, output_reserve, context_window, unknown_window } =
        policy;
    Ok(ContextOverrides {
        prune: prune.clone().map(prune_from_pb).transpose()?.unwrap_or_default(),
        output_reserve: count("output reserve", *output_reserve)?,
        context_window: count("context window", *context_window)?,
        unknown_window: unknown_window_from_pb(known("unknown window", *unknown_window)?),
    })
}

fn prune_to_pb(prune: &PruneOverrides) -> pb::PrunePolicy {
    let PruneOverrides { mode, minimum_tokens, protect_tokens, protect_turns, protected_tools } = prune;
    pb::PrunePolicy {
        mode: mode_to_pb(*mode).into(),
        minimum_tokens: minimum_tokens.map(signed),
        protect_tokens: protect_tokens.map(signed),
        protect_turns: protect_turns.map(signed),
        protected_tools: protected_tools.clone(),
    }
}

fn prune_from_pb(prune: pb::PrunePolicy) -> Result<PruneOverrides, DecodeError> {
    let pb::PrunePolicy { mode, minimum_tokens, protect_tokens, protect_turns, protected_tools } = prune;
    Ok(PruneOverrides {
        mode: mode_from_pb(known("prune mode", mode)?),
        minimum_tokens: count("prune minimum", minimum_tokens)?,
        protect_tokens: count("prune protection", protect_tokens)?,
        protect_turns: count("prune protection", protect_turns)?,
        protected_tools,
    })
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

/// When to prune; none: as the policy says.
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

/// What to do about an unknown window; none: as the policy says.
pub fn unknown_window_from_pb(unknown: pb::UnknownWindow) -> Option<UnknownWindow> {
    match unknown {
        pb::UnknownWindow::Unspecified => None,
        pb::UnknownWindow::Assume => Some(UnknownWindow::Assume),
        pb::UnknownWindow::Refuse => Some(UnknownWindow::Refuse),
    }
}
