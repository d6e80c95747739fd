//! Counts the tokens of a prompt: the total, by category, and by message.

use std::collections::BTreeMap;

use super::{
    estimate,
    predict::reported_count,
    size,
    template::{Template, Term, Terms},
};
use crate::model::{
    Calibration, Category, Content, Generation, Message, RequestDiff, Role, TokenBasis, TokenCount, Tool, ToolCategory,
};

#[cfg(test)]
mod tests;

/// A category of the tokens of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenCategory {
    /// The system prompt, and the fixed cost of every prompt.
    System,
    /// Tool definitions.
    Tools(ToolCategory),
    /// Messages.
    Messages(Category),
}

/// The tokens of one category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CategoryTokens {
    pub category: TokenCategory,
    /// Tokens. The sum over all categories is the total.
    pub tokens: u32,
    /// Number of items: tools, parts, or 1 for the system prompt.
    pub count: u32,
}

/// The result of counting a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    pub total: TokenCount,
    /// The total by category.
    pub shares: Vec<CategoryTokens>,
    /// The messages that were requested individually, each with its overhead.
    pub messages: Vec<TokenCount>,
}

/// The input of a count.
#[derive(Debug, Clone, PartialEq)]
pub struct CountInput {
    /// The template of the model's family.
    pub template: &'static Template,
    /// The calibration of the model.
    pub calibration: Calibration,
    /// System prompt with the pinned blocks; empty if there is none.
    pub system: String,
    /// The tools that are sent.
    pub tools: Vec<Tool>,
    pub generation: Generation,
    pub messages: Vec<Message>,
    /// Number of messages at the end that are also counted individually.
    pub single: usize,
    /// The measured size of everything before those messages, if known.
    pub measured: Option<TokenCount>,
    /// Tokens that the request format adds because it arranges messages differently: for all messages, and for the
    /// individually counted messages only.
    pub arranged: (RequestDiff, RequestDiff),
}

impl CountInput {
    /// Counts the prompt. The total is `reported`, the provider's own count, if given. Takes time linear in the size of
    /// the text.
    pub fn count(&self, reported: Option<u32>) -> Counts {
        let Self { template, calibration, system, tools, generation, messages, single, measured, arranged } = self;
        let (all, last) = arranged;
        let mut whole = template.terms_of(system, tools, messages, generation);
        whole.add(&template.terms_of_arrangement(all));
        let first = messages.len().saturating_sub(*single);
        let one = |message: &Message| calibration.apply(template.count(&template.terms_of_message(message)));
        let single: Vec<TokenCount> = messages[first..].iter().map(one).collect();
        let total = match (reported, measured) {
            (Some(reported), _) => reported_count(reported),
            (None, Some(measured)) => {
                let size = single.iter().fold(self.framed(measured, first), sum);
                let between = template.costs.value(&template.terms_of_arrangement(last)).round() as i64;
                TokenCount { tokens: size::clamp_tokens(i64::from(size.tokens) + between), ..size }
            }
            (None, None) => calibration.apply(template.count(&whole)),
        };
        Counts { shares: self.shares(&whole, total.tokens), total, messages: single }
    }

    /// The measured size as part of a longer prompt. A response at the end of the measured messages gets the overhead
    /// of a message, which the measured size does not include.
    fn framed(&self, measured: &TokenCount, first: usize) -> TokenCount {
        let last = self.messages[..first].last().filter(|_| first < self.messages.len());
        if measured.basis != TokenBasis::Actual || last.is_none_or(|last| last.role != Role::Assistant) {
            return measured.clone();
        }
        let frame = self.template.costs.of(&self.template.terms_of_frame(Role::Assistant, 0));
        TokenCount { tokens: measured.tokens.saturating_add(frame), ..measured.clone() }
    }

    /// Divides the total among the categories.
    fn shares(&self, whole: &Terms, total: u32) -> Vec<CategoryTokens> {
        let mut spent: BTreeMap<TokenCategory, (f64, u32)> = BTreeMap::new();
        let mut spend = |on, terms: &Terms, count| {
            let (tokens, things) = spent.entry(on).or_default();
            *tokens += self.template.costs.value(terms);
            *things += count;
        };
        let mut rest = *whole;
        let mut outside = self.template.terms_of_system(&self.system);
        outside.set(Term::Prompt, whole.get(Term::Prompt));
        outside.set(Term::Thinking, whole.get(Term::Thinking));
        outside.set(Term::ThinkingRequested, whole.get(Term::ThinkingRequested));
        rest.subtract(&outside);
        spend(TokenCategory::System, &outside, u32::from(!self.system.is_empty()));
        let told = if whole.get(Term::Tools) > 0.0 { &self.tools[..] } else { &[] };
        for tool in told {
            let terms = self.template.terms_of_tool(tool);
            rest.subtract(&terms);
            spend(TokenCategory::Tools(tool.category), &terms, 1);
        }
        for message in &self.messages {
            let mut overhead = self.template.terms_of_message(message);
            rest.subtract(&overhead);
            for stored in &message.parts {
                let terms = self.template.terms_of_part(&stored.part, message.role);
                overhead.subtract(&terms);
                spend(TokenCategory::Messages(category(message, &stored.part.content)), &terms, 1);
            }
            let of_role = message.parts.first().map(|first| category(message, &first.part.content));
            spend(TokenCategory::Messages(of_role.unwrap_or(Category::User)), &overhead, 0);
        }
        // The rest belongs to all tools and calls together.
        let on = told.first().map_or(TokenCategory::System, |tool| TokenCategory::Tools(tool.category));
        spend(on, &rest, 0);
        let tokens = apportion(&spent.values().map(|(tokens, _)| *tokens).collect::<Vec<_>>(), total);
        spent
            .into_iter()
            .zip(tokens)
            .map(|((on, (_, count)), tokens)| CategoryTokens { category: on, tokens, count })
            .collect()
    }
}

/// The sum of two counts, with the less accurate basis of the two.
fn sum(one: TokenCount, other: &TokenCount) -> TokenCount {
    let (basis, estimator) = match one.basis >= other.basis {
        true => (one.basis, one.estimator),
        false => (other.basis, other.estimator.clone()),
    };
    TokenCount {
        tokens: one.tokens.saturating_add(other.tokens),
        basis,
        margin: one.margin.saturating_add(other.margin),
        estimator,
    }
}

/// The category of a part.
fn category(message: &Message, content: &Content) -> Category {
    if message.is_summary {
        return Category::Summary;
    }
    if message.pinned {
        return Category::Pinned;
    }
    estimate::category(content, message.role)
}

/// Divides a total in proportion to the weights; the parts add up to the total. Negative weights count as zero.
fn apportion(weights: &[f64], total: u32) -> Vec<u32> {
    let sum: f64 = weights.iter().map(|weight| weight.max(0.0)).sum();
    let mut given = Vec::with_capacity(weights.len());
    let mut before = 0.0;
    let mut so_far = 0;
    for weight in weights {
        before += weight.max(0.0);
        // Rounding the running sum instead of each part keeps the total exact.
        let until =
            if sum > 0.0 { (f64::from(total) * (before / sum)).round().min(f64::from(total)) as u32 } else { 0 };
        given.push(until - so_far);
        so_far = until;
    }
    if let Some(last) = given.last_mut() {
        *last += total - so_far;
    }
    given
}
