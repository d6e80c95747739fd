//! Computes the size of a session's next prompt.

use super::{estimate, estimator::NonTranscript, prune};
use crate::model::{Anchor, Message, TokenBasis, TokenCount, Usage};

/// The size of the next prompt, and its terms: `last_input + last_output + new`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    /// The sum.
    pub count: TokenCount,
    /// Prompt size of the last call; 0 without a usable call.
    pub last_input: u32,
    /// Response size of the last call.
    pub last_output: u32,
    /// Estimate of everything since the last call; of the whole prompt if there is no usable call. Negative after
    /// messages were removed.
    pub new: i64,
}

impl Size {
    /// Upper bound of the size: the size plus its margin. Triggers compare it with their thresholds.
    pub fn at_most(&self) -> u32 {
        self.count.at_most()
    }

    /// Whether the size is based on one that a provider reported.
    pub fn is_anchored(&self) -> bool {
        self.last_input > 0
    }
}

/// A session's counters for its transcript.
#[derive(Debug, Clone, Copy)]
pub struct Counters<'a> {
    /// Tokens of the transcript, as estimated when its parts were stored.
    pub transcript_tokens: i64,
    pub context_version: i64,
    /// The last measured call.
    pub anchor: Option<&'a Anchor>,
}

impl Counters<'_> {
    /// The estimate of everything since the last measured call of any model. `non_transcript_tokens` are the tokens of
    /// the prompt that are not part of its transcript. Returns 0 if there is no such call, and a negative number after
    /// messages were removed.
    pub fn since_call(&self, non_transcript_tokens: u32) -> i64 {
        let now = estimated(self.transcript_tokens, non_transcript_tokens);
        self.anchor.map_or(0, |anchor| since(anchor, now))
    }
}

/// The usage of a call as reported by the provider, and the part of it that later prompts contain.
#[derive(Debug, Clone, Copy)]
pub struct ReportedCall<'a> {
    /// Reference of the model that was called.
    pub model: &'a str,
    pub usage: &'a Usage,
    /// The estimate of the message that the call produced; 0 if it was not appended.
    pub message_tokens: u32,
    /// Tokens of its response in later prompts, without the frame of a message:
    /// [`super::estimator::Estimator::response`]. 0 if it was not appended.
    pub output: u32,
    /// Reported tokens of reasoning in its prompt that later prompts do not contain.
    pub dropped_input: u32,
    /// The provider ran its own tools during the call. The reported usage is then that of its last internal request,
    /// whose prompt differs from the one that was predicted and sent.
    pub ran_provider_tools: bool,
}

/// The ratio of reported to estimated tokens in the last call of a model, used to correct estimates. It stays
/// valid after the transcript is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EstimateCorrection {
    reported: u64,
    estimated: u64,
}

/// Maximum factor by which estimates may be too small. Above it the ratio is ignored: the service counted more than
/// the text.
const MAX_UNDERESTIMATE_FACTOR: u64 = 2;

/// Maximum factor by which estimates may be too large (3/2). Above it the ratio is ignored: media cost less than
/// expected, and a compacted prompt may contain only text.
const MAX_OVERESTIMATE_FACTOR: (u64, u64) = (3, 2);

impl EstimateCorrection {
    /// No correction.
    const NONE: Self = Self { reported: 1, estimated: 1 };

    /// The ratio of a measured call. Returns `None` if the call does not provide a valid ratio for this model.
    fn of(anchor: &Anchor, model: &str) -> Option<Self> {
        let reported = u64::from(anchor.input) + u64::from(anchor.output);
        let estimated = u64::try_from(anchor.estimated_at_anchor).ok()?;
        let is_measured = anchor.model == model && anchor.input > 0 && estimated > 0 && anchor.has_prediction();
        let (most, times) = MAX_OVERESTIMATE_FACTOR;
        let is_believed = reported <= estimated.saturating_mul(MAX_UNDERESTIMATE_FACTOR)
            && estimated.saturating_mul(times) <= reported.saturating_mul(most);
        (is_measured && is_believed).then_some(Self { reported, estimated })
    }

