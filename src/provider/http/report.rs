//! Reads usage reports: token counts at paths within the JSON of a service, and the JSON itself.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

use super::lenient;
use crate::model::Usage;

/// Limit on the bytes of a report that is stored unchanged.
const MAX_REPORT_BYTES: usize = 16 << 10;

/// The merged usage reports of one response: fields of a later report replace those of an earlier
/// one.
#[derive(Debug, Default)]
pub(crate) struct MergedReport(BTreeMap<String, Box<RawValue>>);

impl MergedReport {
    /// Merges a report.
    pub(crate) fn add(&mut self, report: &RawValue) {
        let given: BTreeMap<&str, &RawValue> = lenient::read(report);
        for (key, value) in given {
            // Most of a report equals the previous one.
            let known = self.0.get(key).is_some_and(|it| it.get() == value.get());
            if !known && value.get() != "null" {
                self.0.insert(key.to_owned(), value.to_owned());
            }
        }
    }

    /// The value of a field.
    pub(crate) fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.get(key).map(AsRef::as_ref)
    }

    /// The number in a field.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(lenient::count)
    }

    /// The whole report.
    pub(crate) fn whole(&self) -> Option<Box<RawValue>> {
        to_raw_value(&self.0).ok()
    }
}

/// The number at a path such as `/details/cached`. Returns `None` if there is none.
pub fn count(report: &RawValue, path: &str) -> Option<u64> {
    lenient::count(path.split('/').skip(1).try_fold(report, member)?)
}

/// Number of server tool calls: the reports of Anthropic and `OpenRouter` count them by kind, those
/// of xAI in total. A gateway may report the same calls in both ways, so the larger number is
/// returned.
pub fn tool_calls(report: &RawValue) -> u32 {
    let by_kind = member(report, "server_tool_use").map_or(0, |kinds| {
        let counts = ["/web_search_requests", "/web_fetch_requests"].into_iter();
        let counts = counts.filter_map(|path| count(kinds, path));
        counts.fold(0, u64::saturating_add)
    });
    let together = count(report, "/num_server_side_tools_used").unwrap_or(0);
    tokens(by_kind.max(together))
}

/// A member of an object. The other members are not parsed.
pub fn member<'a>(object: &'a RawValue, key: &str) -> Option<&'a RawValue> {
    serde_json::from_str::<BTreeMap<String, &'a RawValue>>(object.get()).ok()?.remove(key)
}

/// The usage with these token counts, of which cached tokens are part of the input and reasoning is
/// part of the output.
pub fn usage(input: u64, output: u64, reasoning: u64, [cache_read, cache_write]: [u64; 2]) -> Usage {
    Usage {
        input: tokens(input),
        output: tokens(output),
        reasoning: tokens(reasoning.min(output)),
        cache_read: tokens(cache_read.min(input)),
        cache_write: tokens(cache_write.min(input)),
        ..Usage::default()
    }
}

/// A token count, saturated at the maximum of the API's type.
pub fn tokens(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX).min(i32::MAX.unsigned_abs())
}

/// The report unchanged. Empty if it exceeds the limit.
pub fn kept(report: &RawValue) -> String {
    let json = Some(report.get()).filter(|json| json.len() <= MAX_REPORT_BYTES);
    json.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_services_tools_are_read_of_each_kind_of_report() {
        let check = |report: &str, expected: u32| {
            let raw = RawValue::from_string(report.to_owned()).expect("JSON");
            assert_eq!(tool_calls(&raw), expected, "{report}");
        };
        check(r#"{"input_tokens": 9}"#, 0);
        check(r#"{"server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1}}"#, 3);
        check(r#"{"server_tool_use": null, "num_server_side_tools_used": 4}"#, 4);
        check(r#"{"server_tool_use": {"web_search_requests": 2}, "num_server_side_tools_used": 3}"#, 3);
        check(r#"{"server_tool_use": {"web_search_requests": "2"}}"#, 2);
    }
}
