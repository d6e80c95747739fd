//! Token counts: predicted sizes with their basis, and usage reported by providers.

/// How a token count was obtained, from the most to the least accurate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenBasis {
    Actual,
    /// Counted, then corrected by a learned ratio.
    Calibrated,
    /// Counted with the model's own vocabulary and template.
    Tokenizer,
    /// Estimated from the number of characters, counted with a related vocabulary, or partly counted for another model.
    Heuristic,
}

/// A token count with its accuracy. Triggers compare `tokens + margin`; user interfaces show `tokens`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenCount {
    pub tokens: u32,
    pub basis: TokenBasis,
    /// The true count is expected to differ by at most this many tokens.
    pub margin: u32,
    /// Name of the estimator; empty if the provider counted.
    pub estimator: String,
}

impl TokenCount {
    /// The upper bound that triggers compare: `tokens + margin`.
    pub fn at_most(&self) -> u32 {
        self.tokens.saturating_add(self.margin)
    }
}

/// A predicted prompt size with the one reported by the provider.
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
    /// Prediction minus reported size, in tokens.
    pub fn error(self) -> i64 {
        i64::from(self.estimated) - i64::from(self.actual)
    }

    /// [`Self::error`] relative to the reported size; 0 if that is 0.
    pub fn error_ratio(self) -> f64 {
        if self.actual == 0 { 0.0 } else { self.error() as f64 / f64::from(self.actual) }
    }
}

/// A category of the tokens in the context window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Text of user messages.
    User,
    /// Text of assistant messages, including refusals.
    Assistant,
    Reasoning,
    /// Tool calls with their arguments.
    ToolCalls,
    ToolResults,
    /// Images and files.
    Media,
    /// Summaries of compacted messages.
    Summary,
    /// Pinned messages.
    Pinned,
}

/// The size of one stored part according to one estimator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartSize {
    pub tokens: u32,
    pub category: Category,
}

/// Tokens of ONE model call as reported by the provider; never cumulative.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// The whole prompt, including cached tokens.
    pub input: u32,
    /// The whole response, including reasoning and tool calls.
    pub output: u32,
    /// Part of `output` used for reasoning.
    pub reasoning: u32,
    /// Part of `input` read from the provider's cache.
    pub cache_read: u32,
    /// Part of `input` written to the provider's cache.
    pub cache_write: u32,
    /// Number of calls of the provider's own tools.
    pub provider_tool_calls: u32,
    /// The provider's own usage object as JSON, unchanged; empty if there is none.
    pub provider_json: String,
}

/// Totals over several calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageTotals {
    /// Number of calls, including those without reported usage.
    pub calls: i64,
    pub input: i64,
    pub output: i64,
    pub reasoning: i64,
    pub cache_read: i64,
    pub cache_write: i64,
}

impl UsageTotals {
    /// Input plus output tokens.
    pub fn total(&self) -> i64 {
        self.input.saturating_add(self.output)
    }

    /// Adds one call. A call without reported usage only increments `calls`.
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
    Turn,
    Compaction,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_add_up_and_one_without_usage_counts_as_a_call() {
        let usage = Usage { input: 5, output: 3, reasoning: 2, cache_read: 4, cache_write: 1, ..Usage::default() };
        let twice = UsageTotals::default().plus(Some(&usage)).plus(None).plus(Some(&usage));
        let expected = UsageTotals { calls: 3, input: 10, output: 6, reasoning: 4, cache_read: 8, cache_write: 2 };
        assert_eq!((twice, twice.total()), (expected, 16), "reasoning is part of the output, the cache of the input");
    }
}