    /// Converts an estimate to the size that would be reported.
    pub fn apply(self, estimate: u64) -> u64 {
        let reported = u128::from(estimate) * u128::from(self.reported);
        u64::try_from(reported / u128::from(self.estimated)).unwrap_or(u64::MAX)
    }

    /// The largest estimate for which at most this many tokens would be reported.
    pub fn estimate_of(self, reported: u64) -> u64 {
        let estimate = u128::from(reported) * u128::from(self.estimated);
        u64::try_from(estimate / u128::from(self.reported)).unwrap_or(u64::MAX)
    }

    fn apply_signed(self, estimate: i64) -> i64 {
        match u64::try_from(estimate) {
            Ok(estimate) => i64::try_from(self.apply(estimate)).unwrap_or(i64::MAX),
            Err(_) => estimate,
        }
    }
}

/// The only calculation of a prompt's size: displays, triggers, `step_started` and predictions all use it. It starts
/// from a session's counters; [`Self::with`] and [`Self::without_unsupported`] adjust them for one prompt.
#[derive(Debug, Clone, Copy)]
pub struct ContextSize<'a> {
    /// The last measured call, if usable.
    anchor: Option<&'a Anchor>,
    /// The ratio of the last measured call of the model, whether or not the call is usable.
    correction: Option<EstimateCorrection>,
    /// Tokens that a message adds to its content. They are added to the reported tokens of the last response.
    frame_tokens: u32,
    non_transcript: NonTranscript,
    transcript_tokens: i64,
    unsupported_tokens: i64,
    context_version: i64,
}

impl<'a> ContextSize<'a> {
    /// The size of a prompt with the whole transcript, for a model given by its reference. `frame_tokens`:
    /// [`super::estimator::Estimator::frame`].
    pub fn new(counters: Counters<'a>, model: &str, frame_tokens: u32, non_transcript: NonTranscript) -> Self {
        let Counters { transcript_tokens, context_version, anchor } = counters;
        let lesson = anchor.and_then(|anchor| EstimateCorrection::of(anchor, model));
        let anchor = usable(anchor, model, context_version);
        Self {
            anchor,
            correction: lesson,
            frame_tokens,
            non_transcript,
            transcript_tokens,
            unsupported_tokens: 0,
            context_version,
        }
    }

    /// The size with this many more tokens in the transcript. The offset does not change.
    #[must_use]
    pub fn with(self, tokens: i64) -> Self {
        Self { transcript_tokens: self.transcript_tokens.saturating_add(tokens), ..self }
    }

    /// The size less `unsupported_tokens`: tokens of the messages returned by [`Self::unmeasured`] that are not sent to
    /// the model. Media that the model does not support count as the text that replaces them. Reasoning that is not
    /// sent counts as 0.
    #[must_use]
    pub fn without_unsupported(self, unsupported_tokens: i64) -> Self {
        Self { unsupported_tokens, ..self }
    }

    /// The size with another transcript of this many tokens. No call has measured any part of it.
    #[must_use]
    pub fn with_rewritten_transcript(self, transcript_tokens: i64) -> Self {
        Self { anchor: None, transcript_tokens, unsupported_tokens: 0, ..self }
    }

