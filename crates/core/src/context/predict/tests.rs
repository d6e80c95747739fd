//! Tests of predictions, their margins, and calibration.

use proptest::prelude::*;

use super::*;
use crate::{context::testing, model::Prompt};

fn prompt(said: &[&str]) -> Prompt {
    testing::prompt(said.iter().map(|text| testing::user(text)).collect())
}

#[test]
fn only_messages_after_the_anchor_are_estimated() {
    let template = Template::of("openai", "gpt-4o");
    let before = template.terms(&prompt(&["Hello, world!"]));
    let now = template.terms(&prompt(&["Hello, world!", "Hello, world!"]));
    assert_eq!(template.anchored(5000, &before, &before), reported_count(5000));
    let count = template.anchored(5000, &before, &now);
    assert_eq!((count.tokens, count.margin, count.basis), (5008, MIN_MARGIN, TokenBasis::Tokenizer));
    // Removed terms reduce the prediction.
    assert_eq!(template.anchored(5000, &now, &before).tokens, 4992);
    assert_eq!(template.anchored(3, &now, &before).tokens, 0);
}

/// Row S6
#[test]
fn a_model_without_a_public_vocabulary_has_a_margin_of_ten_percent() {
    let table = [("openai", "gpt-4o", TokenBasis::Tokenizer), ("other", "foo-1", TokenBasis::Heuristic)];
    for (service, model, basis) in table {
        let count = Template::of(service, model).estimate(1000);
        assert_eq!(count.basis, basis, "{model}");
        assert!(basis == TokenBasis::Tokenizer || count.margin >= 100, "{model}: {}", count.margin);
    }
    assert_eq!(Template::of("other", "foo-1").estimate(1000).estimator, "o200k+unknown");
    assert_eq!(Template::of("other", "foo-1").estimate(0).margin, MIN_MARGIN);
}

/// The calibration after this many equal calls.
fn after(calls: u32, call: Calibration) -> Calibration {
    (0..calls).fold(Calibration::default(), |known, _| known.and(call))
}

/// Row A12
#[test]
fn calibration_ratio_is_updated_by_each_call_and_bounded() {
    let table: &[(&[(u32, u32)], f64)] = &[
        (&[], 1.0),
        (&[(100, 110)], 1.1),
        (&[(100, 110), (100, 130)], 1.2),
        (&[(0, 110), (100, 0)], 1.0),
        (&[(1, 1000)], 2.0),
        (&[(1000, 1)], 0.5),
    ];
    for (calls, ratio) in table {
        let learnt = calls.iter().fold(Calibration::default(), |known, (said, was)| {
            Calibration::of_call(*said, *was).map_or(known, |call| known.and(call))
        });
        assert!((learnt.ratio - ratio).abs() < 1e-9, "{calls:?}: {learnt:?}");
    }
    let long = after(100, Calibration { ratio: 1.0, calls: 1 });
    let call = Calibration { ratio: 1.32, calls: 1 };
    assert!((long.and(call).ratio - 1.02).abs() < 1e-9, "one call of sixteen");
}

/// Row A12
#[test]
fn calibration_ratio_is_used_only_after_enough_calls() {
    let count = Template::of("other", "foo-1").estimate(1000);
    let learnt = |calls| after(calls, Calibration { ratio: 1.2, calls: 1 });
    assert_eq!(learnt(2).apply(count.clone()), count);
    let corrected = learnt(3).apply(count.clone());
    assert_eq!((corrected.tokens, corrected.margin, corrected.basis), (1200, 60, TokenBasis::Calibrated));
    assert_eq!(corrected.estimator, count.estimator);
    assert_eq!(learnt(3).apply(reported_count(7)), reported_count(7));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::context::testing::CASES))]

    #[test]
    fn predicted_size_never_shrinks_when_a_message_is_appended(texts in proptest::collection::vec(".{0,40}", 1..6)) {
        for template in Template::all() {
            let messages: Vec<_> = texts.iter().map(|text| testing::user(text)).collect();
            let sizes: Vec<u32> = (0..=messages.len())
                .map(|count| template.count(&template.terms(&testing::prompt(messages[..count].to_vec()))).tokens)
                .collect();
            prop_assert!(sizes.is_sorted(), "{}: {sizes:?}", template.name);
        }
    }

    #[test]
    fn prediction_handles_the_largest_numbers(tokens: u32, reported: u32, ratio in 0.5f64..2.0) {
        for template in [Template::of("other", "foo"), Template::of("openai", "gpt-4o")] {
            let count = template.estimate(tokens);
            let known = Calibration { ratio, calls: 9 };
            let call = Calibration::of_call(tokens, reported).unwrap_or_default();
            let _ = known.and(call).apply(count);
        }
    }
}
