//! Compactions: overlays that replace older messages in the prompt. The messages stay stored, and an overlay can be
//! reverted.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    CompactionId, Failure, MessageId, Seq, TokenCount, UsageTotals,
    generation::UpTo,
    policy::{policy, set_or_kept},
};
use crate::settings::{Kind, choices, plain};

/// A ratio from 0 to 1.
pub type Ratio = UpTo<1>;

/// A compaction as reported to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// `None` for a compaction that is only planned.
    pub id: Option<CompactionId>,
    pub state: CompactionState,
    /// What triggered it.
    pub trigger: Trigger,
    /// The strategy in use; differs from the first one tried if that failed.
    pub strategy: Strategy,
    /// The seqs of the first and the last message that it replaces. `None` while not yet determined.
    pub range: Option<(Seq, Seq)>,
    /// Number of messages in `range`.
    pub messages_compacted: u32,
    /// Messages in the prompt before.
    pub messages_before: u32,
    /// Messages in the prompt after; 0 while not yet determined.
    pub messages_after: u32,
    /// Size of the prompt before.
    pub tokens_before: TokenCount,
    /// Size of the prompt after; predicted until the compaction is applied. `None` while there is no prediction.
    pub tokens_after: Option<TokenCount>,
    /// The size in tokens that the prompt had to stay under.
    pub limit: u32,
    /// Old tool results were pruned first.
    pub was_pruned: bool,
    /// The summary that replaces the messages. `None` means they are only left out.
    pub summary: Option<Summary>,
    /// Usage of the model calls for it, failed ones included; for a planned compaction, a prediction.
    pub usage: UsageTotals,
    /// The compaction that it builds on.
    pub predecessor: Option<CompactionId>,
    /// Tools that the remaining messages mention.
    pub referenced_tools: Vec<String>,
    /// Tools that only the replaced messages mention.
    pub unreferenced_tools: Vec<String>,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// When it started. `None` for a compaction that is only planned.
    pub created_at: Option<Timestamp>,
    /// When it was applied or failed.
    pub ended_at: Option<Timestamp>,
    /// When it was reverted.
    pub reverted_at: Option<Timestamp>,
}

/// A summary, and the model that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The text, as the model wrote it.
    pub text: String,
    /// The message that holds the text.
    pub message: MessageId,
    /// Model reference; empty if the summary was carried over by a compaction that does not call a model.
    pub model: String,
}

/// The state of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CompactionState {
    /// A dry run.
    Planned,
    /// In progress; the old context is still in use.
    Running,
    /// In use, or a later compaction builds on it.
    Applied,
    /// It failed; nothing changed.
    Failed,
    Reverted,
}

/// What triggers a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trigger {
    /// The prompt no longer fits next to the output reserve.
    Overflow,
    /// The policy's share of the window is reached.
    Threshold,
    Manual,
    /// The provider rejected the prompt as too long.
    ProviderOverflow,
}

/// A way to make a context smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// When the prompt no longer fits: writes a summary and keeps the newest turns.
    #[default]
    ReactiveOverflow,
    /// When a share of the window is used: writes a summary and keeps the newest share of the window.
    ProactiveThreshold,
    /// Keeps both ends; does not call a model.
    MiddleRemoval,
    /// Keeps the newest messages; does not call a model.
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

/// How instructions for a summary are combined with the built-in ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstructionsMode {
    /// Added to the built-in instructions.
    #[default]
    Append,
    /// Instead of the built-in instructions.
    Replace,
}

/// How often the size is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// Before each request.
    None,
    /// Before each request and while the model responds, each against its own share of the window.
    TwoLevel,
}

set_or_kept!(Ratio, Strategy, InstructionsMode);
choices!(Strategy, InstructionsMode, Guard);
plain!(Ratio, Kind::Number);

policy! {
    /// When and how a context is compacted (feature rows D12 to D14, S8 and L3).
    CompactionPolicy,
    /// Overrides of a session.
    CompactionOverrides {
        /// Whether to compact automatically. If not, a turn that does not fit fails.
        enabled: bool = true,
        /// The first strategy to try.
        strategy: Strategy = Strategy::ReactiveOverflow,
        /// The share of the window that triggers strategies with a threshold. `None` means the strategy's own: 0.5 and
        /// 0.8.
        threshold: Option<Ratio> = None,
        /// Number of newest turns to keep; fewer if they alone fill the window.
        keep_turns: u32 = 2,
        /// The share of the window to keep, newest first.
        keep_ratio: Ratio = Ratio::clamped(0.3),
        /// The model that writes summaries, `PROVIDER/MODEL`. `None` means the session's model.
        summary_model: Option<String> = None,
        /// Maximum length of a summary, in tokens.
        summary_max_tokens: u32 = 2_000,
        /// Instructions for summaries.
        instructions: String = String::new(),
        /// Whether they are added to the built-in instructions or replace them.
        instructions_mode: InstructionsMode = InstructionsMode::Append,
        /// Write summaries in parallel with the turn, ahead of need. A turn waits for one only if its prompt does not
        /// fit.
        background: bool = false,
        /// How often the size is checked. `None` means two-level for self-hosted model servers.
        guard: Option<Guard> = None,
        /// The share of the window at which the guard compacts the context before a request.
        guard_request_ratio: Ratio = Ratio::clamped(0.8),
        /// The share of the window at which the guard stops a response, compacts the context and repeats the step.
        guard_stream_ratio: Ratio = Ratio::clamped(0.9),
        /// Maximum number of such restarts in one step.
        guard_max_restarts: u32 = 3,
    }
}

/// Valid values of `guard_max_restarts`.
pub const GUARD_RESTARTS: RangeInclusive<u32> = 0..=100;

/// Divisor: a summary is limited to this fraction (1/8) of the window.
const SUMMARY_SHARE: u32 = 8;

impl CompactionPolicy {
    /// Whether summaries are written in parallel with the turn.
    pub fn summarises_in_background(&self) -> bool {
        self.background && self.strategy.summarises()
    }

    /// The policy within a window of the given number of tokens: the summary is limited so that room remains for the
    /// conversation.
    #[must_use]
    pub fn within(self, window: u32) -> Self {
        let summary_max_tokens = self.summary_max_tokens.min((window / SUMMARY_SHARE).max(1));
        Self { summary_max_tokens, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_tokens_are_at_most_an_eighth_of_the_window_and_never_zero() {
        let shipped = CompactionPolicy::default();
        let most = shipped.summary_max_tokens;
        for (window, expected) in [(4_096, 512), (9, 1), (7, 1), (0, 1), (8 * most, most), (u32::MAX, most)] {
            let within = shipped.clone().within(window);
            assert_eq!(within, CompactionPolicy { summary_max_tokens: expected, ..shipped.clone() }, "{window}");
        }
    }
}
