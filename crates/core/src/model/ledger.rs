//! Token counters of a session by category, and the last measured model call.

use std::collections::BTreeMap;

use super::{AppliedMessage, CallId, Category, Compaction, Seq, TokenBasis, TokenCount, usage::Estimate};

pub use super::occupancy::{CategoryTokens, ContextCategory};

/// A number of tokens, and the number of parts that they belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CategoryCount {
    /// Estimated tokens.
    pub tokens: i64,
    pub parts: u32,
}

/// Tokens of the live transcript by category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Number of messages.
    pub messages: u32,
    /// Tokens of the messages in addition to their parts.
    pub overhead: i64,
    pub user: CategoryCount,
    /// Text of the model.
    pub assistant: CategoryCount,
    pub reasoning: CategoryCount,
    pub tool_calls: CategoryCount,
    /// Tool results; pruned ones count as their placeholder.
    pub tool_results: CategoryCount,
    /// Images and files.
    pub media: CategoryCount,
    pub summary: CategoryCount,
    /// Pinned messages.
    pub pinned: CategoryCount,
    /// Pruned tool results: the tokens saved and the number of results. Not part of the size.
    pub pruned: CategoryCount,
}

impl Ledger {
    /// The counter of one category.
    pub fn count_of(&self, category: Category) -> CategoryCount {
        match category {
            Category::User => self.user,
            Category::Assistant => self.assistant,
            Category::Reasoning => self.reasoning,
            Category::ToolCalls => self.tool_calls,
            Category::ToolResults => self.tool_results,
            Category::Media => self.media,
            Category::Summary => self.summary,
            Category::Pinned => self.pinned,
        }
    }

    /// The ledger without tokens that are not sent to the model, by category.
    pub fn less(mut self, unsupported: &BTreeMap<Category, u32>) -> Self {
        for (category, tokens) in unsupported {
            let held = match category {
                Category::User => &mut self.user,
                Category::Assistant => &mut self.assistant,
                Category::Reasoning => &mut self.reasoning,
                Category::ToolCalls => &mut self.tool_calls,
                Category::ToolResults => &mut self.tool_results,
                Category::Media => &mut self.media,
                Category::Summary => &mut self.summary,
                Category::Pinned => &mut self.pinned,
            };
            held.tokens = held.tokens.saturating_sub(i64::from(*tokens)).max(0);
        }
        self
    }
}

/// Which kinds of parts a transcript contains whose size depends on the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelDependent {
    /// Media, or tool outputs stored as blobs, which may be media.
    pub media: bool,
    pub reasoning: bool,
    /// Provider items.
    pub items: bool,
}

/// The last call of a session's model for which the provider reported usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// Model reference.
    pub model: String,
    /// The version of the context that the prompt was built from.
    pub version: i64,
    /// Reported size of the prompt.
    pub input: u32,
    /// Size of the response in later prompts: as reported, less the reasoning that is not sent back to the provider; or
    /// the estimate, if that is closer.
    pub output: u32,
    /// The estimate of that prompt and that response.
    pub estimated_at_anchor: i64,
    /// Tokens of the prompt in the provider's cache; 0 once the cache has presumably expired.
    pub cached: u32,
    /// The predicted size of the prompt; 0 if the measured prompt is not the predicted one.
    pub estimated: u32,
    /// Basis of the prediction.
    pub basis: TokenBasis,
}

impl Anchor {
    /// Whether the measured prompt is the predicted one.
    pub fn has_prediction(&self) -> bool {
        self.estimated > 0
    }
}

/// The result of a prune.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PruneReport {
    /// The calls whose results were pruned, oldest first.
    pub calls: Vec<CallId>,
    /// Names of their tools, without duplicates.
    pub tools: Vec<String>,
    /// Tokens saved.
    pub saved: u32,
    /// Cached tokens that the provider bills again.
    pub rebilled: u32,
    /// The seq of the prune's event. `None` means nothing was pruned, or this is a dry run.
    pub at: Option<Seq>,
}

/// The result of undoing a prune.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restored {
    /// The seq of the prune.
    pub pruned_at: Seq,
    /// The calls whose results were restored, oldest first.
    pub calls: Vec<CallId>,
    /// Tokens added to the context.
    pub tokens: u32,
}

/// What was done to make a prompt fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrepareReport {
    pub before: TokenCount,
    /// Size after pruning.
    pub pruned: TokenCount,
    /// Size after compaction.
    pub compacted: TokenCount,
    /// `None` means nothing was pruned.
    pub prune: Option<PruneReport>,
    /// `None` means no compaction was needed.
    pub compaction: Option<Box<Compaction>>,
    /// The queued messages that were applied first.
    pub applied: Vec<AppliedMessage>,
}

/// The result of recording the usage of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageReceipt {
    /// The prediction compared to the report. `None` means it is not known which prompt was sent.
    pub estimate: Option<Estimate>,
    /// Size of the next prompt.
    pub size: TokenCount,
}
