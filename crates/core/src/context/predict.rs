//! Predicts how many tokens a provider will report for a prompt, with the basis and the margin of the prediction.

use super::template::{Template, Term, Terms};
use crate::model::{Calibration, TokenBasis, TokenCount};

#[cfg(test)]
mod tests;

/// Minimum margin of a prediction in tokens, however short the prompt.
const MIN_MARGIN: u32 = 3;

/// Minimum margin in percent if the vocabulary is not the model's own (feature row S6).
const FOREIGN_MARGIN_PERCENT: u32 = 10;

/// Number of calls after which the learned ratio is used.
const TRUSTED_CALLS: u32 = 3;

/// Maximum margin of a calibrated prediction, in percent.
const CALIBRATED_MARGIN_PERCENT: u32 = 5;

impl Template {
    /// The size of a prompt of which no part was measured yet.
    pub fn count(&self, terms: &Terms) -> TokenCount {
        self.estimate(self.costs.of(terms))
    }

    /// The size of a prompt after an earlier prompt of the same conversation was measured: the common part is known,
    /// and only the difference is estimated.
    pub fn anchored(&self, reported: u32, before: &Terms, now: &Terms) -> TokenCount {
        if before == now {
            return reported_count(reported);
        }
        let before = self.costs.of(before);
        let now = self.costs.of(now);
        let moved = self.estimate(now.abs_diff(before));
        let tokens = reported.saturating_add(now).saturating_sub(before);
        TokenCount { tokens, ..moved }
    }

    /// A count by this template, with its basis and margin.
    pub fn estimate(&self, tokens: u32) -> TokenCount {
        let exact = self.counts_exactly();
        let percent = if exact { self.margin_percent } else { self.margin_percent.max(FOREIGN_MARGIN_PERCENT) };
        let basis = if exact { TokenBasis::Tokenizer } else { TokenBasis::Heuristic };
        TokenCount { tokens, basis, margin: share(tokens, percent).max(MIN_MARGIN), estimator: self.estimator() }
    }

    /// Whether texts are counted with the model's own vocabulary.
    pub fn counts_exactly(&self) -> bool {
        self.own_vocabulary && self.vocabulary.counter().is_some()
    }

    /// Tokens per unit of a term.
    pub fn cost(&self, term: Term) -> f64 {
        self.costs.get(term)
    }
}

/// A count reported by the provider: exact.
pub fn reported_count(tokens: u32) -> TokenCount {
    TokenCount { tokens, basis: TokenBasis::Actual, margin: 0, estimator: String::new() }
}

impl Calibration {
    /// Applies the learned ratio to a count. Reported counts are not changed, and no count is changed before enough
    /// calls were made.
    #[must_use]
    pub fn apply(self, count: TokenCount) -> TokenCount {
        if count.basis == TokenBasis::Actual || self.calls < TRUSTED_CALLS {
            return count;
        }
        let ratio = self.clamped().ratio;
        // The cast saturates at both ends.
        let tokens = (f64::from(count.tokens) * ratio).round() as u32;
        let margin = count.margin.min(share(tokens, CALIBRATED_MARGIN_PERCENT)).max(MIN_MARGIN);
        TokenCount { tokens, basis: TokenBasis::Calibrated, margin, estimator: count.estimator }
    }
}

/// A percentage of the tokens, rounded up.
fn share(tokens: u32, percent: u32) -> u32 {
    u32::try_from((u64::from(tokens) * u64::from(percent)).div_ceil(100)).unwrap_or(u32::MAX)
}
