//! Compactions, to and from their proto form, which is also the stored form.

use prost::Message as _;

use crate::{
    model::{
        Compaction, CompactionId, CompactionState, Failure, FailureReason, MessageId, Seq,
        SessionId,
        compaction::{Summary, Trigger},
    },
    pb,
};

use super::{
    DecodeError, failure,
    number::{known, signed, unsigned},
    policy::Field,
    time::{timestamp_from_pb, timestamp_to_pb},
    usage::{self, count_from_pb},
};

/// Converts a compaction for the wire.
pub fn to_pb(compaction: &Compaction, session: &SessionId) -> pb::Compaction {
    pb::Compaction {
        session_id: session.to_string(),
        ..stored(compaction)
    }
}

/// Encodes a compaction for storage.
pub fn encode(compaction: &Compaction) -> Vec<u8> {
    stored(compaction).encode_to_vec()
}

/// Decodes a stored compaction.
pub fn decode(bytes: &[u8]) -> Result<Compaction, DecodeError> {
    from_pb(super::read("compaction", bytes)?)
}

/// The failure of a compaction whose replica stopped.
pub fn replica_stopped_failure() -> Failure {
    Failure::local(
        FailureReason::Internal,
        "the server that ran it stopped",
        true,
    )
}

/// The proto form without the session id.
pub(super) fn stored(compaction: &Compaction) -> pb::Compaction {
    let Compaction {
        id,
        state,
        trigger,
        strategy,
        range,
        messages_compacted,
        messages_before,
        messages_after,
        tokens_before,
        tokens_after,
        limit,
        was_pruned,
        summary,
        usage,
        predecessor,
        referenced_tools,
        unreferenced_tools,
        failure,
        created_at,
        ended_at,
        reverted_at,
    } = compaction;
    let text = |text: Option<&CompactionId>| text.map(ToString::to_string).unwrap_or_default();
    let (from, to) = range.unwrap_or_default();
    let (words, message, model) = summary.as_ref().map_or_else(Default::default, |summary| {
        let Summary {
            text,
            message,
            model,
        } = summary;
        (text.clone(), message.to_string(), model.clone())
    });
    pb::Compaction {
        compaction_id: text(id.as_ref()),
        session_id: String::new(),
        state: state_to_pb(*state).into(),
        trigger: trigger_to_pb(*trigger).into(),
        strategy: Some(*strategy).to_field(),
        from_seq: from.0,
        to_seq: to.0,
        messages_compacted: signed(*messages_compacted),
        messages_before: signed(*messages_before),
        messages_after: signed(*messages_after),
        tokens_before: Some(usage::count_to_pb(tokens_before)),
        tokens_after: tokens_after.as_ref().map(usage::count_to_pb),
        limit_tokens: signed(*limit),
        was_pruned: *was_pruned,
        was_summarized: !model.is_empty(),
        summary: words,
        summary_message_id: message,
        summary_model: model,
        usage: Some(usage::totals_to_pb(usage)),
        predecessor_id: text(predecessor.as_ref()),
        referenced_tools: referenced_tools.clone(),
        unreferenced_tools: unreferenced_tools.clone(),
        failure: failure.as_ref().map(failure::to_pb),
        create_time: created_at.map(timestamp_to_pb),
        end_time: ended_at.map(timestamp_to_pb),
        revert_time: reverted_at.map(timestamp_to_pb),
    }
}

