//! How large a context is: the one function behind displays, triggers and boundaries.

use super::{estimate, prune};
use crate::model::{Anchor, Message, TokenBasis, TokenCount};

/// The size of the next prompt, and what it was computed from: `last_input + last_output + new`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    /// The size.
    pub count: TokenCount,
    /// The last call's prompt; 0 without a usable one.
    pub last_input: u32,
    /// Its answer.
    pub last_output: u32,
    /// The estimate of everything since, which is everything when there was no call. Negative after something was taken away.
    pub new: i64,
}

impl Size {
    /// What triggers compare: the size, and as much as it may be more.
    pub fn at_most(&self) -> u32 {
        self.count.tokens.saturating_add(self.count.margin)
    }

    /// Whether a provider's report is behind it.
    pub fn is_anchored(&self) -> bool {
        self.last_input > 0
    }
}

/// The last call, if it tells of the prompts of this model: nothing that it was made from was replaced since, and this model made it.
pub fn usable<'a>(anchor: Option<&'a Anchor>, model: &str, version: i64) -> Option<&'a Anchor> {
    anchor.filter(|anchor| anchor.model == model && anchor.version == version && anchor.input > 0)
}

/// The messages that the last call did not see; without one, all. They stand behind its answer. Where that was not appended they are
/// the newest ones, as many as what is `new` has room for.
pub fn unseen<'a>(messages: &'a [Message], anchor: Option<&Anchor>, new: i64) -> &'a [Message] {
    let Some(anchor) = anchor else { return messages };
    let answers = |message: &Message| {
        message.response.as_ref().is_some_and(|response| {
            response.model == anchor.model && response.usage.as_ref().is_some_and(|usage| usage.input == anchor.input)
        })
    };
    if let Some(answer) = messages.iter().rposition(answers) {
        return &messages[answer + 1..];
    }
    let mut left = new;
    let fits = |message: &&Message| {
        left -= i64::from(prune::size(message));
        left >= 0
    };
    let newest = messages.iter().rev().take_while(fits).count();
    &messages[messages.len() - newest..]
}

/// The size of a prompt that is estimated at `estimated` tokens. Behind a usable call only what is new since is an estimate. The `frame` of
/// the call's answer is part of that, but nothing by itself: it comes with what follows.
pub fn size(anchor: Option<&Anchor>, estimated: i64, frame: u32) -> Size {
    let (last_input, last_output, described) =
        anchor.map_or((0, 0, 0), |anchor| (anchor.input, anchor.output, anchor.described));
    let new = match estimated - described {
        new if anchor.is_some() && (0..=i64::from(frame)).contains(&new) => 0,
        new => new,
    };
    let tokens = tokens(i64::from(last_input) + i64::from(last_output) + new);
    let doubtful = estimate::count(tokens_of(new));
    let basis = if anchor.is_some() && new == 0 { TokenBasis::Actual } else { doubtful.basis };
    let estimator = if basis == TokenBasis::Actual { String::new() } else { doubtful.estimator };
    Size { count: TokenCount { tokens, basis, margin: doubtful.margin, estimator }, last_input, last_output, new }
}

/// What is added to an estimate of the transcript to get the size: the rest of the prompt, and what the last call taught about both.
/// A statement that alone knows the transcript's size adds it.
pub fn offset(anchor: Option<&Anchor>, outside: u32) -> i64 {
    let learnt = anchor.map_or(0, |anchor| i64::from(anchor.input) + i64::from(anchor.output) - anchor.described);
    i64::from(outside) + learnt
}

