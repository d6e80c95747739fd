//! Predictions against what providers reported for recorded requests: the goals, whatever the prices in the table.

#[path = "../../examples/accuracy/cases.rs"]
mod cases;
#[path = "../../examples/accuracy/score.rs"]
mod score;

use std::path::Path;

use contextd::context::template::Template;
use score::{Pair, Score};

fn recorded() -> Vec<cases::Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/accuracy/cases.jsonl.gz");
    cases::load(&path).unwrap()
}

/// Row A11
#[test]
fn prompts_of_which_nothing_was_reported_are_predicted_within_the_goal() {
    let pairs: Vec<Pair> = recorded().iter().map(score::cold).collect();
    let score = Score::of(&pairs);
    assert!(score.count >= 667, "{score:?}");
    assert!(score.median <= 1.0 && score.p90 <= 10.0, "{score:?}");
    assert!(score.bias.abs() <= 0.5, "{score:?}");
    assert!(score.close >= 90.0 && score.covered >= 90.0, "{score:?}");
}

#[test]
fn prompts_that_continue_a_reported_one_are_predicted_closer() {
    let cases = recorded();
    let pairs: Vec<Pair> = score::anchored(&cases).into_iter().map(|(_, pair)| pair).collect();
    let score = Score::of(&pairs);
    assert!(score.count >= 80, "{score:?}");
    assert!(score.median <= 0.5 && score.p90 <= 5.0, "{score:?}");
    assert!(score.bias.abs() <= 0.5, "{score:?}");
}

/// What a family says of its own accuracy must not be wishful: nearly every family with enough recordings keeps its margin.
#[test]
fn families_keep_their_margins() {
    let cases = recorded();
    for template in Template::all() {
        let own = |case: &&cases::Case| Template::of(case.service(), &case.recorded.model).name == template.name;
        let pairs: Vec<Pair> = cases.iter().filter(own).map(score::cold).collect();
        if pairs.len() >= 10 {
            let score = Score::of(&pairs);
            assert!(score.covered >= 85.0, "{}: {score:?}", template.name);
        }
    }
}

/// The score itself, on numbers that can be checked by hand.
#[test]
fn a_score_tells_the_error_as_it_is() {
    let pair = |predicted, actual| Pair { predicted, margin: 5, actual };
    let pairs = [pair(100, 100), pair(110, 100), pair(1000, 1250), pair(9, 6)];
    let score = Score::of(&pairs);
    assert_eq!((score.count, score.median, score.largest), (4, 15.0, 50.0));
    assert_eq!((score.bias, score.close, score.covered), (5.0, 50.0, 50.0));
}
