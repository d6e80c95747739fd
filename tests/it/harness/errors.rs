//! Reads the error details of a status.

use std::collections::BTreeMap;

use tonic::{Code, Status};
use tonic_types::StatusExt;

/// The published table of error reasons.
const TABLE: &str = include_str!("../../../proto/contextd/v1/error.proto");

/// The fields of a status that clients may rely on.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: Code,
    /// The reason of its ErrorInfo.
    pub reason: String,
    /// The metadata of its ErrorInfo.
    pub metadata: BTreeMap<String, String>,
    /// The fields of its BadRequest, each with its reason.
    pub fields: Vec<(String, String)>,
}

/// Reads a status. Fails if it is not one of contextd's, or has metadata that the published table does not list.
pub fn refusal(status: &Status) -> Refusal {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("a status without ErrorInfo: {status:?}"));
    assert_eq!(info.domain, "contextd.dev", "{status:?}");
    let documented = documented(&info.reason);
    for key in info.metadata.keys() {
        let names = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_') == key;
        assert!(documented.split_whitespace().any(names), "{} does not document {key}: {documented}", info.reason);
    }
    let fields = details.bad_request().map(|bad| bad.field_violations.clone()).unwrap_or_default();
    Refusal {
        code: status.code(),
        reason: info.reason.clone(),
        metadata: info.metadata.clone().into_iter().collect(),
        fields: fields.into_iter().map(|violation| (violation.field, violation.reason)).collect(),
    }
}

/// The metadata keys that the table lists for a reason, in braces. Empty if it lists none.
fn documented(reason: &str) -> &'static str {
    let value =
        TABLE.find(&format!("  ERROR_REASON_{reason} = ")).unwrap_or_else(|| panic!("{reason} is not published"));
    let before = &TABLE[..value];
    let comment = &before[before.rfind("  ERROR_REASON_").unwrap_or_default()..];
    comment.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(keys, _)| keys)
}
