//! OpenAI's vocabularies.

use std::{cell::RefCell, fmt, sync::OnceLock, thread::LocalKey};

use regex_automata::{Anchored, Input, meta::Regex};

use super::{Counter, bpe::Bpe, packed, pieces::Pieces, words::Words};

thread_local! {
    static O200K_PIECES: RefCell<Pieces> = RefCell::new(Pieces::new());
    static CL100K_PIECES: RefCell<Pieces> = RefCell::new(Pieces::new());
}

/// The vocabulary of GPT-4o and later models.
pub(super) static O200K: OpenAi = OpenAi {
    name: "o200k",
    packed: splintr_vocab_o200k::O200K_BASE_VOCAB_PACKED,
    pattern: concat!(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"|\p{N}{1,3}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"|\s*[\r\n]+",
        r"|\s+$",
    ),
    words: Words::ByCase,
    pieces: &O200K_PIECES,
    loaded: OnceLock::new(),
};

/// The vocabulary of GPT-4 and GPT-3.5.
pub(super) static CL100K: OpenAi = OpenAi {
    name: "cl100k",
    packed: splintr_vocab_cl100k::CL100K_BASE_VOCAB_PACKED,
    pattern: concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"|[^\r\n\p{L}\p{N}]?\p{L}+",
        r"|\p{N}{1,3}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"|\s*[\r\n]+",
        r"|\s+$",
    ),
    words: Words::ByLetters,
    pieces: &CL100K_PIECES,
    loaded: OnceLock::new(),
};

/// A vocabulary. It is loaded when it is first used.
pub(super) struct OpenAi {
    name: &'static str,
    packed: &'static [u8],
    /// The regular expression of a piece of text, without the rule for white space before other text ([`SPACE`]).
    pattern: &'static str,
    words: Words,
    pieces: &'static LocalKey<RefCell<Pieces>>,
    loaded: OnceLock<Loaded>,
}

/// White space before other text is a piece without its last character: `\s+(?!\S)`, without lookahead. The last
/// pattern matches the remaining single character.
const SPACE: [&str; 2] = [r"\s+\s", r"\s+"];

/// The tables of a vocabulary.
struct Loaded {
    bpe: Bpe,
    pattern: Regex,
}

impl Loaded {
    fn new(packed: &'static [u8], pattern: &str) -> Self {
        let tokens: Vec<_> = packed::tokens(packed).collect();
        Self {
            bpe: Bpe::new(&tokens),
            pattern: Regex::new_many(&[pattern, SPACE[0], SPACE[1]]).expect("a fixed pattern"),
        }
    }

    /// The end of the first piece of a text.
    fn end(&self, text: &str) -> usize {
        let Some(found) = self.pattern.find(Input::new(text).anchored(Anchored::Yes)) else {
            return text.len();
        };
        let piece = &text[found.range()];
        let ahead = match found.pattern().as_usize() {
            1 => piece.chars().next_back().map_or(0, char::len_utf8),
            _ => 0,
        };
        piece.len() - ahead
    }
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

    /// The text is split into pieces by the vocabulary's pattern, and each piece is counted separately. No piece
    /// depends on the text before it.
    fn text(&self, text: &str) -> u32 {
        let loaded = self.loaded.get_or_init(|| Loaded::new(self.packed, self.pattern));
        let tokens = self.pieces.with_borrow_mut(|pieces| {
            let mut rest = text;
            let mut tokens = 0;
            while !rest.is_empty() {
                let end = self.words.end(rest.as_bytes());
                let (piece, after) = rest.split_at(end.unwrap_or_else(|| loaded.end(rest)));
                tokens += pieces.tokens(piece.as_bytes(), |bytes| loaded.bpe.count(bytes));
                rest = after;
            }
            tokens
        });
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    fn is_loaded(&self) -> bool {
        self.loaded.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tiktoken_rs::{CoreBPE, cl100k_base_singleton, o200k_base_singleton};

    use super::*;

    /// The vocabularies, their numbers of tokens, and the reference implementations.
    fn vocabularies() -> [(&'static OpenAi, usize, &'static CoreBPE); 2] {
        [(&O200K, 199_998, o200k_base_singleton()), (&CL100K, 100_256, cl100k_base_singleton())]
    }

    #[test]
    fn every_token_of_a_vocabulary_is_counted_as_one() {
        for (vocabulary, size, _) in vocabularies() {
            let tokens: Vec<_> = packed::tokens(vocabulary.packed).collect();
            assert_eq!(tokens.len(), size, "{}", vocabulary.name);
            let bpe = Bpe::new(&tokens);
            for token in tokens {
                assert_eq!(bpe.encoded(token), 1, "{}: {token:?}", vocabulary.name);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn texts_are_counted_as_tiktoken_counts_them(
            text in "([a-cA-C1'é日. \n\r\t(/]|'s|'LL|  |\\PC){0,40}|[ab=/+A-Z0-9]{0,200}|(ab|aab|the|ing|日本){0,60}",
        ) {
            for (vocabulary, _, tiktoken) in vocabularies() {
                let expected = tiktoken.encode_ordinary(&text).len();
                prop_assert_eq!(vocabulary.text(&text) as usize, expected, "{}: {:?}", vocabulary.name, text);
            }
        }
    }
}
