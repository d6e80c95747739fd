//! Compactions: overlays that stand for older messages. The messages stay, and an overlay can be
//! taken back.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    CompactionId, Failure, MessageId, Seq, TokenCount, UsageTotals,
    generation::UpTo,
    policy::{policy, set_or_kept},
};

/// A share of something, 0 to 1.
pub type Ratio = UpTo<1>;

/// A compaction as it is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// Its id. `None` for one that is only planned.
    pub id: Option<CompactionId>,
    /// Where it stands.
    pub state: CompactionState,
    /// What set it off.
    pub trigger: Trigger,
    /// How it is made; not as it was begun, when that failed.
    pub strategy: Strategy,
    /// The seqs of the first and the last message that it stands for. `None` while that is open.
    pub range: Option<(Seq, Seq)>,
    /// How many messages that is.
    pub messages_compacted: u32,
    /// Messages in the prompt before.
    pub messages_before: u32,
    /// And after; 0 while that is open.
    pub messages_after: u32,
    /// Size of the prompt before.
    pub tokens_before: TokenCount,
    /// And after; a forecast until it is in force, none while there is not even that.
    pub tokens_after: Option<TokenCount>,
    /// The size that was to be kept under.
    pub limit: u32,
    /// Old tool results were cleared first.
    pub was_pruned: bool,
    /// The summary in place of the messages. `None` means they are only left out.
    pub summary: Option<Summary>,
    /// The calls that were made for it, those that failed too; of one that is planned a forecast.
    pub usage: UsageTotals,
    /// The one that it builds on.
    pub predecessor: Option<CompactionId>,
    /// Tools that the remaining messages mention.
    pub referenced_tools: Vec<String>,
    /// Tools that only messages mention that it stands for.
    pub unreferenced_tools: Vec<String>,
    /// Why it was given up.
    pub failure: Option<Failure>,
    /// When it was begun. `None` for one that is only planned.
    pub created_at: Option<Timestamp>,
    /// When it came in force, or was given up.
    pub ended_at: Option<Timestamp>,
    /// When it was taken back.
    pub reverted_at: Option<Timestamp>,
}

/// A summary, and who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The words, as they were written.
    pub text: String,
    /// The message that holds them.
    pub message: MessageId,
    /// Model reference; empty when it was carried over by a compaction that asks no model.
    pub model: String,
}

/// Where a compaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CompactionState {
    /// It was only asked what it would do.
    Planned,
    /// It is being made; the old context is in force.
    Running,
    /// It is in force, or built on.
    Applied,
    /// It was given up; nothing changed.
    Failed,
    /// It was taken back.
    Reverted,
}

/// What sets off a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trigger {
    /// The prompt no longer fits beside the answer.
    Overflow,
    /// The policy's share of the window is reached.
    Threshold,
    /// A client requested it.
    Manual,
    /// The provider said "too long".
    ProviderOverflow,
}

/// A way to make a context smaller.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Once it no longer fits: a summary, and the newest turns.
    #[default]
    ReactiveOverflow,
    /// Once it has a share of the window: a summary, and the newest share of it.
    ProactiveThreshold,
    /// Both ends stay; asks no model.
    MiddleRemoval,
    /// The newest stays; asks no model.
    Truncation,
}

impl Strategy {
    /// Whether a model writes a summary.
    pub fn summarises(self) -> bool {
        match self {
            Self::ReactiveOverflow | Self::ProactiveThreshold => true,
            Self::MiddleRemoval | Self::Truncation => false,
        }
    }
}

/// How instructions for a summary are used.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum InstructionsMode {
    /// Beside the built-in instructions.
    #[default]
    Append,
    /// In their place.
    Replace,
}

/// How closely the size is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// Before each request.
    None,
    /// With shares of the window of its own before each request, and while the model answers.
    TwoLevel,
}

set_or_kept!(Ratio, Strategy, InstructionsMode);

policy! {
    /// When and how a context is compacted (feature rows D12 to D14, S8 and L3).
    CompactionPolicy,
    /// What a session changes in it.
    CompactionOverrides {
        /// Whether it happens by itself. When not, a turn that does not fit fails.
        enabled: bool = true,
        /// The first way to try.
        strategy: Strategy = Strategy::ReactiveOverflow,
        /// The share of the window that sets off the strategies that have one. `None` means the
        /// strategy's own: 0.5 and 0.8.
        threshold: Option<Ratio> = None,
        /// The newest turns that stay, fewer where they alone fill the window.
        keep_turns: u32 = 2,
        /// The newest share that stays.
        keep_ratio: Ratio = Ratio::clamped(0.3),
        /// Who writes summaries, `PROVIDER/MODEL`. `None` means the session's model.
        summary_model: Option<String> = None,
        /// Most tokens of a summary.
        summary_max_tokens: u32 = 2_000,
        /// Wishes for summaries.
        instructions: String = String::new(),
        /// Whether they are added to the built-in instructions or replace them.
        instructions_mode: InstructionsMode = InstructionsMode::Append,
        /// Summaries are written beside the turn, ahead of need; only what does not fit waits for
        /// one.
        background: bool = false,
        /// How closely the size is watched. `None` means closely at model servers of one's own.
        guard: Option<Guard> = None,
        /// The share of the window at which the guard has the context made smaller before a
        /// request.
        guard_request_ratio: Ratio = Ratio::clamped(0.8),
        /// The share at which it stops an answer, has the context made smaller and the step made
        /// again.
        guard_stream_ratio: Ratio = Ratio::clamped(0.9),
        /// How often it does so in one step.
        guard_max_restarts: u32 = 3,
    }
}

/// What `guard_max_restarts` may be.
pub const GUARD_RESTARTS: RangeInclusive<u32> = 0..=100;

/// A summary is at most this part of the window that it is made for.
const SUMMARY_SHARE: u32 = 8;

impl CompactionPolicy {
    /// Whether a summary is written while the turn goes on.
    pub fn summarises_beside(&self) -> bool {
        self.background && self.strategy.summarises()
    }

    /// The policy as it holds within a window of so many tokens: a summary leaves room for what is
    /// to be said.
    #[must_use]
    pub fn within(self, window: u32) -> Self {
        let summary_max_tokens = self.summary_max_tokens.min((window / SUMMARY_SHARE).max(1));
        Self {
            summary_max_tokens,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_tokens_are_at_most_an_eighth_of_the_window_and_never_zero() {
        let shipped = CompactionPolicy::default();
        let most = shipped.summary_max_tokens;
        for (window, expected) in [
            (4_096, 512),
            (9, 1),
            (7, 1),
            (0, 1),
            (8 * most, most),
            (u32::MAX, most),
        ] {
            let within = shipped.clone().within(window);
            assert_eq!(
                within,
                CompactionPolicy {
                    summary_max_tokens: expected,
                    ..shipped.clone()
                },
                "{window}"
            );
        }
    }
}
