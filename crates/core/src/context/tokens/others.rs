//! The vocabularies of other model families, if included in the build.

use std::{fmt, sync::OnceLock};

use splintr::{AnyTokenizer, Backend, SpecialMode};

use super::{Counter, Vocabulary, openai};

/// A text is counted in pieces of at most this many bytes: the library caches every piece regardless of its length, and
/// is slow on long ones. The text is split at white space if possible, so that the effect on the count is small.
const MAX_PIECE_BYTES: usize = 8 << 10;

/// A vocabulary. It is loaded when it is first used.
pub(super) struct Other {
    vocabulary: Vocabulary,
    name: &'static str,
    library_name: &'static str,
    in_build: bool,
    loaded: OnceLock<Option<AnyTokenizer>>,
}

static OTHERS: [Other; 7] = [
    Other::new(Vocabulary::Tekken, "tekken", "mistral_v3", cfg!(feature = "vocab-mistral")),
    Other::new(Vocabulary::MistralV1, "mistral-v1", "mistral", cfg!(feature = "vocab-mistral")),
    Other::new(Vocabulary::Qwen, "qwen", "qwen3", cfg!(feature = "vocab-qwen")),
    Other::new(Vocabulary::DeepSeek, "deepseek", "deepseek_v3", cfg!(feature = "vocab-deepseek")),
    Other::new(Vocabulary::Gemma, "gemma", "gemma4", cfg!(feature = "vocab-gemma")),
    Other::new(Vocabulary::Llama3, "llama3", "llama3", cfg!(feature = "vocab-llama3")),
    Other::new(Vocabulary::Llama2, "llama2", "llama2", cfg!(feature = "vocab-llama2")),
];

/// The vocabulary's counter. Returns `None` if this build does not include it.
pub(super) fn counter(vocabulary: Vocabulary) -> Option<&'static dyn Counter> {
    let other = OTHERS.iter().find(|other| other.vocabulary == vocabulary && other.in_build)?;
    Some(other)
}

impl Other {
    const fn new(vocabulary: Vocabulary, name: &'static str, library_name: &'static str, in_build: bool) -> Self {
        Self { vocabulary, name, library_name, in_build, loaded: OnceLock::new() }
    }
}

impl fmt::Debug for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Other").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Counter for Other {
    fn name(&self) -> &'static str {
        self.name
    }

    /// The number of tokens of a text. A piece that the vocabulary cannot encode is counted with o200k.
    fn text(&self, text: &str) -> u32 {
        let tokenizer = self.loaded.get_or_init(|| splintr::from_pretrained(self.library_name).ok());
        let count = |piece: &str| match tokenizer {
            Some(tokenizer) => count(tokenizer, piece).unwrap_or_else(|| openai::O200K.text(piece)),
            None => openai::O200K.text(piece),
        };
        pieces(text).map(count).fold(0, u32::saturating_add)
    }

    fn is_loaded(&self) -> bool {
        self.loaded.get().is_some()
    }
}

/// The number of tokens of one piece; special tokens in it are treated as text.
fn count(tokenizer: &AnyTokenizer, piece: &str) -> Option<u32> {
    let tokens = if let Backend::Bpe(backend) = tokenizer.backend() {
        // Without the tokens that the library adds around a text.
        backend.encode_with(piece, &SpecialMode::Ordinary)
    } else {
        tokenizer.encode_with(piece, &SpecialMode::Ordinary)
    };
    u32::try_from(tokens.ok()?.len()).ok()
}

/// Splits a text into pieces of at most [`MAX_PIECE_BYTES`], before white space if possible.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(end_of_piece(rest));
        rest = after;
        Some(piece)
    })
}

/// The end of the first piece of a text.
fn end_of_piece(text: &str) -> usize {
    if text.len() <= MAX_PIECE_BYTES {
        return text.len();
    }
    let most = text.floor_char_boundary(MAX_PIECE_BYTES);
    // At least half of the maximum, so that a text of white space is not split into tiny pieces.
    let least = text.floor_char_boundary(MAX_PIECE_BYTES / 2);
    text[least..most].rfind(char::is_whitespace).map_or(most, |at| least + at)
}
