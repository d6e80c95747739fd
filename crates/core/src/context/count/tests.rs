//! Tests of token counts, and that categories add up to the total.

use proptest::prelude::*;

use super::*;
use crate::{
    context::testing,
    model::{TokenBasis, ToolCategory},
};

fn counting(messages: Vec<Message>, tools: Vec<Tool>) -> CountInput {
    CountInput {
        template: Template::of("openai", "gpt-4o"),
        calibration: Calibration::default(),
        system: "Be brief.".to_owned(),
        tools,
        generation: Generation::default(),
        messages,
        single: 1,
        measured: None,
        arranged: Default::default(),
    }
}

#[test]
fn count_includes_what_message_ordering_adds_and_excludes_what_it_merges() {
    let said = || vec![testing::user("Hello"), testing::user("World")];
    let plain = counting(said(), Vec::new());
    let as_sent = counting(vec![testing::user("Hello"), testing::assistant("OK"), testing::user("World")], Vec::new());
    let mut added = RequestDiff::default();
    added.messages(Role::Assistant, 1);
    added.texts("OK", 1);
    let counted = CountInput { arranged: (added.clone(), added.clone()), ..plain.clone() }.count(None);
    assert_eq!(counted.total, as_sent.count(None).total);
    assert_eq!(counted.shares.iter().map(|spent| spent.tokens).sum::<u32>(), counted.total.tokens);
    let measured = Some(reported_count(100));
    let size = |arranged| CountInput { measured: measured.clone(), arranged, ..plain.clone() }.count(None).total.tokens;
    let [none, one] = [RequestDiff::default(), added];
    let answer = as_sent.count(None).total.tokens - plain.count(None).total.tokens;
    assert_eq!(size((one.clone(), one.clone())), size((none.clone(), none.clone())) + answer, "it is new");
    assert_eq!(size((one, none.clone())), size((none.clone(), none)), "the call that was measured had it");
    let mut joined = RequestDiff::default();
    joined.messages(Role::User, -1);
    let one = counting(vec![testing::user("Hello"), testing::user("")], Vec::new()).count(None).total.tokens;
    let frame = one - counting(vec![testing::user("Hello")], Vec::new()).count(None).total.tokens;
    let counted = CountInput { arranged: (joined, RequestDiff::default()), ..plain.clone() }.count(None).total.tokens;
    assert_eq!(counted, plain.count(None).total.tokens - frame);
}

#[test]
fn prompt_tokens_are_divided_among_categories() {
    let skill = Tool { category: ToolCategory::Skills, ..testing::tool("dance") };
    let messages =
        vec![testing::user("Hello, world!"), testing::calls(&["look"]), testing::results(&[("look", "a b c")])];
    let counts = counting(messages, vec![testing::tool("look"), skill]).count(None);
    let shares: Vec<_> = counts.shares.iter().map(|spent| (spent.category, spent.count)).collect();
    let expected = [
        (TokenCategory::System, 1),
        (TokenCategory::Tools(ToolCategory::Tools), 1),
        (TokenCategory::Tools(ToolCategory::Skills), 1),
        (TokenCategory::Messages(Category::User), 1),
        (TokenCategory::Messages(Category::ToolCalls), 1),
        (TokenCategory::Messages(Category::ToolResults), 1),
    ];
    assert_eq!(shares, expected);
    assert_eq!(counts.shares.iter().map(|spent| spent.tokens).sum::<u32>(), counts.total.tokens);
    let tokens = |on| counts.shares.iter().find(|spent| spent.category == on).map(|spent| spent.tokens);
    // Four for the text, four for the message.
    assert_eq!(tokens(TokenCategory::Messages(Category::User)), Some(8));
    assert_eq!(counts.messages.len(), 1);
    assert_eq!(counts.total.basis, TokenBasis::Tokenizer);
}

#[test]
fn pinned_messages_and_summaries_are_counted_apart() {
    let pinned = Message { pinned: true, ..testing::user("Hello") };
    let summary = Message { is_summary: true, ..testing::user("Hello") };
    let counts = counting(vec![pinned, summary], vec![]).count(None);
    let on: Vec<TokenCategory> = counts.shares.iter().map(|spent| spent.category).collect();
    assert_eq!(
        on,
        [TokenCategory::System, TokenCategory::Messages(Category::Summary), TokenCategory::Messages(Category::Pinned)]
    );
}

#[test]
fn calibration_ratio_scales_the_total_and_its_categories() {
    let plain = counting(vec![testing::user(&"hello ".repeat(200))], vec![]);
    let learnt = Calibration { ratio: 1.5, calls: 9 };
    let scaled = CountInput { calibration: learnt, ..plain.clone() };
    let plain = plain.count(None);
    let scaled = scaled.count(None);
    assert_eq!(scaled.total.basis, TokenBasis::Calibrated);
    assert_eq!(scaled.total.tokens, (plain.total.tokens * 3).div_ceil(2));
    assert_eq!(scaled.shares.iter().map(|spent| spent.tokens).sum::<u32>(), scaled.total.tokens);
}

#[test]
fn a_count_by_the_provider_is_the_total() {
    let counts = counting(vec![testing::user("Hello")], vec![]).count(Some(1000));
    assert_eq!(counts.total, reported_count(1000));
    assert_eq!(counts.shares.iter().map(|spent| spent.tokens).sum::<u32>(), 1000);
}

#[test]
fn a_total_is_apportioned_without_remainder() {
    let table: &[(&[f64], u32, &[u32])] = &[
        (&[], 0, &[]),
        (&[1.0], 7, &[7]),
        (&[1.0, 1.0, 1.0], 10, &[3, 4, 3]),
        (&[3.0, -5.0, 1.0], 8, &[6, 0, 2]),
        (&[0.0, 0.0], 5, &[0, 5]),
    ];
    for (weights, total, expected) in table {
        assert_eq!(apportion(weights, *total), *expected, "{weights:?} of {total}");
    }
}

proptest! {
    #[test]
    fn apportioned_shares_add_up_to_the_total(weights in proptest::collection::vec(-10.0f64..1000.0, 1..9), total in 0u32..1_000_000) {
        prop_assert_eq!(apportion(&weights, total).iter().sum::<u32>(), total);
    }
}

/// Row A3
#[test]
fn an_anchored_count_adds_new_messages_and_their_error_margin() {
    let measured = TokenCount { tokens: 5_100, basis: TokenBasis::Actual, margin: 0, estimator: String::new() };
    let mut counting = counting(vec![testing::user("Hello"), testing::user("And now?")], vec![]);
    counting.measured = Some(measured.clone());
    counting.single = 0;
    assert_eq!(counting.count(None).total, measured);
    counting.single = 1;
    let counts = counting.count(None);
    assert_eq!(counts.total.tokens, 5_100 + counts.messages[0].tokens);
    assert_eq!(
        (counts.total.basis, &counts.total.estimator),
        (counts.messages[0].basis, &counts.messages[0].estimator)
    );
    assert_eq!(counts.shares.iter().map(|share| share.tokens).sum::<u32>(), counts.total.tokens);
    assert_eq!(counting.count(Some(7)).total, reported_count(7));
    counting.messages.insert(1, testing::assistant("Hi"));
    let frame = counting.template.count(&Terms::one(Term::Message)).tokens;
    assert!(frame > 0);
    assert_eq!(counting.count(None).total.tokens, counts.total.tokens + frame, "an answer stands in a message");
}
