//! Counts the tokens of a text. The tokens around texts in a prompt are counted by the templates.
//!
//! Every counter takes linear time on every text, never fails, and treats special tokens in a text as ordinary
//! characters.

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
    /// The counter of the vocabulary. Returns `None` if this build does not include it.
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
            | Self::Llama2 => self.optional_counter(),
        }
    }

    /// The counter of the vocabulary, or that of o200k if this build does not include it.
    pub fn counter_or_o200k(self) -> &'static dyn Counter {
        self.counter().unwrap_or(&openai::O200K)
    }

    #[cfg(feature = "vocabularies")]
    fn optional_counter(self) -> Option<&'static dyn Counter> {
        others::counter(self)
    }

    #[cfg(not(feature = "vocabularies"))]
    fn optional_counter(self) -> Option<&'static dyn Counter> {
        None
    }
}
