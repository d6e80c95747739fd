//! When a context is compacted: the sizes at which a compaction starts, at which a summary is written ahead of need,
//! and at which a response is stopped.

use crate::{
    context::budget::Budget,
    model::compaction::{CompactionPolicy, Guard, Ratio, Strategy, Trigger},
};

/// The share of the window that triggers proactive compaction if the policy does not set one (feature row D13).
const PROACTIVE_THRESHOLD: f64 = 0.5;
/// The same for middle removal.
const MIDDLE_REMOVAL_THRESHOLD: f64 = 0.8;
/// The share of the compaction trigger at which a background summary starts.
const BACKGROUND_START_RATIO: f64 = 0.8;

/// Why a context has to be compacted now. Returns `None` if it does not. `local`: the model runs on a self-hosted
/// server.
pub fn due(policy: &CompactionPolicy, budget: Budget, size: u32, local: bool) -> Option<Trigger> {
    if !policy.enabled {
        return None;
    }
    if budget.overflows(size) {
        return Some(Trigger::Overflow);
    }
    let at = |ratio: f64| f64::from(size) >= ratio * f64::from(budget.window);
    let strategy = threshold(policy).is_some_and(at);
    let guard = guard(policy, local) == Guard::TwoLevel && at(policy.guard_request_ratio.get());
    (strategy || guard).then_some(Trigger::Threshold)
}

/// The size from which a context is compacted. Returns `None` if compaction is off.
pub fn starts_at(policy: &CompactionPolicy, budget: Budget, local: bool) -> Option<u32> {
    if !policy.enabled {
        return None;
    }
    let guard = (guard(policy, local) == Guard::TwoLevel).then(|| policy.guard_request_ratio.get());
    let shares = [threshold(policy), guard].into_iter().flatten().map(|ratio| share(budget.window, ratio));
    Some(shares.fold(budget.room().saturating_add(1), u32::min))
}

/// Whether a background summary should be in progress: it will soon be needed, and the turn that needs it should not
/// have to wait.
pub fn is_background_due(policy: &CompactionPolicy, budget: Budget, size: u32, local: bool) -> bool {
    policy.summarises_in_background()
        && starts_at(policy, budget, local).is_some_and(|from| size >= share(from, BACKGROUND_START_RATIO))
}

/// The size of prompt and response together at which the guard stops a response. Returns `None` if there is no such
/// guard.
pub fn guard_stream_limit(policy: &CompactionPolicy, budget: Budget, local: bool) -> Option<u32> {
    let watched = policy.enabled && guard(policy, local) == Guard::TwoLevel;
    watched.then(|| share(budget.window, policy.guard_stream_ratio.get()))
}

/// How often the size is checked.
pub fn guard(policy: &CompactionPolicy, local: bool) -> Guard {
    policy.guard.unwrap_or(if local { Guard::TwoLevel } else { Guard::None })
}

fn threshold(policy: &CompactionPolicy) -> Option<f64> {
    let own = match policy.strategy {
        Strategy::ReactiveOverflow | Strategy::Truncation => return None,
        Strategy::ProactiveThreshold => PROACTIVE_THRESHOLD,
        Strategy::MiddleRemoval => MIDDLE_REMOVAL_THRESHOLD,
    };
    Some(policy.threshold.map_or(own, Ratio::get))
}

/// The share of a number, rounded up.
pub(super) fn share(of: u32, ratio: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a number is never larger")]
    let tokens = (f64::from(of) * ratio).ceil() as u32;
    tokens
}