/// Reads a stored compaction, which has no session id.
pub(super) fn from_pb(compaction: pb::Compaction) -> Result<Compaction, DecodeError> {
    let pb::Compaction {
        compaction_id,
        session_id: _,
        state,
        trigger,
        strategy,
        from_seq,
        to_seq,
        messages_compacted,
        messages_before,
        messages_after,
        tokens_before,
        tokens_after,
        limit_tokens,
        was_pruned,
        was_summarized: _,
        summary,
        summary_message_id,
        summary_model,
        usage,
        predecessor_id,
        referenced_tools,
        unreferenced_tools,
        failure,
        create_time,
        end_time,
        revert_time,
    } = compaction;
    let id = |id: String| Some(id).filter(|id| !id.is_empty()).map(CompactionId::new);
    let missing = |what: &'static str| move || DecodeError::new(what, "it is not set");
    let messages = |number| unsigned("compaction message count", number);
    Ok(Compaction {
        id: id(compaction_id),
        state: state_from_pb(known("compaction state", state)?)?,
        trigger: trigger_from_pb(known("compaction trigger", trigger)?)?,
        strategy: Option::from_field("strategy", strategy)?
            .ok_or_else(missing("compaction strategy"))?,
        range: (to_seq > 0).then_some((Seq(from_seq), Seq(to_seq))),
        messages_compacted: messages(messages_compacted)?,
        messages_before: messages(messages_before)?,
        messages_after: messages(messages_after)?,
        tokens_before: count_from_pb(tokens_before.unwrap_or_default())?,
        tokens_after: tokens_after.map(count_from_pb).transpose()?,
        limit: unsigned("compaction limit", limit_tokens)?,
        was_pruned,
        summary: (!summary.is_empty()).then(|| Summary {
            text: summary,
            message: MessageId::new(summary_message_id),
            model: summary_model,
        }),
        usage: usage::totals_from_pb(usage.unwrap_or_default()),
        predecessor: id(predecessor_id),
        referenced_tools,
        unreferenced_tools,
        failure: failure.map(failure::from_pb).transpose()?,
        created_at: create_time.map(timestamp_from_pb).transpose()?,
        ended_at: end_time.map(timestamp_from_pb).transpose()?,
        reverted_at: revert_time.map(timestamp_from_pb).transpose()?,
    })
}

fn state_to_pb(state: CompactionState) -> pb::CompactionState {
    match state {
        CompactionState::Planned => pb::CompactionState::Planned,
        CompactionState::Running => pb::CompactionState::Running,
        CompactionState::Applied => pb::CompactionState::Applied,
        CompactionState::Failed => pb::CompactionState::Failed,
        CompactionState::Reverted => pb::CompactionState::Reverted,
    }
}

fn state_from_pb(state: pb::CompactionState) -> Result<CompactionState, DecodeError> {
    Ok(match state {
        pb::CompactionState::Unspecified => {
            return Err(DecodeError::new("compaction state", "it is not set"));
        }
        pb::CompactionState::Planned => CompactionState::Planned,
        pb::CompactionState::Running => CompactionState::Running,
        pb::CompactionState::Applied => CompactionState::Applied,
        pb::CompactionState::Failed => CompactionState::Failed,
        pb::CompactionState::Reverted => CompactionState::Reverted,
    })
}

fn trigger_to_pb(trigger: Trigger) -> pb::CompactionTrigger {
    match trigger {
        Trigger::Overflow => pb::CompactionTrigger::Overflow,
        Trigger::Threshold => pb::CompactionTrigger::Threshold,
        Trigger::Manual => pb::CompactionTrigger::Manual,
        Trigger::ProviderOverflow => pb::CompactionTrigger::ProviderOverflow,
    }
}

fn trigger_from_pb(trigger: pb::CompactionTrigger) -> Result<Trigger, DecodeError> {
    Ok(match trigger {
        pb::CompactionTrigger::Unspecified => {
            return Err(DecodeError::new("compaction trigger", "it is not set"));
        }
        pb::CompactionTrigger::Overflow => Trigger::Overflow,
        pb::CompactionTrigger::Threshold => Trigger::Threshold,
        pb::CompactionTrigger::Manual => Trigger::Manual,
        pb::CompactionTrigger::ProviderOverflow => Trigger::ProviderOverflow,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::arbitrary;

    proptest! {
        #[test]
        fn compaction_round_trips(compaction in arbitrary::compaction()) {
            prop_assert_eq!(decode(&encode(&compaction)), Ok(compaction));
        }
    }
}
