//! The table of errors by model family.

use std::{collections::BTreeMap, fmt::Write};

use contextd::context::template::Template;

use super::{
    cases::Case,
    score::{Continued, Pair, Score, cold, continued},
};

/// The name of the template that is used for a case.
fn family(case: &Case) -> &'static str {
    Template::of(case.service(), &case.recorded.model).name
}

/// The table, by family and in total.
pub(crate) fn report(cases: &[Case], worst: usize) -> String {
    let mut families: BTreeMap<&str, Vec<Pair>> = BTreeMap::new();
    let mut all: Vec<(&Case, Pair)> = Vec::new();
    for case in cases {
        let pair = cold(case);
        families.entry(family(case)).or_default().push(pair);
        all.push((case, pair));
    }
    let mut out = String::new();
    let mut line = |name: &str, pairs: &[Pair]| {
        let Score { count, median, p90, largest, bias, close, covered } = Score::of(pairs);
        let _ = writeln!(
            out,
            "{name:<20} {count:>5} {median:>9.2} {p90:>8.1} {largest:>8.1} {bias:>+8.2} {close:>8.1} {covered:>8.1}"
        );
    };
    for (name, pairs) in &families {
        line(name, pairs);
    }
    let cold: Vec<Pair> = all.iter().map(|(_, pair)| *pair).collect();
    let anchored = |families: &str, calls: &[bool]| -> Vec<Pair> {
        continued(cases)
            .into_iter()
            .filter(|pair| calls.contains(&pair.has_calls()))
            .filter(|pair| families.is_empty() || family(pair.later) == families)
            .map(Continued::predict)
            .collect()
    };
    line("ALL, cold", &cold);
    line("ALL, anchored", &anchored("", &[false, true]));
    line("- with tool rounds", &anchored("", &[true]));
    line("- without", &anchored("", &[false]));
    for name in families.keys() {
        let pairs = anchored(name, &[false, true]);
        if !pairs.is_empty() {
            line(&format!("- {name}"), &pairs);
        }
    }
    all.sort_by(|a, b| b.1.error().abs().total_cmp(&a.1.error().abs()));
    for (case, Pair { predicted, actual, margin: _ }) in all.into_iter().take(worst) {
        let (service, recorded) = (case.service(), &case.recorded);
        let _ = writeln!(out, "{} {service} {}: {predicted} predicted, {actual} reported", recorded.id, recorded.model);
    }
    let head = "family               cases  median %    p90 %    max %   bias %  close %  covered";
    format!("{head}\n{out}")
}
