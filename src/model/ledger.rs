//! Where the tokens of a session are: its counters, and the last call that was measured.

use std::collections::BTreeMap;

use super::{Applied, CallId, Category, Compaction, Seq, TokenBasis, TokenCount, usage::Estimate};

pub use super::occupancy::{Occupant, Share};

/// Tokens, and the parts that have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Tokens as they were estimated.
    pub tokens: i64,
    /// Parts.
    pub parts: u32,
}

/// What the live transcript is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Messages.
    pub messages: u32,
    /// What they cost beside their parts.
    pub overhead: i64,
    /// Text of users.
    pub user: Held,
    /// Text of the model.
    pub assistant: Held,
    /// Reasoning.
    pub reasoning: Held,
    /// Tool calls.
    pub tool_calls: Held,
    /// Tool results, pruned ones as their placeholder.
    pub tool_results: Held,
    /// Images and files.
    pub media: Held,
    /// Summaries.
    pub summary: Held,
    /// Pinned messages.
    pub pinned: Held,
    /// What was pruned: tokens that it saves, and results. No part of the size.
    pub pruned: Held,
}

impl Ledger {
    /// What one category holds.
    pub fn held(&self, category: Category) -> Held {
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

    /// The same without tokens that a model is not sent, by category.
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

/// What a transcript holds of the parts whose size depends on the model that is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelDependent {
    /// Media, or outputs that are kept as blobs, which may be media.
    pub media: bool,
    /// Reasoning.
    pub reasoning: bool,
    /// Items of a provider's own.
    pub items: bool,
}

/// The last call of a session's model that its provider reported on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// Model reference.
    pub model: String,
    /// The version of the context that its prompt was made from.
    pub version: i64,
    /// Its prompt, as reported.
    pub input: u32,
    /// Its answer as later prompts hold it: as reported, less the reasoning that the provider does
    /// not get back, or by its estimate where that is closer.
    pub output: u32,
    /// The estimate of that prompt and that answer.
    pub estimated_at_anchor: i64,
    /// How much of the prompt the provider's cache holds; 0 once it will have forgotten it.
    pub cached: u32,
    /// What was predicted for the prompt; 0 if another one than what was predicted is measured.
    pub estimated: u32,
    /// How.
    pub basis: TokenBasis,
}

impl Anchor {
    /// Whether it measures the prompt that was predicted.
    pub fn has_prediction(&self) -> bool {
        self.estimated > 0
    }
}

/// What a prune cleared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PruneReport {
    /// The calls whose results were cleared, oldest first.
    pub calls: Vec<CallId>,
    /// The tools they came from, each once.
    pub tools: Vec<String>,
    /// Tokens saved.
    pub saved: u32,
    /// Cached tokens that the provider bills again.
    pub rebilled: u32,
    /// The seq of the event that describes it. `None` means nothing was cleared, or it is only
    /// looked at.
    pub at: Option<Seq>,
}

/// What came back of a prune.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restored {
    /// The seq of the prune.
    pub pruned_at: Seq,
    /// The calls whose results are back, oldest first.
    pub calls: Vec<CallId>,
    /// Tokens that costs.
    pub tokens: u32,
}

/// What was done to make a prompt fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrepareReport {
    /// Size before anything was done.
    pub before: TokenCount,
    /// Size after pruning.
    pub pruned: TokenCount,
    /// Size after compaction.
    pub compacted: TokenCount,
    /// What was pruned. `None` means nothing.
    pub prune: Option<PruneReport>,
    /// The compaction. `None` means none was needed.
    pub compaction: Option<Box<Compaction>>,
    /// The queued messages that were taken first.
    pub applied: Vec<Applied>,
}

/// What was made of the report of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The prediction beside the report. `None` means it is not known which prompt it was.
    pub estimate: Option<Estimate>,
    /// Size of the next prompt.
    pub size: TokenCount,
}
