//! Reads the service's usage reports. Thoughts are counted separately from the response, and tokens
//! that server tools read separately from the prompt.

use crate::{
    model::Usage,
    provider::http::report::{self, MergedReport, tokens},
};

/// The usage without what server tools read, that is, of the prompt as sent, which the next prompt
/// extends. Returns `None` if no server tool read anything.
pub(super) fn without_tools(merged: &MergedReport) -> Option<Usage> {
    let positive = |key| merged.number(key).filter(|tokens| *tokens > 0);
    let prompt = positive("promptTokenCount")?;
    positive("toolUsePromptTokenCount")?;
    let cached = merged.number("cachedContentTokenCount").unwrap_or(0);
    Some(Usage {
        input: tokens(prompt),
        cache_read: tokens(cached.min(prompt)),
        provider_tool_calls: 0,
        provider_json: String::new(),
        ..read(merged)?
    })
}

/// The usage in the merged reports of one response. Reports are cumulative; some contain only the
/// kind of traffic. Returns `None` if nothing was reported.
pub(super) fn read(merged: &MergedReport) -> Option<Usage> {
    let number = |key: &str| merged.number(key);
    let prompt = number("promptTokenCount");
    let answer = number("candidatesTokenCount");
    let thoughts = number("thoughtsTokenCount");
    if prompt.is_none() && answer.is_none() && thoughts.is_none() {
        return None;
    }
    let read_by_tools = number("toolUsePromptTokenCount").unwrap_or(0);
    let input = prompt.unwrap_or(0).saturating_add(read_by_tools);
    let thoughts = thoughts.unwrap_or(0);
    let output = answer.unwrap_or(0).saturating_add(thoughts);
    let cached = number("cachedContentTokenCount").unwrap_or(0);
    let whole = merged.whole();
    Some(Usage {
        // The number of calls is not reported. Calls that leave an item in the response are counted
        // from the items.
        provider_tool_calls: u32::from(read_by_tools > 0),
        provider_json: whole.map(|whole| report::kept(&whole)).unwrap_or_default(),
        ..report::usage(input, output, thoughts, [cached, 0])
    })
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
    fn thoughts_and_what_tools_read_are_added_to_the_answer_and_the_prompt() {
        check(
            &[
                json!({"promptTokenCount": 32, "candidatesTokenCount": 25, "thoughtsTokenCount": 37, "toolUsePromptTokenCount": 4610, "cachedContentTokenCount": 30}),
            ],
            Some([4642, 62, 37, 30, 0]),
        );
    }

    #[test]
    fn p1_what_tools_read_is_no_part_of_the_prompt_that_was_sent() {
        let sent = |given: Value| {
            let mut report = MergedReport::default();
            report.add(&to_raw_value(&given).expect("JSON"));
            without_tools(&report).map(|usage| {
                assert_eq!(usage.provider_tool_calls, 0);
                [usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_write]
            })
        };
        assert_eq!(
            sent(
                json!({"promptTokenCount": 91, "candidatesTokenCount": 93, "thoughtsTokenCount": 211, "toolUsePromptTokenCount": 574, "cachedContentTokenCount": 100})
            ),
            Some([91, 93 + 211, 211, 91, 0])
        );
        assert_eq!(sent(json!({"promptTokenCount": 91, "candidatesTokenCount": 9})), None);
        assert_eq!(sent(json!({"toolUsePromptTokenCount": 574})), None);
    }

    #[test]
    fn the_last_report_wins_where_it_says_something() {
        check(
            &[
                json!({"promptTokenCount": 20, "candidatesTokenCount": 1}),
                json!({"trafficType": "ON_DEMAND", "candidatesTokenCount": null}),
                json!({"promptTokenCount": 89}),
            ],
            Some([89, 1, 0, 0, 0]),
        );
    }

    #[test]
    fn impossible_usage_numbers_are_clamped_and_empty_reports_ignored() {
        check(&[], None);
        check(&[json!({"trafficType": "ON_DEMAND"}), json!([1])], None);
        check(
            &[json!({"promptTokenCount": u64::MAX, "cachedContentTokenCount": 7, "thoughtsTokenCount": "3"})],
            Some([i32::MAX as u32, 3, 3, 7, 0]),
        );
        check(&[json!({"promptTokenCount": 5, "cachedContentTokenCount": 7})], Some([5, 0, 0, 5, 0]));
    }
}
