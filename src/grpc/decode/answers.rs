//! Decodes SubmitToolResults: the results of tool calls, and approvals.

use std::collections::BTreeMap;

use super::{Decode, Findings, Path, json, media, number, part, text};
use crate::{
    codec::DecodeError,
    context::sanitize::{self, SanitizedText},
    model::{
        BlobId, CallId, OutputPart, SessionId, ToolOutcome,
        command::{Decision, SubmitToolResults, SubmittedResult, Verdict},
    },
    pb::{self, FieldReason, limits::submit_tool_results_request},
};

/// Maximum number of results and approvals in a request.
const MAX_ANSWERS: usize = submit_tool_results_request::RESULTS;
/// Maximum size of the texts of a result, in bytes. Larger ones go through PutBlob.
const MAX_RESULT_BYTES: usize = 3 << 20;

impl Decode for pb::SubmitToolResultsRequest {
    type Command = SubmitToolResults;

    fn blobs(&self) -> Vec<BlobId> {
        media::referenced_blobs(self.results.iter().flat_map(|result| &result.parts))
    }

    fn read(self, found: &mut Findings) -> Result<SubmitToolResults, DecodeError> {
        let Self { session_id, request_id, results, approvals } = self;
        let at = Path::to("results");
        let at_approvals = Path::to("approvals");
        check_number(at, results.len() + approvals.len(), found);
        check_once(at, &results, at_approvals, &approvals, found);
        Ok(SubmitToolResults {
            session: SessionId::new(session_id),
            idempotency: found.idempotency(request_id),
            results: results.into_iter().enumerate().map(|(i, r)| result(at.index(i), r, found)).collect(),
            decisions: approvals
                .into_iter()
                .enumerate()
                .filter_map(|(i, a)| decision(at_approvals.index(i), a, found))
                .collect(),
            contents: found.take_contents(),
        })
    }
}

fn check_number(at: Path<'_>, answers: usize, found: &mut Findings) {
    if answers == 0 {
        found.required(at);
    }
    if answers > MAX_ANSWERS {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must be at most {MAX_ANSWERS} results and approvals in total"),
        );
    }
}

/// Reports calls that are answered twice in the request.
fn check_once(
    at_results: Path<'_>,
    results: &[pb::ToolResult],
    at_approvals: Path<'_>,
    approvals: &[pb::Approval],
    found: &mut Findings,
) {
    let results = results.iter().enumerate().map(|(i, result)| (&result.call_id, (at_results, i)));
    let approvals = approvals.iter().enumerate().map(|(i, approval)| (&approval.call_id, (at_approvals, i)));
    let mut seen = BTreeMap::new();
    for (call, (list, i)) in results.chain(approvals).filter(|(call, _)| !call.is_empty()) {
        if let Some((first_list, first)) = seen.insert(call, (list, i)) {
            let here = list.index(i);
            let description = format!("{} has the same call_id", first_list.index(first));
            found.invalid(here.field("call_id"), FieldReason::Conflict, description);
        }
    }
}

/// Decodes a tool result. The tool name is ignored, because the call has it.
pub(super) fn result(at: Path<'_>, result: pb::ToolResult, found: &mut Findings) -> SubmittedResult {
    let pb::ToolResult { call_id, tool_name: _, parts, outcome, truncation: _, prune_mark: _, display_text: _ } =
        result;
    let (parts, sanitized) = result_parts(at.field("parts"), parts, found);
    SubmittedResult {
        call: CallId::new(call_id),
        parts,
        outcome: self::outcome(at.field("outcome"), outcome, found),
        sanitized,
        display_text: String::new(),
    }
}

/// Decodes a tool result in the format of another API, in which it may report that a person denied the call.
pub(super) fn foreign_result(at: Path<'_>, result: pb::ToolResult, found: &mut Findings) -> SubmittedResult {
    if result.outcome() != pb::ToolOutcome::Denied {
        return self::result(at, result, found);
    }
    let failed = pb::ToolResult { outcome: pb::ToolOutcome::Error.into(), ..result };
    SubmittedResult { outcome: ToolOutcome::Denied, ..self::result(at, failed, found) }
}

/// Decodes the parts of a tool result. Empty texts are dropped instead of rejected, because a tool may print
/// nothing.
fn result_parts(at: Path<'_>, parts: Vec<pb::Part>, found: &mut Findings) -> (Vec<OutputPart>, bool) {
    let given: Vec<_> =
        parts.into_iter().enumerate().filter_map(|(i, part)| part::result_part(at.index(i), part, found)).collect();
    if given.iter().filter_map(OutputPart::text).map(str::len).sum::<usize>() > MAX_RESULT_BYTES {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MAX_RESULT_BYTES} bytes of text in total"),
        );
    }
    let (given, replaced): (Vec<_>, Vec<_>) = given
        .into_iter()
        .filter(|given| given.text() != Some(""))
        .map(|given| match given {
            OutputPart::Text(text) => {
                let SanitizedText { text, replaced } = sanitize::sanitize_text(&text);
                (OutputPart::Text(text), replaced)
            }
            OutputPart::Media(medium) => (OutputPart::Media(medium), false),
        })
        .unzip();
    (given, replaced.contains(&true))
}

fn outcome(at: Path<'_>, outcome: i32, found: &mut Findings) -> ToolOutcome {
    use pb::ToolOutcome as Wire;
    match number::choice(outcome) {
        Some(Wire::Unspecified | Wire::Success) | None => ToolOutcome::Success,
        Some(Wire::Error) => ToolOutcome::Error,
        Some(Wire::Denied | Wire::TimedOut | Wire::Cancelled) => {
            found.invalid(at, FieldReason::Unsupported, "must be SUCCESS or ERROR");
            ToolOutcome::Error
        }
    }
}

/// Decodes an approval. Returns `None` if it has no valid decision.
fn decision(at: Path<'_>, approval: pb::Approval, found: &mut Findings) -> Option<Decision> {
    let pb::Approval { call_id, decision, edited_arguments_json, reason } = approval;
    let at_edited = at.field("edited_arguments_json");
    let at_reason = at.field("reason");
    let call = CallId::new(call_id);
    let edited = json::optional_object(at_edited, edited_arguments_json, found);
    let (reason, sanitized) = text::replace_nul(reason);
    let verdict = match number::choice(decision)? {
        pb::ApprovalDecision::Unspecified => return None,
        pb::ApprovalDecision::Approve => {
            conflict(at_reason, !reason.is_empty(), "must be empty if the decision is APPROVE", found);
            Verdict::Approve { edited }
        }
        pb::ApprovalDecision::Deny => {
            conflict(at_edited, edited.is_some(), "must be empty if the decision is DENY", found);
            Verdict::Deny { sanitized, reason }
        }
    };
    Some(Decision { call, verdict })
}

fn conflict(at: Path<'_>, is_set: bool, why: &str, found: &mut Findings) {
    if is_set {
        found.invalid(at, FieldReason::Conflict, why);
    }
}
