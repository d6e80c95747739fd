//! Computes the room for tool output in a context window.

use super::{budget::Budget, estimate, estimator::Estimator, truncate::truncate_texts};
use crate::model::OutputLimits;

/// However full a window is, the results of one submission may use one part in this many of its room: older messages
/// are compacted or pruned before the next call.
const SHARE_FOR_RESULTS: u32 = 2;
/// Minimum tokens of a result: enough to show what it is, and where the rest is stored.
const MIN_RESULT_TOKENS: u32 = 200;

/// Tokens that the results of one message may have in total, in a context of `used` tokens, of which `waiting` are
/// results of the same message. These are estimates: their margin is reserved too.
pub fn room_for_results(budget: Budget, used: u32, waiting: u32) -> u32 {
    let left = budget.room().saturating_sub(used.saturating_sub(waiting)).max(budget.room() / SHARE_FOR_RESULTS);
    let left = left.saturating_sub(estimate::MESSAGE_OVERHEAD);
    let with_margin = u64::from(left) + u64::from(estimate::count(left).margin);
    let tokens = (u64::from(left) * u64::from(left)).checked_div(with_margin).unwrap_or_default();
    u32::try_from(tokens).unwrap_or(left).saturating_sub(waiting)
}

/// The room of one of this many results. Results that arrive one at a time, or concurrently, then do not exceed the
/// room in total.
pub fn room_per_result(room: u32, results: u32) -> u32 {
    room / results.max(1)
}

/// Reduces the limits so that the output has at most `room` tokens as counted by `estimator`, or the minimum of a
/// result if that is larger. Output that fits keeps its limits.
pub fn fitting_limits(texts: &[String], limits: &OutputLimits, room: u32, estimator: Estimator) -> OutputLimits {
    let costs = |limits: &OutputLimits| cost(&truncate_texts(texts, limits).texts, estimator);
    let room = room.max(MIN_RESULT_TOKENS);
    if costs(limits) <= room {
        return *limits;
    }
    let chars = truncate_texts(texts, limits).kept_chars;
    // Binary search for the largest number of characters that fits: `least` fits, `most` does not.
    let mut least = 0;
    let mut most = chars;
    while most - least > 1 {
        let middle = least + (most - least) / 2;
        if costs(&capped(limits, middle)) <= room { least = middle } else { most = middle }
    }
    capped(limits, least)
}

fn capped(limits: &OutputLimits, chars: u32) -> OutputLimits {
    OutputLimits { max_chars: Some(chars), ..*limits }
}

fn cost(texts: &[String], estimator: Estimator) -> u32 {
    texts.iter().map(|text| estimator.output(text)).fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::context::{template::Template, truncate::MARKER};

    fn budget(window: u32, reserve: u32) -> Budget {
        Budget { window, reserve, assumed: false }
    }

    /// Row L4
    #[test]
    fn tool_results_get_the_free_room_and_at_least_half_of_the_total() {
        for (used, left) in [(1_000, 10_904), (5_952, 5_952), (11_000, 5_952), (50_000, 5_952)] {
            let tokens = room_for_results(budget(16_000, 4_096), used, 0);
            let most = estimate::count(tokens);
            let room = left - estimate::MESSAGE_OVERHEAD;
            assert!((room - 2..=room).contains(&(most.tokens + most.margin)), "{used}: {most:?}");
        }
        assert_eq!(room_for_results(budget(0, 0), 0, 0), 0);
    }

    /// Row L4: U17
    #[test]
    fn results_one_by_one_have_the_room_of_all_of_them_together() {
        let budget = budget(16_000, 4_096);
        for (before, calls) in [(0, 2), (1_000, 2), (1_000, 8), (11_000, 3), (50_000, 16)] {
            let together = room_for_results(budget, before, 0);
            let mut waiting = 0;
            for open in (1..=calls).rev() {
                let room = room_for_results(budget, before + waiting, waiting);
                waiting += room_per_result(room, open);
            }
            assert!(waiting <= together, "{before} {calls}: {waiting} of {together}");
            assert!(waiting >= together / 10 * 8, "{before} {calls}: the room is used: {waiting} of {together}");
            // Concurrent results: none is counted for the others.
            let alone = room_for_results(budget, before, 0);
            assert!(calls * room_per_result(alone, calls) <= together);
        }
    }

    /// Rows L4 and D6
    #[test]
    fn an_output_is_cut_only_if_it_does_not_fit_the_room() {
        let limits = OutputLimits { max_chars: Some(120_000), ..OutputLimits::default() };
        let text = |chars: usize| vec!["x".repeat(chars)];
        let fitting = |texts: &[String], limits, room| fitting_limits(texts, limits, room, Estimator::Characters);
        assert_eq!(fitting(&text(4_000), &limits, 1_000), limits, "exactly as much as there is room for");
        let cut = fitting(&text(4_001), &limits, 1_000);
        let marker = u32::try_from(MARKER.len()).unwrap();
        assert_eq!(cut.max_chars, Some(4_000 - marker));
        assert_eq!(fitting(&text(4_001), &limits, 0).max_chars, Some(800 - marker), "a result is never nothing");
        assert_eq!(fitting(&text(200_000), &limits, 40_000), limits, "cut to its own limit it fits");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::context::testing::CASES))]

        /// Row L4
        #[test]
        fn a_cut_output_fits_its_room(
            words in proptest::collection::vec("[a-zé語0-9 \n]{0,4000}", 1..4),
            room in 0_u32..3_000,
            model in proptest::sample::select(&[("openai", "gpt-4o"), ("scripted", "it")]),
        ) {
            let limits = OutputLimits { max_chars: Some(120_000), ..OutputLimits::default() };
            let estimator = Estimator::of(Template::of(model.0, model.1));
            let fitted = fitting_limits(&words, &limits, room, estimator);
            prop_assert!(cost(&truncate_texts(&words, &fitted).texts, estimator) <= room.max(MIN_RESULT_TOKENS));
        }
    }
}
