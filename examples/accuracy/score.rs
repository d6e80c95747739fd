//! Compares estimates with reported usage, by model family.

use std::collections::BTreeMap;

use contextd::{
    context::{
        estimator::{Estimator, KeptReasoning},
        size::{ContextSize, Counters, ReportedCall},
        template::Template,
    },
    model::{Anchor, Message, Prompt, Role, Usage, message::StoredPart},
};

use super::cases::{Case, Recorded};

/// An estimate and the reported usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Estimated tokens.
    pub(crate) predicted: u32,
    /// The margin of the estimate in tokens.
    pub(crate) margin: u32,
    /// Reported tokens.
    pub(crate) actual: u32,
}

/// The quality of estimates. Errors are percentages of the reported tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score {
    /// Number of estimates.
    pub(crate) count: usize,
    /// Median of the absolute errors.
    pub(crate) median: f64,
    /// 90th percentile of the absolute errors.
    pub(crate) p90: f64,
    /// The largest absolute error.
    pub(crate) largest: f64,
    /// Median of the signed errors.
    pub(crate) bias: f64,
    /// Share of estimates within 5% or 5 tokens, whichever is more.
    pub(crate) close: f64,
    /// Share of estimates within their margin.
    pub(crate) covered: f64,
}

impl Pair {
    pub(crate) fn error(self) -> f64 {
        (f64::from(self.predicted) - f64::from(self.actual)) / f64::from(self.actual.max(1)) * 100.0
    }

    fn off(self) -> u32 {
        self.predicted.abs_diff(self.actual)
    }
}

impl Score {
    /// The score of these estimates; all values are zero if there are none.
    pub(crate) fn of(pairs: &[Pair]) -> Self {
        let mut signed: Vec<f64> = pairs.iter().map(|pair| pair.error()).collect();
        let mut sizes: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
        signed.sort_by(f64::total_cmp);
        sizes.sort_by(f64::total_cmp);
        let share = |holds: &dyn Fn(&Pair) -> bool| {
            pairs.iter().filter(|pair| holds(pair)).count() as f64 / pairs.len().max(1) as f64 * 100.0
        };
        Self {
            count: pairs.len(),
            median: quantile(&sizes, 0.5),
            p90: quantile(&sizes, 0.9),
            largest: quantile(&sizes, 1.0),
            bias: quantile(&signed, 0.5),
            close: share(&|pair| f64::from(pair.off()) <= (f64::from(pair.actual) * 0.05).max(5.0)),
            covered: share(&|pair| pair.off() <= pair.margin),
        }
    }
}

/// The quantile of sorted values, by linear interpolation.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let at = share * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// Estimates a case without any reported usage of its conversation.
pub(crate) fn cold(case: &Case) -> Pair {
    let template = Template::of(case.service(), &case.recorded.model);
    let count = template.count(&template.terms(&case.prompt));
    Pair { predicted: count.tokens, margin: count.margin, actual: case.recorded.input_tokens_actual }
}

/// A request that continues an earlier one of its recording.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Continued<'a> {
    /// The earlier request, whose reported usage is the anchor.
    pub(crate) earlier: &'a Case,
    /// The request that is estimated.
    pub(crate) later: &'a Case,
}

/// The requests that continue another one of their recording whose response was reported. Each is paired with the
/// latest such request.
pub(crate) fn continued(cases: &[Case]) -> Vec<Continued<'_>> {
    let mut by_setting: BTreeMap<(String, &str), Vec<&Case>> = BTreeMap::new();
    for case in cases {
        by_setting.entry((case.setting(), &case.recorded.file)).or_default().push(case);
    }
    let mut found = Vec::new();
    for group in by_setting.values() {
        for later in group {
            let reported = |earlier: &&&Case| earlier.recorded.output_tokens.is_some();
            let earlier = group.iter().filter(reported);
            let earlier = earlier.filter(|earlier| continues(earlier, later));
            let latest = earlier.max_by_key(|earlier| messages(earlier).len());
            found.extend(latest.map(|earlier| Continued { earlier, later }));
        }
    }
    found
}

/// Whether a prompt is another one with messages appended.
fn continues(earlier: &Case, later: &Case) -> bool {
    let (before, now) = (messages(earlier), messages(later));
    before.len() < now.len() && before == &now[..before.len()]
}

fn messages(case: &Case) -> &[Message] {
    case.prompt.transcript.messages()
}

impl<'a> Continued<'a> {
    /// Whether tools were called since the earlier request.
    pub(crate) fn has_calls(self) -> bool {
        self.since().iter().any(Message::calls)
    }

    /// The messages since the earlier request.
    pub(crate) fn since(self) -> &'a [Message] {
        &messages(self.later)[messages(self.earlier).len()..]
    }

    /// The estimate after the earlier call, as a session computes it: the reported prompt, the response as a later
    /// prompt contains it, and an estimate of everything since.
    pub(crate) fn predict(self) -> Pair {
        let Self { earlier, later } = self;
        let Recorded { model, input_tokens_actual: input, output_tokens: output, reasoning_tokens: reasoning, .. } =
            &earlier.recorded;
        let estimator = estimator(later);
        let answer = self.since().first().filter(|message| message.role == Role::Assistant);
        let usage = Usage {
            input: *input,
            output: output.unwrap_or_default(),
            reasoning: reasoning.unwrap_or_default(),
            ..Usage::default()
        };
        let anchor = size(earlier, estimator, None).anchor_after(ReportedCall {
            model,
            usage: &usage,
            ran_provider_tools: false,
            message_tokens: answer.map_or(0, |answer| message_tokens(estimator, answer)),
            // No recorded request sends reasoning back.
            output: answer
                .map_or(0, |answer| estimator.response(&sized(estimator, answer), &usage, KeptReasoning::Nothing)),
            dropped_input: 0,
        });
        let count = size(later, estimator, Some(&anchor)).size().count;
        Pair { predicted: count.tokens, margin: count.margin, actual: later.recorded.input_tokens_actual }
    }
}

/// The size of a request, computed from counters.
fn size<'a>(case: &'a Case, estimator: Estimator, anchor: Option<&'a Anchor>) -> ContextSize<'a> {
    let counters =
        Counters { transcript_tokens: transcript_tokens(estimator, messages(case)), context_version: 0, anchor };
    let Prompt { tools, generation, .. } = &case.prompt;
    let outside = estimator.non_transcript(&case.prompt.instructions(), tools, generation);
    ContextSize::new(counters, &case.recorded.model, estimator.frame(), outside)
}

fn estimator(case: &Case) -> Estimator {
    Estimator::of(Template::of(case.service(), &case.recorded.model))
}

/// Tokens of messages, counted as at storage.
fn transcript_tokens(estimator: Estimator, messages: &[Message]) -> i64 {
    messages.iter().map(|message| i64::from(message_tokens(estimator, message))).sum()
}

fn message_tokens(estimator: Estimator, message: &Message) -> u32 {
    let parts = || message.parts.iter().map(|stored| &stored.part);
    parts()
        .map(|part| estimator.part(part, message.role).tokens)
        .fold(estimator.overhead(message.role, parts()), u32::saturating_add)
}

/// The parts of a message with their sizes, as stored.
fn sized(estimator: Estimator, message: &Message) -> Vec<StoredPart> {
    let sized = |stored: &StoredPart| StoredPart { size: estimator.part(&stored.part, message.role), ..stored.clone() };
    message.parts.iter().map(sized).collect()
}
