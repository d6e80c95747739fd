//! OpenAI's vocabularies.

use std::{
    cell::RefCell,
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    thread::LocalKey,
};

use super::{Counter, pieces::Pieces, words::Words};

thread_local! {
    static O200K_PIECES: RefCell<Pieces> = RefCell::new(Pieces::new());
    static CL100K_PIECES: RefCell<Pieces> = RefCell::new(Pieces::new());
}

/// GPT-4o and later.
pub(super) static O200K: OpenAi = OpenAi {
    name: "o200k",
    tokenizer: bpe_openai::o200k_base,
    words: Words::ByCase,
    pieces: &O200K_PIECES,
    loaded: AtomicBool::new(false),
};

/// GPT-4 and GPT-3.5.
pub(super) static CL100K: OpenAi = OpenAi {
    name: "cl100k",
    tokenizer: bpe_openai::cl100k_base,
    words: Words::ByLetters,
    pieces: &CL100K_PIECES,
    loaded: AtomicBool::new(false),
};

/// One vocabulary. It is loaded when it first counts.
pub(super) struct OpenAi {
    name: &'static str,
    tokenizer: fn() -> &'static bpe_openai::Tokenizer,
    words: Words,
    pieces: &'static LocalKey<RefCell<Pieces>>,
    loaded: AtomicBool,
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAi")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Counter for OpenAi {
    fn name(&self) -> &'static str {
        self.name
    }

    /// The text is cut into the pieces of the vocabulary's pattern, from which each is counted by
    /// itself. No piece depends on what stands before it.
    fn text(&self, text: &str) -> u32 {
        let tokenizer = (self.tokenizer)();
        self.loaded.store(true, Ordering::Relaxed);
        let tokens = self.pieces.with_borrow_mut(|pieces| {
            let mut rest = text;
            let mut tokens = 0;
            while !rest.is_empty() {
                let by_pattern = || tokenizer.split(rest).next().map_or(rest.len(), str::len);
                let (piece, after) =
                    rest.split_at(self.words.end(rest.as_bytes()).unwrap_or_else(by_pattern));
                tokens += pieces.tokens(piece.as_bytes(), |bytes| tokenizer.bpe.count(bytes));
                rest = after;
            }
            tokens
        });
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn fast_splitting_equals_the_regex_pattern(text in "([a-cA-C1'é日. \n\r\t(/]|'s|'LL|  |\\PC){0,40}") {
            for vocabulary in [&O200K, &CL100K] {
                let expected = (vocabulary.tokenizer)().count(text.as_str());
                prop_assert_eq!(vocabulary.text(&text) as usize, expected, "{}: {:?}", vocabulary.name, text);
            }
        }
    }
}
