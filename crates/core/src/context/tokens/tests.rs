//! Tests of the properties that all counters share, whatever their vocabulary.

use proptest::prelude::*;

use super::*;

/// The counters of this build, including the heuristic.
fn counters() -> Vec<&'static dyn Counter> {
    let vocabularies = Vocabulary::ALL.into_iter().filter_map(Vocabulary::counter);
    vocabularies.chain([&Heuristic as &'static dyn Counter]).collect()
}

#[test]
fn vocabularies_count_like_their_models() {
    let table: &[(Vocabulary, &str, u32)] = &[
        (Vocabulary::O200k, "", 0),
        (Vocabulary::O200k, "Hello, world!", 4),
        (Vocabulary::O200k, "日本語です。", 4),
        (Vocabulary::O200k, "aaaaaaaaaaaaaaaa", 2),
        (Vocabulary::Cl100k, "Hello, world!", 4),
        (Vocabulary::Cl100k, "日本語です。", 6),
    ];
    for (vocabulary, text, tokens) in table {
        let counter = vocabulary.counter().expect("always in the build");
        assert_eq!(counter.text(text), *tokens, "{} of {text:?}", counter.name());
    }
}

#[test]
fn special_tokens_in_a_text_are_text() {
    for counter in Vocabulary::ALL.into_iter().filter_map(Vocabulary::counter) {
        for special in ["<|endoftext|>", "<|im_start|>", "<|begin_of_text|>", "<s>", "[INST]", "<｜User｜>", "<think>"]
        {
            let whole = counter.text(special);
            assert!(whole > 1, "{} takes {special} for one token", counter.name());
        }
    }
}

#[test]
fn megabytes_of_one_letter_are_counted_in_linear_time() {
    for counter in counters() {
        for (text, bytes) in [("a", 10 << 20), (" ", 1 << 20), ("語", 1 << 20), ("\u{1f389}", 1 << 20)] {
            let text = text.repeat(bytes / text.len());
            assert!(counter.text(&text) > 0, "{}", counter.name());
        }
    }
}

#[test]
fn a_vocabulary_that_is_not_in_the_build_is_replaced_by_o200k() {
    for vocabulary in Vocabulary::ALL {
        let expected = vocabulary.counter().map_or("o200k", Counter::name);
        assert_eq!(vocabulary.counter_or_o200k().name(), expected);
    }
}

proptest! {
    #[test]
    fn counting_never_panics_on_arbitrary_text(text in any::<String>()) {
        for counter in counters() {
            let tokens = counter.text(&text) as usize;
            prop_assert_eq!(tokens == 0, text.is_empty());
            prop_assert!(tokens <= 2 * text.len().max(1), "{}: {} bytes, {tokens} tokens", counter.name(), text.len());
        }
    }
}
