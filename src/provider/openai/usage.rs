//! Normalizes usage reports: input includes all cached tokens, output includes all reasoning.

use serde_json::value::RawValue;

use crate::{
    model::Usage,
    provider::http::report::{count, kept, member, tool_calls, usage},
};

/// The usage report in Groq's extension field of an event.
pub(super) fn of_groq(corner: &RawValue) -> Option<Box<RawValue>> {
    member(corner, "usage").filter(|report| report.get() != "null").map(ToOwned::to_owned)
}

/// The usage in a report. `reasoning_outside`: the completion tokens do not include reasoning.
/// Returns `None` if it reports nothing.
pub(super) fn read(report: &RawValue, reasoning_outside: bool) -> Option<Usage> {
    let number = |path: &str| count(report, path);
    let prompt = number("/prompt_tokens");
    let completion = number("/completion_tokens");
    if prompt.is_none() && completion.is_none() {
        return None;
    }
    let mut input = prompt.unwrap_or(0);
    let mut output = completion.unwrap_or(0);
    let cache_read =
        ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/num_cached_tokens", "/cached_tokens"];
    let cache_read = cache_read.into_iter().find_map(number).unwrap_or(0);
    let cache_write = number("/prompt_tokens_details/cache_write_tokens").unwrap_or(0);
    let reasoning = number("/completion_tokens_details/reasoning_tokens").unwrap_or(0);
    if reasoning_outside {
        output = output.saturating_add(reasoning);
    }
    // Some xAI models do not include cached tokens in the prompt tokens.
    if cache_read > input {
        input = input.saturating_add(cache_read);
    }
    // Mistral does not include audio tokens in the prompt tokens, which shows in the total.
    let sound = number("/prompt_tokens_details/audio_tokens").unwrap_or(0);
    if sound > 0 && number("/total_tokens") == input.checked_add(sound).and_then(|sum| sum.checked_add(output)) {
        input = input.saturating_add(sound);
    }
    Some(Usage {
        provider_tool_calls: tool_calls(report),
        provider_json: kept(report),
        ..usage(input, output, reasoning, [cache_read, cache_write])
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::provider::openai::dialect::named;

    fn check(dialect: &str, report: Value, expected: Option<[u32; 5]>) {
        check_text(dialect, &report.to_string(), expected);
    }

    fn check_text(dialect: &str, report: &str, expected: Option<[u32; 5]>) {
        let raw = RawValue::from_string(report.to_owned()).expect("JSON");
        let usage = read(&raw, named(dialect).expect("a dialect").reasoning_outside);
        let numbers =
            usage.map(|usage| [usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_write]);
        assert_eq!(numbers, expected, "{dialect}: {report}");
    }

    /// Row A13
    #[test]
    fn usage_reports_are_normalized() {
        let plain =
            json!({"prompt_tokens": 9, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 3}});
        check("openai", plain.clone(), Some([9, 5, 3, 0, 0]));
        check("xai", plain, Some([9, 8, 3, 0, 0]));
        let cached = json!({"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2}});
        check("openai", cached, Some([9, 5, 0, 4, 2]));
        check(
            "deepseek",
            json!({"prompt_tokens": 9, "completion_tokens": 5, "prompt_cache_hit_tokens": 4}),
            Some([9, 5, 0, 4, 0]),
        );
        check(
            "mistral",
            json!({"prompt_tokens": 9, "completion_tokens": 5, "num_cached_tokens": 4}),
            Some([9, 5, 0, 4, 0]),
        );
        check(
            "compatible",
            json!({"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": null}),
            Some([9, 5, 0, 0, 0]),
        );
        let beside =
            json!({"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 12}});
        check("xai", beside, Some([21, 5, 0, 12, 0]));
        let sound = json!({"prompt_tokens": 11, "completion_tokens": 15, "total_tokens": 401, "prompt_tokens_details": {"audio_tokens": 375, "cached_tokens": 9}});
        check("mistral", sound, Some([386, 15, 0, 9, 0]));
        check(
            "openai",
            json!({"prompt_tokens": 386, "completion_tokens": 15, "total_tokens": 401, "prompt_tokens_details": {"audio_tokens": 375}}),
            Some([386, 15, 0, 0, 0]),
        );
    }

    #[test]
    fn impossible_usage_numbers_are_clamped_and_empty_reports_ignored() {
        let more =
            json!({"prompt_tokens": 9, "completion_tokens": 10, "completion_tokens_details": {"reasoning_tokens": 11}});
        check("openrouter", more, Some([9, 10, 10, 0, 0]));
        let overlap = json!({"prompt_tokens": 2168, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2161, "cache_write_tokens": 2161}});
        check("openrouter", overlap, Some([2168, 1, 0, 2161, 2161]));
        check(
            "openai",
            json!({"prompt_tokens": u64::MAX, "completion_tokens": u64::MAX}),
            Some([i32::MAX as u32, i32::MAX as u32, 0, 0, 0]),
        );
        check("openai", json!({"prompt_tokens": -1, "completion_tokens": "many"}), None);
        check("openai", json!({"cost": 1}), None);
        check("openai", json!([]), None);
        check("openai", json!({"completion_tokens": 4}), Some([0, 4, 0, 0, 0]));
    }

    #[test]
    fn a_usage_report_survives_odd_number_forms_and_unknown_fields() {
        let table = [
            r#"{"prompt_tokens": 9.0, "completion_tokens": 5}"#,
            r#"{"prompt_tokens": "9", "completion_tokens": 5.0}"#,
            r#"{"prompt_tokens": 9, "completion_tokens": 5, "cost": 1e999}"#,
            r#"{"prompt_tokens": 9, "completion_tokens": 5, "note": "\ud83d"}"#,
            r#"{"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": [], "completion_tokens_details": "none"}"#,
        ];
        for report in table {
            check_text("openai", report, Some([9, 5, 0, 0, 0]));
        }
    }
}
