//! Reports about the context to and from their proto forms.

use crate::{
    model::{
        CallId, PrepareReport, PruneReport, Restored, Seq, SessionId,
        ledger::{Occupant, Share},
    },
    pb,
};

use super::{
    DecodeError, compaction,
    number::{known, signed, unsigned},
    queue,
    usage::{count_from_pb, count_to_pb},
};

/// What a prune cleared, for the wire.
pub fn pruned_to_pb(report: &PruneReport) -> pb::PruneReport {
    let PruneReport { calls, tools, saved, rebilled, at } = report;
    pb::PruneReport {
        outputs_pruned: i32::try_from(calls.len()).unwrap_or(i32::MAX),
        tokens_saved: signed(*saved),
        tool_names: tools.clone(),
        call_ids: calls.iter().map(ToString::to_string).collect(),
        rebilled_tokens: signed(*rebilled),
        pruned_at_seq: at.unwrap_or_default().0,
    }
}

/// What a prune cleared, as the event with that seq tells.
pub fn decode_pruned(payload: &[u8], at: Seq) -> Result<PruneReport, DecodeError> {
    let pb::ContextPruned { report } = super::read("context_pruned", payload)?;
    pruned_from_pb(report.unwrap_or_default(), at)
}

fn pruned_from_pb(report: pb::PruneReport, at: Seq) -> Result<PruneReport, DecodeError> {
    let pb::PruneReport { outputs_pruned: _, tokens_saved, tool_names, call_ids, rebilled_tokens, pruned_at_seq: _ } =
        report;
    Ok(PruneReport {
        calls: call_ids.into_iter().map(CallId::new).collect(),
        tools: tool_names,
        saved: unsigned("tokens saved", tokens_saved)?,
        rebilled: unsigned("tokens billed again", rebilled_tokens)?,
        at: Some(at),
    })
}

/// What was done to make a prompt of a session fit, for the wire; the prompt in the answer has its own size.
pub fn prepared_to_pb(report: &PrepareReport, session: &SessionId) -> pb::PrepareReport {
    let PrepareReport { before, pruned, compacted, prune, compaction, applied } = report;
    pb::PrepareReport {
        tokens_before: Some(count_to_pb(before)),
        tokens_after_prune: Some(count_to_pb(pruned)),
        tokens_after_compaction: Some(count_to_pb(compacted)),
        tokens_final: Some(count_to_pb(compacted)),
        prune: prune.as_ref().map(pruned_to_pb),
        compaction: compaction.as_ref().map(|made| compaction::to_pb(made, session)),
        applied_messages: applied.iter().map(queue::applied_to_pb).collect(),
    }
}

/// The same as it was remembered; what it pruned is named by that seq.
pub(super) fn prepared_from_pb(report: pb::PrepareReport, at: Seq) -> Result<PrepareReport, DecodeError> {
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
        prune: prune.map(|prune| pruned_from_pb(prune, at)).transpose()?,
        compaction: compaction.map(compaction::from_pb).transpose()?.map(Box::new),
        applied: applied_messages.into_iter().map(queue::applied_from_pb).collect::<Result<_, _>>()?,
    })
}

/// What came back, for the wire.
pub fn restored_to_pb(restored: &Restored) -> pb::ContextRestored {
    let Restored { pruned_at, calls, tokens } = restored;
    pb::ContextRestored {
        pruned_at_seq: pruned_at.0,
        call_ids: calls.iter().map(ToString::to_string).collect(),
        tokens_restored: signed(*tokens),
    }
}

/// What came back, as the event tells.
pub fn decode_restored(payload: &[u8]) -> Result<Restored, DecodeError> {
    let pb::ContextRestored { pruned_at_seq, call_ids, tokens_restored } = super::read("context_restored", payload)?;
    Ok(Restored {
        pruned_at: Seq(pruned_at_seq),
        calls: call_ids.into_iter().map(CallId::new).collect(),
        tokens: unsigned("tokens restored", tokens_restored)?,
    })
}

/// A share of a window, for the wire.
pub fn share_to_pb(share: &Share) -> pb::CategoryTokens {
    pb::CategoryTokens {
        category: occupant_to_pb(share.occupant).into(),
        tokens: signed(share.tokens),
        count: signed(share.count),
        in_total: share.in_total(),
    }
}

/// A share of a window, as it was stored.
pub fn share_from_pb(share: pb::CategoryTokens) -> Result<Share, DecodeError> {
    let pb::CategoryTokens { category, tokens, count, in_total: _ } = share;
    Ok(Share {
        occupant: occupant_from_pb(known("context category", category)?)?,
        tokens: unsigned("context category", tokens)?,
        count: unsigned("context category", count)?,
    })
}

/// What occupies a window.
pub fn occupant_to_pb(occupant: Occupant) -> pb::ContextCategory {
    use pb::ContextCategory as C;
    match occupant {
        Occupant::SystemPrompt => C::SystemPrompt,
        Occupant::Tools => C::Tools,
        Occupant::McpTools => C::McpTools,
        Occupant::DeferredTools => C::DeferredTools,
        Occupant::Skills => C::Skills,
        Occupant::Agents => C::Agents,
        Occupant::Memory => C::Memory,
        Occupant::Pinned => C::Pinned,
        Occupant::Summary => C::Summary,
        Occupant::User => C::User,
        Occupant::Assistant => C::Assistant,
        Occupant::Reasoning => C::Reasoning,
        Occupant::ToolCalls => C::ToolCalls,
        Occupant::ToolResults => C::ToolResults,
        Occupant::Media => C::Media,
        Occupant::Queued => C::Queued,
    }
}

fn occupant_from_pb(category: pb::ContextCategory) -> Result<Occupant, DecodeError> {
    use pb::ContextCategory as C;
    Ok(match category {
        C::Unspecified => return Err(DecodeError::new("context category", "it is not set")),
        C::SystemPrompt => Occupant::SystemPrompt,
        C::Tools => Occupant::Tools,
        C::McpTools => Occupant::McpTools,
        C::DeferredTools => Occupant::DeferredTools,
        C::Skills => Occupant::Skills,
        C::Agents => Occupant::Agents,
        C::Memory => Occupant::Memory,
        C::Pinned => Occupant::Pinned,
        C::Summary => Occupant::Summary,
        C::User => Occupant::User,
        C::Assistant => Occupant::Assistant,
        C::Reasoning => Occupant::Reasoning,
        C::ToolCalls => Occupant::ToolCalls,
        C::ToolResults => Occupant::ToolResults,
        C::Media => Occupant::Media,
        C::Queued => Occupant::Queued,
    })
}
