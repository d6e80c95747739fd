//! Reads the service's usage reports. Its input count excludes cached tokens, and later reports
//! complete earlier ones.

use serde_json::value::RawValue;

use crate::{
    model::Usage,
    provider::http::{
        lenient,
        report::{self, MergedReport},
    },
};

/// The usage in the merged reports of one response: the first report of some gateways holds zeros,
/// and only the last one counts what server tools read. Returns `None` if nothing was reported.
pub(super) fn read(merged: &MergedReport) -> Option<Usage> {
    let number = |key: &str| merged.number(key);
    let whole = merged.whole();
    Some(Usage {
        provider_tool_calls: whole.as_deref().map_or(0, report::tool_calls),
        provider_json: whole.as_deref().map(report::kept).unwrap_or_default(),
        ..counted(number, thinking(merged))?
    })
}

/// The usage of the last round of the model alone. Returns `None` if the service does not report
/// rounds. The rounds are documented as the basis for the size of the context; the totals grow with
/// each round in which server tools ran.
pub(super) fn last_round(merged: &MergedReport) -> Option<Usage> {
    let rounds = merged.get("iterations")?;
    let rounds = serde_json::from_str::<Vec<&RawValue>>(rounds.get()).ok()?;
    let last = rounds.into_iter().rev().find(|round| is_of_model(round))?;
    let number = |key: &str| report::member(last, key).and_then(lenient::count);
    // Reasoning is reported only for all rounds together.
    counted(number, thinking(merged)).filter(|usage| usage.input > 0)
}

fn thinking(merged: &MergedReport) -> u64 {
    let details = merged.get("output_tokens_details");
    let tokens = details.and_then(|details| report::count(details, "/thinking_tokens"));
    tokens.unwrap_or(0)
}

/// Reads the token counts of a report. Returns `None` if it has none.
fn counted(number: impl Fn(&str) -> Option<u64>, thinking: u64) -> Option<Usage> {
    let fresh = number("input_tokens");
    let output = number("output_tokens");
    if fresh.is_none() && output.is_none() {
        return None;
    }
    let cached = ["cache_read_input_tokens", "cache_creation_input_tokens"].map(|key| number(key).unwrap_or(0));
    let input = cached.into_iter().fold(fresh.unwrap_or(0), u64::saturating_add);
    Some(report::usage(input, output.unwrap_or(0), thinking, cached))
}

/// Whether a round is one of the model that responds, rather than of an advisor or a compaction.
fn is_of_model(round: &RawValue) -> bool {
    report::member(round, "type").is_none_or(|kind| [r#""message""#, r#""fallback_message""#].contains(&kind.get()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json, value::to_raw_value};

    use super::*;

    fn check(reports: &[Value], expected: Option<[u32; 5]>) {
        let mut report = MergedReport::default();
        for given in reports {
            report.add(&to_raw_value(given).expect("JSON"));
        }
        let numbers = read(&report)
            .map(|usage| [usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_write]);
        assert_eq!(numbers, expected, "{reports:?}");
    }

    /// Row A13
    #[test]
    fn input_includes_what_was_read_from_and_written_to_the_cache() {
        check(
            &[
                json!({"input_tokens": 8, "cache_read_input_tokens": 24, "cache_creation_input_tokens": 5, "output_tokens": 1}),
                json!({"output_tokens": 30, "output_tokens_details": {"thinking_tokens": 12}}),
            ],
            Some([37, 30, 12, 24, 5]),
        );
    }

    #[test]
    fn a_later_report_replaces_what_it_has_itself() {
        check(
            &[
                json!({"input_tokens": 2750, "output_tokens": 1, "cache_read_input_tokens": 7}),
                json!({"input_tokens": 12229, "output_tokens": 90, "cache_read_input_tokens": null}),
            ],
            Some([12236, 90, 0, 7, 0]),
        );
        check(&[json!({"input_tokens": 0, "output_tokens": 0}), json!({"input_tokens": 9})], Some([9, 0, 0, 0, 0]));
    }

    #[test]
    fn p1_the_last_round_of_the_model_is_read_beside_the_sum_of_all() {
        let round = |kind: &str, input: u32, output: u32| json!({"type": kind, "input_tokens": input, "output_tokens": output, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 10});
        let check = |rounds: Value, expected: Option<[u32; 5]>| {
            let mut report = MergedReport::default();
            let sums = json!({"input_tokens": 404_500, "output_tokens": 943, "output_tokens_details": {"thinking_tokens": 60}, "iterations": rounds});
            report.add(&to_raw_value(&sums).expect("JSON"));
            assert_eq!(read(&report).map(|usage| usage.input), Some(404_500));
            let last = last_round(&report).map(|usage| {
                assert_eq!(usage.provider_tool_calls, 0);
                [usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_write]
            });
            assert_eq!(last, expected, "{rounds}");
        };
        let last = Some([80_010 + 1_000, 40, 40, 1_000, 10]);
        let message = |input, output| round("message", input, output);
        check(json!([message(2_479, 90), message(80_000, 40)]), last);
        check(json!([message(80_000, 40), round("advisor_message", 9, 9)]), last);
        check(json!([message(80_000, 40), round("compaction", 9, 9)]), last);
        check(json!([message(9, 0), round("fallback_message", 80_000, 40)]), last);
        check(json!([round("compaction", 9, 9)]), None);
        check(json!([{"input_tokens": 7, "output_tokens": 100}]), Some([7, 100, 60, 0, 0]));
        check(json!([]), None);
        check(json!(null), None);
        check(json!({"input_tokens": 7}), None);
        check(json!([{"type": "message", "input_tokens": 0}]), None);
    }

    #[test]
    fn impossible_usage_numbers_are_clamped_and_empty_reports_ignored() {
        check(&[], None);
        check(&[json!({"service_tier": "standard"}), json!([1])], None);
        check(
            &[json!({"input_tokens": u64::MAX, "output_tokens": 3, "output_tokens_details": {"thinking_tokens": 9}})],
            Some([i32::MAX as u32, 3, 3, 0, 0]),
        );
    }
}
