//! Reports about the context, to and from their proto forms.

use crate::{
    model::{CallId, PrepareReport, PruneReport, Restored, Seq, SessionId},
    pb,
};

use super::{
    DecodeError, applied, compaction,
    number::{signed, unsigned},
    usage::{count_from_pb, count_to_pb},
};

/// Converts a prune report for the wire.
pub fn prune_report_to_pb(report: &PruneReport) -> pb::PruneReport {
    let PruneReport {
        calls,
        tools,
        saved,
        rebilled,
        at,
    } = report;
    pb::PruneReport {
        outputs_pruned: i32::try_from(calls.len()).unwrap_or(i32::MAX),
        tokens_saved: signed(*saved),
        tool_names: tools.clone(),
        call_ids: calls.iter().map(ToString::to_string).collect(),
        rebilled_tokens: signed(*rebilled),
        pruned_at_seq: at.unwrap_or_default().0,
    }
}

/// Reads a prune report from the payload of its event; `at` is the seq of that event.
pub fn decode_prune_report(payload: &[u8], at: Seq) -> Result<PruneReport, DecodeError> {
    let pb::ContextPruned { report } = super::read("context_pruned", payload)?;
    prune_report_from_pb(report.unwrap_or_default(), at)
}

fn prune_report_from_pb(report: pb::PruneReport, at: Seq) -> Result<PruneReport, DecodeError> {
    let pb::PruneReport {
        outputs_pruned: _,
        tokens_saved,
        tool_names,
        call_ids,
        rebilled_tokens,
        pruned_at_seq: _,
    } = report;
    Ok(PruneReport {
        calls: call_ids.into_iter().map(CallId::new).collect(),
        tools: tool_names,
        saved: unsigned("tokens saved", tokens_saved)?,
        rebilled: unsigned("tokens billed again", rebilled_tokens)?,
        at: Some(at),
    })
}

/// Converts the report of how a prompt was made to fit. The size of the prompt itself is a separate field of the
/// response.
pub fn prepare_report_to_pb(report: &PrepareReport, session: &SessionId) -> pb::PrepareReport {
    let PrepareReport {
        before,
        pruned,
        compacted,
        prune,
        compaction,
        applied,
    } = report;
    pb::PrepareReport {
        tokens_before: Some(count_to_pb(before)),
        tokens_after_prune: Some(count_to_pb(pruned)),
        tokens_after_compaction: Some(count_to_pb(compacted)),
        tokens_final: Some(count_to_pb(compacted)),
        prune: prune.as_ref().map(prune_report_to_pb),
        compaction: compaction
            .as_ref()
            .map(|made| compaction::to_pb(made, session)),
        applied_messages: applied.iter().map(applied::to_pb).collect(),
    }
}

/// Reads a stored report; `at` is the seq of the prune that it contains.
pub(super) fn prepare_report_from_pb(
    report: pb::PrepareReport,
    at: Seq,
) -> Result<PrepareReport, DecodeError> {
    let pb::PrepareReport {
        tokens_before,
        tokens_after_prune,
        tokens_after_compaction,
        tokens_final: _,
        prune,
        compaction,
        applied_messages,
    } = report;
    Ok(PrepareReport {
        before: count_from_pb(tokens_before.unwrap_or_default())?,
        pruned: count_from_pb(tokens_after_prune.unwrap_or_default())?,
        compacted: count_from_pb(tokens_after_compaction.unwrap_or_default())?,
        prune: prune
            .map(|prune| prune_report_from_pb(prune, at))
            .transpose()?,
        compaction: compaction
            .map(compaction::from_pb)
            .transpose()?
            .map(Box::new),
        applied: applied_messages
            .into_iter()
            .map(applied::from_pb)
            .collect::<Result<_, _>>()?,
    })
}

/// Converts a report of restored content for the wire.
pub fn restored_to_pb(restored: &Restored) -> pb::ContextRestored {
    let Restored {
        pruned_at,
        calls,
        tokens,
    } = restored;
    pb::ContextRestored {
        pruned_at_seq: pruned_at.0,
        call_ids: calls.iter().map(ToString::to_string).collect(),
        tokens_restored: signed(*tokens),
    }
}

/// Reads a report of restored content from the payload of its event.
pub fn decode_restored(payload: &[u8]) -> Result<Restored, DecodeError> {
    let pb::ContextRestored {
        pruned_at_seq,
        call_ids,
        tokens_restored,
    } = super::read("context_restored", payload)?;
    Ok(Restored {
        pruned_at: Seq(pruned_at_seq),
        calls: call_ids.into_iter().map(CallId::new).collect(),
        tokens: unsigned("tokens restored", tokens_restored)?,
    })
}