    /// The messages that were not part of the last measured call; all messages if there is no such call. They follow
    /// its response. If that response was not appended, they are the newest messages whose total is at most the new
    /// tokens.
    /// `messages` may be only the end of the transcript.
    pub fn unmeasured<'m>(&self, messages: &'m [Message]) -> &'m [Message] {
        let Some(anchor) = self.anchor else {
            return messages;
        };
        if !self.has_unmeasured() {
            return &[];
        }
        let newest = match response_index(anchor, messages) {
            Some(answer) => messages.len() - answer - 1,
            None => {
                let mut left = self.new_tokens();
                let fits = |message: &&Message| {
                    left -= i64::from(prune::size(message));
                    left >= 0
                };
                messages.iter().rev().take_while(fits).count()
            }
        };
        &messages[messages.len() - newest..]
    }

    /// Whether `end`, the end of a transcript, is long enough for [`Self::unmeasured`] to find all messages: it
    /// contains the response of the last measured call, or it has more than twice the new tokens plus `slack`. In the
    /// second case the response counts as not appended.
    pub fn is_suffix_sufficient(&self, end: &[Message], slack: i64) -> bool {
        let Some(anchor) = self.anchor else {
            return false;
        };
        let seen: i64 = end.iter().map(|message| i64::from(prune::size(message))).sum();
        response_index(anchor, end).is_some() || seen > 2 * self.new_tokens().max(0) + slack
    }

    /// Whether the prompt contains tokens that the last measured call did not include.
    pub fn has_unmeasured(&self) -> bool {
        self.anchor.is_none() || self.new_tokens() > 0
    }

    /// Whether the size is based on a measured call.
    pub fn is_anchored(&self) -> bool {
        self.anchor.is_some()
    }

    /// Tokens of the prompt in the provider's cache.
    pub fn cached_tokens(&self) -> u32 {
        self.anchor.map_or(0, |anchor| anchor.cached)
    }

    /// Size of the prompt without its transcript, by part.
    pub fn non_transcript(&self) -> NonTranscript {
        self.non_transcript
    }

    /// Size of the prompt without its transcript, in tokens.
    pub fn non_transcript_tokens(&self) -> u32 {
        self.non_transcript.tokens()
    }

    /// Correction for estimates of this transcript after it is rewritten. Returns `None` if nothing was measured.
    pub fn correction(&self) -> Option<EstimateCorrection> {
        self.correction.or(self.anchor.map(|_| EstimateCorrection::NONE))
    }

    /// Computes the size.
    pub fn size(&self) -> Size {
        let (last_input, last_output) = self.anchor.map_or((0, 0), |anchor| (anchor.input, anchor.output));
        let sent = self.estimated_tokens() - self.unsupported_tokens;
        let new = match (self.anchor, self.correction) {
            (None, Some(lesson)) => lesson.apply_signed(sent),
            (Some(_), _) | (None, None) => self.new_of(sent),
        };
        let tokens = clamp_tokens(i64::from(last_input) + i64::from(last_output) + new);
        let doubtful = estimate::count(tokens_of(new));
        let basis = if self.anchor.is_some() && new == 0 { TokenBasis::Actual } else { doubtful.basis };
        let estimator = if basis == TokenBasis::Actual { String::new() } else { doubtful.estimator };
        Size { count: TokenCount { tokens, basis, margin: doubtful.margin, estimator }, last_input, last_output, new }
    }

    /// The size of the transcript alone.
    pub fn of_transcript(&self) -> i64 {
        i64::from(self.size().count.tokens) - i64::from(self.non_transcript_tokens())
    }

    /// The anchor for later sizes, after this prompt was sent.
    pub fn anchor_after(&self, call: ReportedCall<'_>) -> Anchor {
        let ReportedCall { model, usage, message_tokens, output, dropped_input, ran_provider_tools: in_rounds } = call;
        let predicted = self.size().count;
        let answer = message_tokens.saturating_sub(self.frame_tokens);
        Anchor {
            model: model.to_owned(),
            version: self.context_version,
            input: usage.input,
            output,
            estimated_at_anchor: self.estimated_tokens() + i64::from(answer) + i64::from(dropped_input),
            cached: usage.cache_read.saturating_add(usage.cache_write),
            estimated: if in_rounds { 0 } else { predicted.tokens },
            basis: predicted.basis,
        }
    }

    /// The number to add to the transcript's estimate to get the size: the rest of the prompt, plus the correction from
    /// the last call, less the tokens that are not sent. SQL statements add it where only they know the transcript's
    /// tokens.
    pub fn offset(&self) -> i64 {
        if let (None, Some(lesson)) = (self.anchor, self.correction) {
            let sent = self.estimated_tokens() - self.unsupported_tokens;
            return lesson.apply_signed(sent) - self.transcript_tokens;
        }
        let measured =
            |anchor: &Anchor| i64::from(anchor.input) + i64::from(anchor.output) - anchor.estimated_at_anchor;
        i64::from(self.non_transcript_tokens()) + self.anchor.map_or(0, measured) - self.unsupported_tokens
    }

    /// Estimate of the prompt, including tokens that are not sent, without measured sizes.
    fn estimated_tokens(&self) -> i64 {
        estimated(self.transcript_tokens, self.non_transcript_tokens())
    }

    /// Estimate of the tokens since the last measured call, including those that are not sent.
    fn new_tokens(&self) -> i64 {
        self.new_of(self.estimated_tokens())
    }

    /// The part of an estimate that is new. The frame of the last response alone counts as 0, because it is only sent
    /// together with a message that follows.
    fn new_of(&self, estimated: i64) -> i64 {
        let Some(anchor) = self.anchor else {
            return estimated;
        };
        match since(anchor, estimated) {
            frame if (0..=i64::from(self.frame_tokens)).contains(&frame) => 0,
            new => new,
        }
    }
}

