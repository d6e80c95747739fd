//! Reports of usage: numbers somewhere in the JSON of a service, and the JSON itself.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::lenient;

/// Bytes of a report that are kept as they came.
const MAX_REPORT_BYTES: usize = 16 << 10;

/// The number at a path such as `/details/cached`. `None` means there is none.
pub fn count(report: &RawValue, path: &str) -> Option<u64> {
    lenient::count(path.split('/').skip(1).try_fold(report, member)?)
}

/// A member of an object. The others are not read: whatever they are, they cannot matter.
pub fn member<'a>(object: &'a RawValue, key: &str) -> Option<&'a RawValue> {
    serde_json::from_str::<BTreeMap<String, &'a RawValue>>(object.get())
        .ok()?
        .remove(key)
}

/// A number of tokens that the API can carry.
pub fn tokens(number: u64) -> u32 {
    u32::try_from(number)
        .unwrap_or(u32::MAX)
        .min(i32::MAX.unsigned_abs())
}

/// The report as it came; empty if it is too long to be kept.
pub fn kept(report: &RawValue) -> String {
    Some(report.get())
        .filter(|json| json.len() <= MAX_REPORT_BYTES)
        .unwrap_or_default()
        .to_owned()
}
