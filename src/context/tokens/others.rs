//! The vocabularies of other families, as far as the build has them.

use std::{fmt, sync::OnceLock};

use splintr::{AnyTokenizer, Backend, SpecialMode};

use super::{Counter, Vocabulary, openai};

/// A text is counted in pieces of at most so many bytes: the library keeps the pieces that it has
/// met, however long, and is slow on long ones. A cut falls on white space where there is any, so
/// that it hardly moves the count.
const MOST_BYTES: usize = 8 << 10;

/// One vocabulary. It is loaded when it first counts.
pub(super) struct Other {
    vocabulary: Vocabulary,
    name: &'static str,
    library_name: &'static str,
    in_build: bool,
    loaded: OnceLock<Option<AnyTokenizer>>,
}

static OTHERS: [Other; 7] = [
    Other::new(
        Vocabulary::Tekken,
        "tekken",
        "mistral_v3",
        cfg!(feature = "vocab-mistral"),
    ),
    Other::new(
        Vocabulary::MistralV1,
        "mistral-v1",
        "mistral",
        cfg!(feature = "vocab-mistral"),
    ),
    Other::new(
        Vocabulary::Qwen,
        "qwen",
        "qwen3",
        cfg!(feature = "vocab-qwen"),
    ),
    Other::new(
        Vocabulary::DeepSeek,
        "deepseek",
        "deepseek_v3",
        cfg!(feature = "vocab-deepseek"),
    ),
    Other::new(
        Vocabulary::Gemma,
        "gemma",
        "gemma4",
        cfg!(feature = "vocab-gemma"),
    ),
    Other::new(
        Vocabulary::Llama3,
        "llama3",
        "llama3",
        cfg!(feature = "vocab-llama3"),
    ),
    Other::new(
        Vocabulary::Llama2,
        "llama2",
        "llama2",
        cfg!(feature = "vocab-llama2"),
    ),
];

/// The vocabulary's counter. `None` means it is not in this build.
pub(super) fn counter(vocabulary: Vocabulary) -> Option<&'static dyn Counter> {
    let other = OTHERS
        .iter()
        .find(|other| other.vocabulary == vocabulary && other.in_build)?;
    Some(other)
}

impl Other {
    const fn new(
        vocabulary: Vocabulary,
        name: &'static str,
        library_name: &'static str,
        in_build: bool,
    ) -> Self {
        Self {
            vocabulary,
            name,
            library_name,
            in_build,
            loaded: OnceLock::new(),
        }
    }
}

impl fmt::Debug for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Other")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Counter for Other {
    fn name(&self) -> &'static str {
        self.name
    }

    /// Tokens of a text. A piece that the vocabulary cannot take is counted with o200k.
    fn text(&self, text: &str) -> u32 {
        let tokenizer = self
            .loaded
            .get_or_init(|| splintr::from_pretrained(self.library_name).ok());
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

/// Tokens of one piece; special tokens in it are text.
fn count(tokenizer: &AnyTokenizer, piece: &str) -> Option<u32> {
    let tokens = if let Backend::Bpe(backend) = tokenizer.backend() {
        // Without what the library adds by itself around a text.
        backend.encode_with(piece, &SpecialMode::Ordinary)
    } else {
        tokenizer.encode_with(piece, &SpecialMode::Ordinary)
    };
    u32::try_from(tokens.ok()?.len()).ok()
}

/// The text in pieces of at most [`MOST_BYTES`], cut before white space where there is any.
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

/// Where the first piece of a text ends.
fn end_of_piece(text: &str) -> usize {
    if text.len() <= MOST_BYTES {
        return text.len();
    }
    let most = text.floor_char_boundary(MOST_BYTES);
    // Half of the piece at least, so that a text of white space is not cut to shreds.
    let least = text.floor_char_boundary(MOST_BYTES / 2);
    text[least..most]
        .rfind(char::is_whitespace)
        .map_or(most, |at| least + at)
}
