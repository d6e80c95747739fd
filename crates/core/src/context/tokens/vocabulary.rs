//! The supported vocabularies.

/// A vocabulary. Loading it takes up to a fifth of a second, once, at the first text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vocabulary {
    /// OpenAI, since GPT-4o.
    O200k,
    /// OpenAI, before GPT-4o.
    Cl100k,
    /// Mistral, since 2024.
    Tekken,
    /// Mistral and Mixtral, before 2024.
    MistralV1,
    Qwen,
    DeepSeek,
    /// Gemma and Gemini.
    Gemma,
    /// Llama, since version 3.
    Llama3,
    /// Llama, before version 3.
    Llama2,
}

impl Vocabulary {
    /// All vocabularies.
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
