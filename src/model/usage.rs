//! Tokens: predicted sizes with their basis, and what providers reported.

/// How a token number was obtained, from the surest to the least sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenBasis {
    /// Reported by the provider.
    Actual,
    /// Counted, then corrected by a learnt ratio.
    Calibrated,
    /// Counted with the model's own vocabulary and template.
    Tokenizer,
    /// From the number of characters, with a related vocabulary, or partly for another model.
    Heuristic,
}

/// A number of tokens and how far to trust it. Triggers compare `tokens + margin`, displays show
/// `tokens`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenCount {
    /// The number itself.
    pub tokens: u32,
    /// How it was obtained.
    pub basis: TokenBasis,
    /// The true number is expected within this distance, in tokens.
    pub margin: u32,
    /// Which estimator counted; empty when the provider did.
    pub estimator: String,
}

impl TokenCount {
    /// What triggers compare: the number, and as much as it may be more.
    pub fn at_most(&self) -> u32 {
        self.tokens.saturating_add(self.margin)
    }
}

/// A prediction beside what the provider reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Predicted prompt size in tokens.
    pub estimated: u32,
    /// Reported prompt size in tokens.
    pub actual: u32,
    /// How the prediction was obtained.
    pub basis: TokenBasis,
}

impl Estimate {
    /// By how many tokens the prediction was too large; negative: too small.
    pub fn error(self) -> i64 {
        i64::from(self.estimated) - i64::from(self.actual)
    }

    /// The same as a share of what was reported; 0 where that is nothing.
    pub fn error_ratio(self) -> f64 {
        if self.actual == 0 {
            0.0
        } else {
            self.error() as f64 / f64::from(self.actual)
        }
    }
}

/// What a piece of the context window is spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Text of user messages.
    User,
    /// Text of assistant messages and refusals.
    Assistant,
    /// Reasoning.
    Reasoning,
    /// Tool calls with their arguments.
    ToolCalls,
    /// Tool results.
    ToolResults,
    /// Images and files.
    Media,
    /// Summaries of what was compacted.
    Summary,
    /// Messages that compactions leave alone.
    Pinned,
}

/// The size of one stored part, as one estimator saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Tokens.
    pub tokens: u32,
    /// Where they are counted.
    pub category: Category,
}

/// Tokens of ONE model call as the provider reported them; never cumulative.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Whole prompt, cached tokens included.
    pub input: u32,
    /// Whole answer, reasoning and tool calls included.
    pub output: u32,
    /// Part of `output` spent on reasoning.
    pub reasoning: u32,
    /// Part of `input` read from the provider's cache.
    pub cache_read: u32,
    /// Part of `input` written to the provider's cache.
    pub cache_write: u32,
    /// Calls of the provider's own tools.
    pub provider_tool_calls: u32,
    /// The provider's own usage object as JSON, unchanged; empty when there is none.
    pub provider_json: String,
}

/// Sums over calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageTotals {
    /// Calls added up, those without reported usage included.
    pub calls: i64,
    /// Sum of input tokens.
    pub input: i64,
    /// Sum of output tokens.
    pub output: i64,
    /// Sum of reasoning tokens.
    pub reasoning: i64,
    /// Sum of cached tokens read.
    pub cache_read: i64,
    /// Sum of cached tokens written.
    pub cache_write: i64,
}

impl UsageTotals {
    /// Input plus output.
    pub fn total(&self) -> i64 {
        self.input.saturating_add(self.output)
    }

    /// One call more; a call whose usage is unknown counts as a call only.
    #[must_use]
    pub fn plus(self, usage: Option<&Usage>) -> Self {
        let empty = Usage::default();
        let usage = usage.unwrap_or(&empty);
        Self {
            calls: self.calls + 1,
            input: self.input + i64::from(usage.input),
            output: self.output + i64::from(usage.output),
            reasoning: self.reasoning + i64::from(usage.reasoning),
            cache_read: self.cache_read + i64::from(usage.cache_read),
            cache_write: self.cache_write + i64::from(usage.cache_write),
        }
    }
}

/// What a model call was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsagePurpose {
    /// A step of a turn.
    Turn,
    /// A summary written for a compaction.
    Compaction,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_add_up_and_one_without_usage_counts_as_a_call() {
        let usage = Usage {
            input: 5,
            output: 3,
            reasoning: 2,
            cache_read: 4,
            cache_write: 1,
            ..Usage::default()
        };
        let twice = UsageTotals::default()
            .plus(Some(&usage))
            .plus(None)
            .plus(Some(&usage));
        let expected = UsageTotals {
            calls: 3,
            input: 10,
            output: 6,
            reasoning: 4,
            cache_read: 8,
            cache_write: 2,
        };
        assert_eq!(
            (twice, twice.total()),
            (expected, 16),
            "reasoning is part of the output, the cache of the input"
        );
    }
}
