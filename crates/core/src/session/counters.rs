//! The token counters of a session's context, and changes of them.

use std::ops::{Add, Neg};

use crate::model::Category;

/// A category of the counters. The order is that of the arrays in [`TokenCounters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// Text of user messages.
    User,
    /// Text of assistant messages.
    Assistant,
    Reasoning,
    ToolCalls,
    ToolResults,
    /// Images and files.
    Media,
    Summary,
    /// Pinned messages.
    Pinned,
    /// Pruned content; not part of the size.
    Pruned,
}

impl From<Category> for Counter {
    fn from(category: Category) -> Self {
        match category {
            Category::User => Self::User,
            Category::Assistant => Self::Assistant,
            Category::Reasoning => Self::Reasoning,
            Category::ToolCalls => Self::ToolCalls,
            Category::ToolResults => Self::ToolResults,
            Category::Media => Self::Media,
            Category::Summary => Self::Summary,
            Category::Pinned => Self::Pinned,
        }
    }
}

impl Counter {
    fn index(self) -> usize {
        match self {
            Self::User => 0,
            Self::Assistant => 1,
            Self::Reasoning => 2,
            Self::ToolCalls => 3,
            Self::ToolResults => 4,
            Self::Media => 5,
            Self::Summary => 6,
            Self::Pinned => 7,
            Self::Pruned => 8,
        }
    }
}

/// Values of the counters, or a change of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenCounters {
    /// Number of messages.
    pub messages: i32,
    /// Tokens of messages in addition to their parts.
    pub overhead: i64,
    /// Tokens by counter.
    pub tokens: [i64; 9],
    /// Parts by counter.
    pub parts: [i32; 9],
}

impl TokenCounters {
    /// Changes the number of messages and their overhead.
    pub fn messages(&mut self, messages: i32, overhead: i64) {
        self.messages += messages;
        self.overhead += overhead;
    }

    /// Changes one counter.
    pub fn count(&mut self, counter: Counter, parts: i32, tokens: i64) {
        self.tokens[counter.index()] += tokens;
        self.parts[counter.index()] += parts;
    }

    /// Tokens and parts of one counter.
    pub fn of(&self, counter: Counter) -> (i64, i32) {
        let index = counter.index();
        (self.tokens[index], self.parts[index])
    }

    /// The size of the transcript in tokens, without pruned content; for a change, the difference in size.
    pub fn size(&self) -> i64 {
        let pruned = self.tokens[Counter::Pruned.index()];
        self.overhead + self.tokens.iter().sum::<i64>() - pruned
    }
}

impl Add for TokenCounters {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.messages(other.messages, other.overhead);
        for (sum, tokens) in self.tokens.iter_mut().zip(other.tokens) {
            *sum += tokens;
        }
        for (sum, parts) in self.parts.iter_mut().zip(other.parts) {
            *sum += parts;
        }
        self
    }
}

impl Neg for TokenCounters {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            messages: -self.messages,
            overhead: -self.overhead,
            tokens: self.tokens.map(i64::neg),
            parts: self.parts.map(i32::neg),
        }
    }
}
