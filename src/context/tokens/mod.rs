//! Counts the tokens of a text. What stands around texts in a prompt is the templates' affair.
//!
//! Every counter takes linear time on every text, never fails, and takes special tokens in a text
//! for the characters they are.

use std::fmt;

use crate::model::Tally;

mod bpe;
mod hash;
mod openai;
#[cfg(feature = "vocabularies")]
mod others;
mod packed;
mod pieces;
mod trie;
mod words;

#[cfg(test)]
mod tests;

/// Counts the tokens of texts.
pub trait Counter: fmt::Debug + Send + Sync {
    /// The name under which its counts are stored.
    fn name(&self) -> &'static str;

    /// Tokens of a text.
    fn text(&self, text: &str) -> u32;

    /// Whether its vocabulary is in memory; else the first text takes up to a fifth of a second.
    fn is_loaded(&self) -> bool;
}

/// Guesses from the number of characters, at once and without a vocabulary (feature row A11).
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

/// The vocabularies that can be counted with. Loading one takes up to a fifth of a second, once, at
/// the first text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vocabulary {
    /// OpenAI's since GPT-4o.
    O200k,
    /// OpenAI's before.
    Cl100k,
    /// Mistral's since 2024.
    Tekken,
    /// Mistral's and Mixtral's before.
    MistralV1,
    /// Qwen's.
    Qwen,
    /// DeepSeek's.
    DeepSeek,
    /// Gemma's, which is Gemini's too.
    Gemma,
    /// Llama's since version 3.
    Llama3,
    /// Llama's before.
    Llama2,
}

impl Vocabulary {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::O200k,
        Self::Cl100k,
        Self::Tekken,
        Self::MistralV1,
        Self::Qwen,
        Self::DeepSeek,
        Self::Gemma,
        Self::Llama3,
        Self::Llama2,
    ];

    /// Its counter. `None` means it is not in this build.
    pub fn counter(self) -> Option<&'static dyn Counter> {
        match self {
            Self::O200k => Some(&openai::O200K),
            Self::Cl100k => Some(&openai::CL100K),
            Self::Tekken
            | Self::MistralV1
            | Self::Qwen
            | Self::DeepSeek
            | Self::Gemma
            | Self::Llama3
            | Self::Llama2 => self.behind_feature(),
        }
    }

    /// Its counter, or that of o200k where it is not in this build.
    pub fn counter_or_o200k(self) -> &'static dyn Counter {
        self.counter().unwrap_or(&openai::O200K)
    }

    #[cfg(feature = "vocabularies")]
    fn behind_feature(self) -> Option<&'static dyn Counter> {
        others::counter(self)
    }

    #[cfg(not(feature = "vocabularies"))]
    fn behind_feature(self) -> Option<&'static dyn Counter> {
        None
    }
}