/// A number of tokens within its type; below nothing is nothing.
pub fn tokens(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

fn tokens_of(change: i64) -> u32 {
    u32::try_from(change.unsigned_abs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        context::testing,
        model::{ModelResponse, Usage},
    };

    fn anchor(input: u32, output: u32, described: i64) -> Anchor {
        Anchor {
            model: "main/m".to_owned(),
            version: 3,
            input,
            output,
            described,
            cached: 0,
            estimated: input,
            basis: TokenBasis::Heuristic,
        }
    }

    /// Row A3
    #[test]
    fn the_next_input_is_the_last_input_and_output_and_what_is_new() {
        let last = anchor(5_000, 100, 4_700);
        let next = size(Some(&last), 4_700 + 20, 0);
        assert_eq!((next.count.tokens, next.last_input, next.last_output, next.new), (5_120, 5_000, 100, 20));
        assert_eq!((next.count.margin, next.count.basis), (2, TokenBasis::Heuristic));
        assert!(next.is_anchored());
        assert_eq!(next.at_most(), 5_122);
    }

    #[test]
    fn the_frame_of_the_last_answer_comes_with_what_follows_it() {
        let last = anchor(5_000, 100, 4_700);
        for (estimated, tokens, new) in [(4_700, 5_100, 0), (4_704, 5_100, 0), (4_705, 5_105, 5), (4_724, 5_124, 24)] {
            let next = size(Some(&last), estimated, 4);
            assert_eq!((next.count.tokens, next.new), (tokens, new), "{estimated}");
            assert_eq!(next.count.basis == TokenBasis::Actual, new == 0);
        }
        assert_eq!(size(None, 3, 4).count.tokens, 3);
    }

    /// Row A7
    #[test]
    fn without_a_usable_call_everything_is_an_estimate() {
        let next = size(None, 1_000, 0);
        assert_eq!((next.count.tokens, next.last_input, next.last_output, next.new), (1_000, 0, 0, 1_000));
        assert_eq!((next.count.margin, next.count.basis), (100, TokenBasis::Heuristic));
        assert!(!next.is_anchored());
        let last = anchor(5_000, 100, 4_700);
        assert!(usable(Some(&last), "main/m", 3).is_some());
        for (model, version) in [("main/other", 3), ("main/m", 4)] {
            assert_eq!(usable(Some(&last), model, version), None, "{model} {version}");
        }
        assert_eq!(usable(Some(&anchor(0, 0, 9)), "main/m", 3), None, "a call without reported input is no anchor");
    }

    #[test]
    fn the_last_call_has_seen_what_stands_before_its_answer() {
        let reported = |input| {
            let mut message = testing::assistant("1234");
            let usage = Usage { input, ..Usage::default() };
            message.response = Some(ModelResponse { usage: Some(usage), ..testing::response("main/m") });
            message
        };
        let said = [testing::user("a"), reported(90), testing::user("b"), reported(100), testing::user("c")];
        let count = |anchor: Option<&Anchor>, new| unseen(&said, anchor, new).len();
        assert_eq!(count(None, 0), 5, "nothing was measured");
        assert_eq!(count(Some(&anchor(100, 1, 0)), 900), 1, "whatever else is new: tools, for example");
        assert_eq!(count(Some(&anchor(90, 1, 0)), 900), 3);
        // Each message costs 5.
        for (new, newest) in [(-3, 0), (0, 0), (4, 0), (5, 1), (9, 1), (10, 2), (900, 5)] {
            assert_eq!(count(Some(&anchor(7, 1, 0)), new), newest, "an answer that nobody appended, and {new} more");
        }
    }

    #[test]
    fn what_was_reported_whole_is_no_estimate_and_what_was_taken_away_is_taken_off() {
        let last = anchor(5_000, 100, 4_700);
        let same = size(Some(&last), 4_700, 0);
        assert_eq!((same.count.tokens, same.count.margin, same.count.basis), (5_100, 0, TokenBasis::Actual));
        assert_eq!(size(Some(&last), 4_500, 0).count.tokens, 4_900);
        assert_eq!(size(Some(&anchor(10, 0, 4_700)), 0, 0).count.tokens, 0, "never below nothing");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::context::testing::CASES))]

        /// Row I6
        #[test]
        fn the_offset_makes_the_size_of_any_transcript(
            known in any::<bool>(), input in 1_u32..1_000_000, output in 0_u32..100_000, described in 0_i64..1_000_000,
            outside in 0_u32..100_000, transcript in 0_i64..1_000_000,
        ) {
            let last = known.then(|| anchor(input, output, described));
            let whole = size(last.as_ref(), transcript + i64::from(outside), 0);
            prop_assert_eq!(tokens(transcript + offset(last.as_ref(), outside)), whole.count.tokens);
        }

        #[test]
        fn more_is_never_smaller(
            known in any::<bool>(),
            frame in 0_u32..9,
            before in 0_i64..1_000_000,
            more in 0_i64..1_000_000,
        ) {
            let last = known.then(|| anchor(5_000, 100, 4_700));
            let size = |estimated| size(last.as_ref(), estimated, frame).count.tokens;
            prop_assert!(size(before + more) >= size(before));
        }
    }
}
