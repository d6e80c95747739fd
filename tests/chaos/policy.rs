//! Random session policies: all ways to prune old results, to deliver queued messages, and to compact in a small
//! context window.

use contextd::pb::{self, CompactionStrategy, ContextGuard, PruneMode, TakeMode};

use crate::{
    model::{DIALECTS, SUMMARISER},
    random::Random,
};

/// The smallest context window, in tokens; the newest text of a session and its tools fit in it.
const SMALL: usize = 400;
/// Tokens of it that are reserved for a response.
const RESERVE: i32 = 60;

/// A random policy.
pub(crate) fn any(random: &mut Random) -> pb::Policy {
    let window = random.happens(80).then(|| SMALL + random.below(SMALL));
    pb::Policy {
        prune: Some(prune(random)),
        queue: Some(queue(random)),
        compaction: Some(compaction(random)),
        context_window: window.and_then(|window| i32::try_from(window).ok()),
        output_reserve: window.map(|_| RESERVE),
        ..pb::Policy::default()
    }
}

fn prune(random: &mut Random) -> pb::PrunePolicy {
    let modes = [PruneMode::Always, PruneMode::WhenItPays, PruneMode::OnOverflow];
    pb::PrunePolicy {
        mode: (*random.of(&modes)).into(),
        minimum_tokens: Some(1),
        protect_tokens: Some(0),
        protect_turns: Some(i32::from(random.happens(50))),
        protected_tools: Vec::new(),
    }
}

fn queue(random: &mut Random) -> pb::QueuePolicy {
    let takes = [TakeMode::All, TakeMode::All, TakeMode::OneAtATime, TakeMode::Latest];
    pb::QueuePolicy { max_pending: None, take: (*random.of(&takes)).into() }
}

fn compaction(random: &mut Random) -> pb::CompactionPolicy {
    let guards = [ContextGuard::None, ContextGuard::TwoLevel];
    pb::CompactionPolicy {
        strategy: any_strategy(random).into(),
        keep_turns: Some(i32::from(random.happens(50))),
        summary_model: any_summariser(random),
        summary_max_tokens: Some(60),
        guard: (*random.of(&guards)).into(),
        background: Some(random.happens(50)),
        ..pb::CompactionPolicy::default()
    }
}

/// A random strategy. Those that call a model are twice as likely as those that do not.
pub(crate) fn any_strategy(random: &mut Random) -> CompactionStrategy {
    *random.of(&[
        CompactionStrategy::ReactiveOverflow,
        CompactionStrategy::ReactiveOverflow,
        CompactionStrategy::ProactiveThreshold,
        CompactionStrategy::ProactiveThreshold,
        CompactionStrategy::MiddleRemoval,
        CompactionStrategy::Truncation,
    ])
}

/// The scripted summary model, or one over HTTP.
fn any_summariser(random: &mut Random) -> String {
    let provider = if random.happens(20) { "scripted" } else { random.of(&DIALECTS) };
    format!("{provider}/{SUMMARISER}")
}
