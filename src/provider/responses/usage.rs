//! Normalizes usage reports: input includes all cached tokens, output includes all reasoning.

use serde_json::value::RawValue;

use crate::{
    model::Usage,
    provider::http::report::{count, kept, tokens, tool_calls, usage},
};

/// The usage in a report. Returns `None` if it reports nothing.
pub(super) fn read(report: &RawValue) -> Option<Usage> {
    let number = |path: &str| count(report, path);
    let input = number("/input_tokens");
    let output = number("/output_tokens");
    if input.is_none() && output.is_none() {
        return None;
    }
    let part = |path: &str| number(path).unwrap_or(0);
    let reasoning = part("/output_tokens_details/reasoning_tokens");
    let cached = ["cached_tokens", "cache_write_tokens"].map(|name| part(&format!("/input_tokens_details/{name}")));
    Some(Usage {
        provider_tool_calls: tool_calls(report),
        provider_json: kept(report),
        ..usage(input.unwrap_or(0), output.unwrap_or(0), reasoning, cached)
    })
}

/// The usage of the last round of the model alone, which xAI reports in addition to the totals over
/// the rounds in which its server tools ran. Returns `None` if it is missing, as in OpenAI's
/// reports.
pub(super) fn last_round(report: &RawValue) -> Option<Usage> {
    let of_round = |path: &str| count(report, path).map(tokens);
    let input = of_round("/context_details/input_tokens").filter(|tokens| *tokens > 0)?;
    let output = of_round("/context_details/output_tokens")?;
    let sums = read(report)?;
    Some(Usage {
        input,
        output,
        // These are reported only for all rounds together.
        reasoning: sums.reasoning.min(output),
        cache_read: sums.cache_read.min(input),
        cache_write: sums.cache_write.min(input),
        ..Usage::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(report: &str, expected: Option<[u32; 5]>) {
        let raw = RawValue::from_string(report.to_owned()).expect("JSON");
        let numbers = read(&raw).map(|usage| {
            assert_eq!(usage.provider_json, report);
            [usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_write]
        });
        assert_eq!(numbers, expected, "{report}");
    }

    /// Row A13
    #[test]
    fn usage_includes_what_is_cached_and_all_reasoning() {
        let report = r#"{"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 14}"#;
        check(report, Some([9, 5, 3, 4, 2]));
    }

    #[test]
    fn p1_the_last_round_is_read_where_the_service_reports_it() {
        let last = |report: &str| {
            let raw = RawValue::from_string(report.to_owned()).expect("JSON");
            last_round(&raw)
                .map(|usage| [usage.input, usage.output, usage.reasoning, usage.cache_read, usage.provider_tool_calls])
        };
        let xai = r#"{"input_tokens": 43321, "input_tokens_details": {"cached_tokens": 26624}, "output_tokens": 3405,
            "output_tokens_details": {"reasoning_tokens": 2700}, "num_server_side_tools_used": 11, "context_details": {"input_tokens": 18015, "output_tokens": 2603}}"#;
        assert_eq!(last(xai), Some([18_015, 2_603, 2_603, 18_015, 0]));
        assert_eq!(last(r#"{"input_tokens": 9, "output_tokens": 5}"#), None);
        assert_eq!(last(r#"{"input_tokens": 9, "output_tokens": 5, "context_details": {"input_tokens": 8}}"#), None);
    }

    #[test]
    fn odd_usage_is_read_as_far_as_it_can_be() {
        check(r#"{"input_tokens": "9", "output_tokens": 5.0}"#, Some([9, 5, 0, 0, 0]));
        check(
            r#"{"input_tokens": 9, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 7}}"#,
            Some([9, 5, 5, 0, 0]),
        );
        check(r#"{"output_tokens": 5, "input_tokens_details": null}"#, Some([0, 5, 0, 0, 0]));
        check(r#"{"cost": 1}"#, None);
        check("[]", None);
    }
}
