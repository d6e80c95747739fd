//! OpenAI's vocabularies.

use std::fmt;

use super::Counter;

/// GPT-4o and later.
pub(super) static O200K: OpenAi = OpenAi { name: "o200k", tokenizer: bpe_openai::o200k_base };

/// GPT-4 and GPT-3.5.
pub(super) static CL100K: OpenAi = OpenAi { name: "cl100k", tokenizer: bpe_openai::cl100k_base };

/// One vocabulary. It is loaded when it first counts.
pub(super) struct OpenAi {
    name: &'static str,
    tokenizer: fn() -> &'static bpe_openai::Tokenizer,
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAi").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Counter for OpenAi {
    fn name(&self) -> &'static str {
        self.name
    }

    fn text(&self, text: &str) -> u32 {
        u32::try_from((self.tokenizer)().count(text)).unwrap_or(u32::MAX)
    }
}
