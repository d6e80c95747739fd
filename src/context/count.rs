//! What a prompt is made of in tokens: the whole, its categories, and single messages.

use std::collections::BTreeMap;

use super::{
    estimate,
    predict::reported_count,
    size,
    template::{Template, Term, Terms},
};
use crate::model::{
    Arrangement, Calibration, Category, Content, Generation, Message, Role, TokenBasis, TokenCount,
    Tool, ToolCategory,
};

#[cfg(test)]
mod tests;

/// What tokens of a prompt are spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Share {
    /// The system prompt, and what every prompt costs.
    System,
    /// Definitions of tools.
    Tools(ToolCategory),
    /// What is said.
    Said(Category),
}

/// The tokens of one share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// On what.
    pub on: Share,
    /// Tokens; those of all shares add up to the total.
    pub tokens: u32,
    /// How many things that are: tools, parts, or the system prompt.
    pub count: u32,
}

/// A prompt that was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// All of it.
    pub total: TokenCount,
    /// What it is made of.
    pub shares: Vec<Spent>,
    /// The messages that were asked about, each with its overhead.
    pub messages: Vec<TokenCount>,
}

/// What is to be counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Counting {
    /// How the model's family writes it.
    pub template: &'static Template,
    /// What was learnt from the model's calls.
    pub calibration: Calibration,
    /// System prompt with the pinned blocks; empty: none.
    pub system: String,
    /// The tool definitions that are sent.
    pub tools: Vec<Tool>,
    /// How the model is to answer.
    pub generation: Generation,
    /// The conversation.
    pub messages: Vec<Message>,
    /// How many of them, at the end, are counted one by one too.
    pub single: usize,
    /// The size of what stands before those, where a call measured it.
    pub measured: Option<TokenCount>,
    /// What the order of the request adds to all messages, and what of that comes with those at
    /// the end.
    pub arranged: (Arrangement, Arrangement),
}

impl Counting {
    /// Counts it; what the provider counted is the total. Takes time in proportion to the text.
    pub fn count(&self, reported: Option<u32>) -> Counts {
        let Self {
            template,
            calibration,
            system,
            tools,
            generation,
            messages,
            single,
            measured,
            arranged,
        } = self;
        let (all, last) = arranged;
        let mut whole = template.terms_of(system, tools, messages, generation);
        whole.add(&template.terms_of_arrangement(all));
        let first = messages.len().saturating_sub(*single);
        let one = |message: &Message| {
            calibration.apply(template.count(&template.terms_of_message(message)))
        };
        let single: Vec<TokenCount> = messages[first..].iter().map(one).collect();
        let total = match (reported, measured) {
            (Some(reported), _) => reported_count(reported),
            (None, Some(measured)) => {
                let size = single.iter().fold(self.framed(measured, first), sum);
                let between = template
                    .costs
                    .value(&template.terms_of_arrangement(last))
                    .round() as i64;
                TokenCount {
                    tokens: size::tokens(i64::from(size.tokens) + between),
                    ..size
                }
            }
            (None, None) => calibration.apply(template.count(&whole)),
        };
        Counts {
            shares: self.shares(&whole, total.tokens),
            total,
            messages: single,
        }
    }

    /// What was measured, as it stands before what is added: the answer at its end gets the frame
    /// of a message. Where something follows it already, it has that.
    fn framed(&self, measured: &TokenCount, first: usize) -> TokenCount {
        let last = self.messages[..first]
            .last()
            .filter(|_| first < self.messages.len());
        if measured.basis != TokenBasis::Actual
            || last.is_none_or(|last| last.role != Role::Assistant)
        {
            return measured.clone();
        }
        let frame = self
            .template
            .costs
            .of(&self.template.terms_of_frame(Role::Assistant, 0));
        TokenCount {
            tokens: measured.tokens.saturating_add(frame),
            ..measured.clone()
        }
    }

    /// The total, divided among what it is spent on.
    fn shares(&self, whole: &Terms, total: u32) -> Vec<Spent> {
        let mut spent: BTreeMap<Share, (f64, u32)> = BTreeMap::new();
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
        spend(Share::System, &outside, u32::from(!self.system.is_empty()));
        let told = if whole.get(Term::Tools) > 0.0 {
            &self.tools[..]
        } else {
            &[]
        };
        for tool in told {
            let terms = self.template.terms_of_tool(tool);
            rest.subtract(&terms);
            spend(Share::Tools(tool.category), &terms, 1);
        }
        for message in &self.messages {
            let mut overhead = self.template.terms_of_message(message);
            rest.subtract(&overhead);
            for stored in &message.parts {
                let terms = self.template.terms_of_part(&stored.part, message.role);
                overhead.subtract(&terms);
                spend(
                    Share::Said(category(message, &stored.part.content)),
                    &terms,
                    1,
                );
            }
            let of_role = message
                .parts
                .first()
                .map(|first| category(message, &first.part.content));
            spend(Share::Said(of_role.unwrap_or(Category::User)), &overhead, 0);
        }
        // What is left belongs to all tools and calls together.
        let on = told
            .first()
            .map_or(Share::System, |tool| Share::Tools(tool.category));
        spend(on, &rest, 0);
        let tokens = apportion(
            &spent
                .values()
                .map(|(tokens, _)| *tokens)
                .collect::<Vec<_>>(),
            total,
        );
        spent
            .into_iter()
            .zip(tokens)
            .map(|((on, (_, count)), tokens)| Spent { on, tokens, count })
            .collect()
    }
}

/// Two counts together, no surer than the less sure one.
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

/// Where a part is counted.
fn category(message: &Message, content: &Content) -> Category {
    if message.is_summary {
        return Category::Summary;
    }
    if message.pinned {
        return Category::Pinned;
    }
    estimate::category(content, message.role)
}

/// Divides a total in proportion to these weights, so that the parts add up to it; a weight below
/// nothing gets nothing.
fn apportion(weights: &[f64], total: u32) -> Vec<u32> {
    let sum: f64 = weights.iter().map(|weight| weight.max(0.0)).sum();
    let mut given = Vec::with_capacity(weights.len());
    let mut before = 0.0;
    let mut so_far = 0;
    for weight in weights {
        before += weight.max(0.0);
        // Rounding the running sum, and not each part, loses nothing.
        let until = if sum > 0.0 {
            (f64::from(total) * (before / sum))
                .round()
                .min(f64::from(total)) as u32
        } else {
            0
        };
        given.push(until - so_far);
        so_far = until;
    }
    if let Some(last) = given.last_mut() {
        *last += total - so_far;
    }
    given
}
