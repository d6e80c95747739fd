//! Reports about the context, to and from their proto forms.

use crate::{
    model::{Compaction, PrepareReport, PruneReport, Restored, Seq, SessionId},
    pb,
};

use super::{
    DecodeError,
    field::{Field, messages},
};

messages! {
    PruneReport = PruneReport {
        calls = call_ids,
        tools = tool_names,
        saved = tokens_saved,
        rebilled = rebilled_tokens,
        at = pruned_at_seq,
        _ = outputs_pruned: |report| i32::try_from(report.calls.len()).unwrap_or(i32::MAX),
    }
    // The size of the prompt itself is a separate field of the response.
    PrepareReport = PrepareReport {
        before = tokens_before,
        pruned = tokens_after_prune,
        compacted = tokens_after_compaction,
        prune,
        compaction,
        applied = applied_messages,
        _ = tokens_final: |report| report.compacted.to_field(),
    }
    Restored = ContextRestored {
        pruned_at = pruned_at_seq,
        calls = call_ids,
        tokens = tokens_restored,
    }
}

impl Field<pb::Compaction> for Box<Compaction> {
    fn to_field(&self) -> pb::Compaction {
        (**self).to_field()
    }

    fn from_field(name: &'static str, field: pb::Compaction) -> Result<Self, DecodeError> {
        Compaction::from_field(name, field).map(Self::new)
    }
}

/// Reads a prune report from the payload of its event; `at` is the seq of that event.
pub fn decode_prune_report(payload: &[u8], at: Seq) -> Result<PruneReport, DecodeError> {
    let pb::ContextPruned { report } = super::read("context_pruned", payload)?;
    Ok(PruneReport { at: Some(at), ..Field::from_field("report", report)? })
}

/// Converts the report of how a prompt was made to fit.
pub fn prepare_report_to_pb(report: &PrepareReport, session: &SessionId) -> pb::PrepareReport {
    let mut report: pb::PrepareReport = report.to_field();
    if let Some(compaction) = &mut report.compaction {
        compaction.session_id = session.to_string();
    }
    report
}

/// Reads a stored report; `at` is the seq of the prune that it contains.
pub(super) fn prepare_report_from_pb(report: pb::PrepareReport, at: Seq) -> Result<PrepareReport, DecodeError> {
    let mut report = PrepareReport::from_field("preparation report", report)?;
    if let Some(prune) = &mut report.prune {
        prune.at = Some(at);
    }
    Ok(report)
}

/// Reads a report of restored content from the payload of its event.
pub fn decode_restored(payload: &[u8]) -> Result<Restored, DecodeError> {
    let restored: pb::ContextRestored = super::read("context_restored", payload)?;
    Restored::from_field("context_restored", restored)
}
