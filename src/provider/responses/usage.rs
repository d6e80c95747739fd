//! What services report of tokens, in one meaning: input with everything cached, output with all
//! reasoning.

use serde_json::value::RawValue;

use crate::{
    model::Usage,
    provider::http::report::{count, kept, tokens, tool_calls},
};

/// The usage in a report; `None` if it reports nothing.
pub(super) fn read(report: &RawValue) -> Option<Usage> {
    let number = |path: &str| count(report, path);
    let input = number("/input_tokens");
    let output = number("/output_tokens");
    if input.is_none() && output.is_none() {
        return None;
    }
    let input = input.unwrap_or(0);
    let output = output.unwrap_or(0);
    let part_of = |whole: u64, path: &str| tokens(number(path).unwrap_or(0).min(whole));
    Some(Usage {
        input: tokens(input),
        output: tokens(output),
        reasoning: part_of(output, "/output_tokens_details/reasoning_tokens"),
        cache_read: part_of(input, "/input_tokens_details/cached_tokens"),
        cache_write: part_of(input, "/input_tokens_details/cache_write_tokens"),
        provider_tool_calls: tool_calls(report),
        provider_json: kept(report),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(report: &str, expected: Option<[u32; 5]>) {
        let raw = RawValue::from_string(report.to_owned()).expect("JSON");
        let numbers = read(&raw).map(|usage| {
            assert_eq!(usage.provider_json, report);
            [
                usage.input,
                usage.output,
                usage.reasoning,
                usage.cache_read,
                usage.cache_write,
            ]
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
    fn odd_usage_is_read_as_far_as_it_can_be() {
        check(
            r#"{"input_tokens": "9", "output_tokens": 5.0}"#,
            Some([9, 5, 0, 0, 0]),
        );
        check(
            r#"{"input_tokens": 9, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 7}}"#,
            Some([9, 5, 5, 0, 0]),
        );
        check(
            r#"{"output_tokens": 5, "input_tokens_details": null}"#,
            Some([0, 5, 0, 0, 0]),
        );
        check(r#"{"cost": 1}"#, None);
        check("[]", None);
    }
}
