//! Predictions against reports, by family.

use std::collections::BTreeMap;

use contextd::context::template::Template;

use super::cases::Case;

/// A prediction and what was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Predicted tokens.
    pub(crate) predicted: u32,
    /// How far off that may be.
    pub(crate) margin: u32,
    /// Reported tokens.
    pub(crate) actual: u32,
}

/// How good predictions are. Percentages of what was reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score {
    /// How many there are.
    pub(crate) count: usize,
    /// Median of the errors' size.
    pub(crate) median: f64,
    /// Nine of ten errors are at most this large.
    pub(crate) p90: f64,
    /// The largest error.
    pub(crate) largest: f64,
    /// Median of the signed errors.
    pub(crate) bias: f64,
    /// Share within 5% or 5 tokens, whichever is more.
    pub(crate) close: f64,
    /// Share within their own margin.
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
    /// Of these predictions; all zero for none.
    pub(crate) fn of(pairs: &[Pair]) -> Self {
        let mut signed: Vec<f64> = pairs.iter().map(|pair| pair.error()).collect();
        let mut sizes: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
        signed.sort_by(f64::total_cmp);
        sizes.sort_by(f64::total_cmp);
        let share = |holds: &dyn Fn(&Pair) -> bool| {
            pairs.iter().filter(|pair| holds(pair)).count() as f64 / pairs.len().max(1) as f64
                * 100.0
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

/// The value below which that share of sorted values lies, by linear interpolation.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let at = share * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// A case predicted without any report of its conversation.
pub(crate) fn cold(case: &Case) -> Pair {
    let template = Template::of(case.service(), &case.recorded.model);
    let count = template.count(&template.terms(&case.prompt));
    Pair {
        predicted: count.tokens,
        margin: count.margin,
        actual: case.recorded.input_tokens_actual,
    }
}

/// The cases that continue another one, predicted from that one's report.
pub(crate) fn anchored(cases: &[Case]) -> Vec<(&Case, Pair)> {
    let mut by_setting: BTreeMap<(String, &str), Vec<&Case>> = BTreeMap::new();
    for case in cases {
        by_setting
            .entry((case.setting(), &case.recorded.file))
            .or_default()
            .push(case);
    }
    let mut found = Vec::new();
    for group in by_setting.values() {
        for later in group {
            let earlier = group.iter().filter(|earlier| continues(earlier, later));
            let Some(earlier) =
                earlier.max_by_key(|earlier| earlier.prompt.transcript.messages().len())
            else {
                continue;
            };
            let template = Template::of(later.service(), &later.recorded.model);
            let (before, now) = (
                template.terms(&earlier.prompt),
                template.terms(&later.prompt),
            );
            let count = template.anchored(earlier.recorded.input_tokens_actual, &before, &now);
            let actual = later.recorded.input_tokens_actual;
            found.push((
                *later,
                Pair {
                    predicted: count.tokens,
                    margin: count.margin,
                    actual,
                },
            ));
        }
    }
    found
}

/// Whether a prompt is another one with messages appended.
fn continues(earlier: &Case, later: &Case) -> bool {
    let (before, now) = (
        earlier.prompt.transcript.messages(),
        later.prompt.transcript.messages(),
    );
    before.len() < now.len()
        && before == &now[..before.len()]
        && earlier.prompt.generation == later.prompt.generation
}
