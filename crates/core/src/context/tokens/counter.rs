//! The trait of token counters, and the heuristic that needs no vocabulary.

use std::fmt;

use crate::model::Tally;

/// Counts the tokens of texts.
pub trait Counter: fmt::Debug + Send + Sync {
    /// The name that is stored with its counts.
    fn name(&self) -> &'static str;

    /// The number of tokens of a text.
    fn text(&self, text: &str) -> u32;

    /// Whether the vocabulary is in memory. If not, the first text takes up to a fifth of a second.
    fn is_loaded(&self) -> bool;
}

/// Estimates from the number of characters, without a vocabulary (feature row A11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heuristic;

impl Counter for Heuristic {
    fn name(&self) -> &'static str {
        "heuristic"
    }

    fn text(&self, text: &str) -> u32 {
        Tally::default().plus(text).tokens()
    }

    fn is_loaded(&self) -> bool {
        true
    }
}