/// The last measured call, if it is usable: it called this model, and no part of its prompt was replaced since.
fn usable<'a>(anchor: Option<&'a Anchor>, model: &str, version: i64) -> Option<&'a Anchor> {
    anchor.filter(|anchor| anchor.model == model && anchor.version == version && anchor.input > 0)
}

/// Estimate of a prompt without measured sizes.
fn estimated(transcript_tokens: i64, non_transcript_tokens: u32) -> i64 {
    transcript_tokens.saturating_add(i64::from(non_transcript_tokens))
}

/// The part of an estimate that the last measured call did not include.
fn since(anchor: &Anchor, estimated: i64) -> i64 {
    estimated - anchor.estimated_at_anchor
}

/// Index of the response of a measured call. Returns `None` if it is not among these messages.
fn response_index(anchor: &Anchor, messages: &[Message]) -> Option<usize> {
    messages.iter().rposition(|message| {
        message.response.as_ref().is_some_and(|response| {
            response.model == anchor.model && response.usage.as_ref().is_some_and(|usage| usage.input == anchor.input)
        })
    })
}

/// Converts a number of tokens to `u32`; negative numbers become 0.
pub fn clamp_tokens(number: i64) -> u32 {
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

    fn anchor(input: u32, output: u32, estimated_at_anchor: i64) -> Anchor {
        Anchor {
            model: "main/m".to_owned(),
            version: 3,
            input,
            output,
            estimated_at_anchor,
            cached: 0,
            estimated: input,
            basis: TokenBasis::Heuristic,
        }
    }

    fn context(anchor: Option<&Anchor>, transcript_tokens: i64, non_transcript: u32, frame: u32) -> ContextSize<'_> {
        let counters = Counters { transcript_tokens, context_version: 3, anchor };
        let non_transcript = NonTranscript { instructions: non_transcript, ..NonTranscript::default() };
        ContextSize::new(counters, "main/m", frame, non_transcript)
    }

    fn size(anchor: Option<&Anchor>, estimated: i64, frame: u32) -> Size {
        context(anchor, estimated, 0, frame).size()
    }

    /// Row A3
    #[test]
    fn context_size_is_the_last_calls_input_and_output_plus_new_messages() {
        let last = anchor(5_000, 100, 4_700);
        let next = size(Some(&last), 4_700 + 20, 0);
        assert_eq!((next.count.tokens, next.last_input, next.last_output, next.new), (5_120, 5_000, 100, 20));
        assert_eq!((next.count.margin, next.count.basis), (2, TokenBasis::Heuristic));
        assert!(next.is_anchored());
        assert_eq!(next.at_most(), 5_122);
    }

    #[test]
    fn correction_of_the_last_call_applies_to_a_rewritten_transcript() {
        let taught = |anchor: &Anchor, transcript_tokens| {
            let counters = Counters { transcript_tokens, context_version: 4, anchor: Some(anchor) };
            let context = ContextSize::new(counters, "main/m", 0, NonTranscript::default());
            let size = context.size();
            assert_eq!(transcript_tokens + context.offset(), i64::from(size.count.tokens));
            assert_ne!(size.count.basis, TokenBasis::Actual);
            size.count.tokens
        };
        let other = Anchor { model: "main/other".to_owned(), ..anchor(6_400, 100, 5_000) };
        assert_eq!(taught(&anchor(6_400, 100, 5_000), 1_000), 1_300);
        assert_eq!(taught(&anchor(3_400, 0, 5_000), 1_000), 680);
        for not_believed in [50_000, 2_500] {
            assert_eq!(taught(&anchor(not_believed, 0, 5_000), 1_000), 1_000);
        }
        assert_eq!(taught(&other, 1_000), 1_000);
        let lesson = EstimateCorrection::of(&anchor(6_400, 100, 5_000), "main/m").unwrap();
        for size in [0, 1, 999, 1_000, 1_001] {
            assert!(lesson.apply(lesson.estimate_of(size)) <= size);
        }
    }

    #[test]
    fn overhead_of_the_last_answer_counts_once_a_message_follows() {
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
    fn context_size_is_estimated_without_a_usable_anchor() {
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
    fn an_anchor_covers_the_messages_before_its_answer() {
        let reported = |input| {
            let mut message = testing::assistant("1234");
            let usage = Usage { input, ..Usage::default() };
            message.response = Some(ModelResponse { usage: Some(usage), ..testing::response("main/m") });
            message
        };
        let said = [testing::user("a"), reported(90), testing::user("b"), reported(100), testing::user("c")];
        let count = |anchor: Option<&Anchor>, new| context(anchor, new, 0, 0).unmeasured(&said).len();
        assert_eq!(count(None, 0), 5, "nothing was measured");
        assert_eq!(count(Some(&anchor(100, 1, 0)), 900), 1, "whatever else is new, such as tools");
        assert_eq!(count(Some(&anchor(100, 1, 0)), 0), 0, "nothing is new");
        assert_eq!(count(Some(&anchor(90, 1, 0)), 900), 3);
        // Each message costs 5.
        for (new, newest) in [(-3, 0), (0, 0), (4, 0), (5, 1), (9, 1), (10, 2), (900, 5)] {
            assert_eq!(count(Some(&anchor(7, 1, 0)), new), newest, "response not appended, {new} new tokens");
        }
        let enough =
            |anchor: &Anchor, end: &[Message], slack| context(Some(anchor), 5, 0, 0).is_suffix_sufficient(end, slack);
        assert_eq!([1, 2].map(|from| enough(&anchor(90, 1, 0), &said[from..], 900)), [true, false]);
        assert_eq!([5, 4].map(|slack| enough(&anchor(7, 1, 0), &said[2..], slack)), [false, true]);
    }

    #[test]
    fn tokens_that_the_model_is_not_sent_are_subtracted_from_size_and_offset() {
        let last = anchor(5_000, 100, 4_700);
        let table = [(None, 4_712, 4_712, 1_900), (Some(&last), 5_112, 12, 1_900 * 5_100 / 4_700)];
        for (anchor, size, new, rewritten) in table {
            let whole = context(anchor, 4_000, 900, 4);
            let sent = whole.without_unsupported(188);
            assert_eq!((sent.size().count.tokens, sent.size().new), (size, new));
            assert_eq!(sent.offset(), whole.offset() - 188);
            assert_eq!(sent.with(50).size().count.tokens, size + 50);
            assert_eq!(sent.with(50).offset(), sent.offset(), "appended messages do not change the offset");
            assert_eq!(
                sent.with_rewritten_transcript(1_000).size().count.tokens,
                rewritten,
                "a rewritten transcript, with the correction of the last call"
            );
        }
    }

    #[test]
    fn a_complete_anchor_is_not_estimated_and_removed_messages_are_subtracted() {
        let last = anchor(5_000, 100, 4_700);
        let same = size(Some(&last), 4_700, 0);
        assert_eq!((same.count.tokens, same.count.margin, same.count.basis), (5_100, 0, TokenBasis::Actual));
        assert_eq!(size(Some(&last), 4_500, 0).count.tokens, 4_900);
        assert_eq!(size(Some(&anchor(10, 0, 4_700)), 0, 0).count.tokens, 0, "never negative");
    }

    fn reported(usage: &Usage) -> ReportedCall<'_> {
        ReportedCall {
            model: "main/m",
            usage,
            message_tokens: 0,
            output: usage.output,
            dropped_input: 0,
            ran_provider_tools: false,
        }
    }

    #[test]
    fn anchor_of_a_call_with_provider_tools_has_no_correction_and_no_prediction() {
        let usage = Usage { input: 6_000, output: 40, ..Usage::default() };
        let call = ReportedCall { message_tokens: 1_500, ran_provider_tools: true, ..reported(&usage) };
        let last = context(None, 4_000, 700, 4).anchor_after(call);
        assert!(!last.has_prediction());
        let next = context(Some(&last), 4_000 + 1_500, 700, 4);
        assert_eq!(next.size().count.tokens, 6_040);
        assert_eq!(next.correction, None);
    }

    #[test]
    fn a_call_becomes_the_anchor_of_later_sizes() {
        let usage = Usage { input: 5_000, output: 120, cache_read: 4_000, cache_write: 500, ..Usage::default() };
        let sent = context(None, 4_000, 700, 4);
        let call = ReportedCall { message_tokens: 104, output: 100, dropped_input: 30, ..reported(&usage) };
        let expected = Anchor { cached: 4_500, estimated: 4_700, ..anchor(5_000, 100, 4_700 + 100 + 30) };
        assert_eq!(sent.anchor_after(call), expected);
        let next = context(Some(&expected), 4_000 + 104 - 30 + 25, 700, 4).size();
        assert_eq!(
            (next.count.tokens, next.new),
            (5_000 + 100 - 31, -31),
            "tokens dropped from the prompt are subtracted from later sizes"
        );
    }

    #[test]
    fn a_call_whose_answer_is_not_appended_measures_its_prompt_alone() {
        let usage = Usage { input: 5_000, output: 120, ..Usage::default() };
        let call = ReportedCall { output: 0, ..reported(&usage) };
        let measured = context(None, 4_000, 700, 4).anchor_after(call);
        assert_eq!((measured.output, measured.estimated_at_anchor), (0, 4_700));
        let same = context(Some(&measured), 4_000, 700, 4).size();
        assert_eq!((same.count.tokens, same.new), (5_000, 0));
    }

    #[test]
    fn tokens_since_the_last_call_are_known_for_every_model() {
        let counters = |anchor| Counters { transcript_tokens: 4_200, context_version: 9, anchor };
        let last = anchor(5_000, 100, 4_700);
        assert_eq!(counters(Some(&last)).since_call(700), 200);
        assert_eq!(counters(Some(&last)).since_call(0), -500);
        assert_eq!(counters(None).since_call(700), 0);
    }

    #[test]
    fn transcript_size_excludes_the_rest_of_the_prompt() {
        let last = anchor(5_000, 100, 4_700);
        assert_eq!(context(None, 4_000, 700, 0).of_transcript(), 4_000);
        assert_eq!(context(Some(&last), 4_010, 700, 0).of_transcript(), 4_410);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::context::testing::CASES))]

        /// Row I6
        #[test]
        fn transcript_tokens_plus_offset_is_the_size(
            known in any::<bool>(), input in 1_u32..1_000_000, output in 0_u32..100_000, estimated in 0_i64..1_000_000,
            non_transcript in 0_u32..100_000, transcript in 0_i64..1_000_000, unsupported in 0_i64..1_000,
        ) {
            let last = known.then(|| anchor(input, output, estimated));
            let context = context(last.as_ref(), transcript, non_transcript, 0).without_unsupported(unsupported);
            prop_assert_eq!(clamp_tokens(transcript + context.offset()), context.size().count.tokens);
        }

        #[test]
        fn context_size_never_shrinks_when_something_is_added(
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
