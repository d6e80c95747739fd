//! Counts the tokens of a text. What stands around texts in a prompt is the templates' affair.
//!
//! Every counter takes linear time on every text, never fails, and takes special tokens in a text
//! for the characters they are.

mod bpe;
mod counter;
mod hash;
mod openai;
#[cfg(feature = "vocabularies")]
mod others;
mod packed;
mod pieces;
mod trie;
mod vocabulary;
mod words;

#[cfg(test)]
mod tests;

pub use counter::{Counter, Heuristic};
pub use vocabulary::Vocabulary;

impl Vocabulary {
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
