//! The names of the vocabularies.

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
}
