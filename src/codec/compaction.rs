//! Compactions, to and from their proto form, which is also the stored form.

use prost::Message as _;

use crate::{
    model::{
        Compaction, CompactionState, Failure, FailureReason, SessionId,
        compaction::{Strategy, Summary, Trigger},
    },
    pb,
};

use super::{
    DecodeError,
    field::{Field, choices},
};

choices! {
    CompactionState = CompactionState { Planned, Running, Applied, Failed, Reverted }
    Trigger = CompactionTrigger { Overflow, Threshold, Manual, ProviderOverflow }
    Strategy = CompactionStrategy {
        ReactiveOverflow, ProactiveThreshold, MiddleRemoval, Truncation,
    }
}

/// Converts a compaction for the wire.
pub fn to_pb(compaction: &Compaction, session: &SessionId) -> pb::Compaction {
    pb::Compaction { session_id: session.to_string(), ..compaction.to_field() }
}

/// Encodes a compaction for storage.
pub fn encode(compaction: &Compaction) -> Vec<u8> {
    let compaction: pb::Compaction = compaction.to_field();
    compaction.encode_to_vec()
}

/// Decodes a stored compaction.
pub fn decode(bytes: &[u8]) -> Result<Compaction, DecodeError> {
    Compaction::from_field("compaction", super::read("compaction", bytes)?)
}

/// The failure of a compaction whose replica stopped.
pub fn replica_stopped_failure() -> Failure {
    Failure::local(FailureReason::Internal, "the server that ran it stopped", true)
}

/// The stored form has no session id.
impl Field<pb::Compaction> for Compaction {
    fn to_field(&self) -> pb::Compaction {
        let Self {
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
        } = self;
        let (from, to) = range.unwrap_or_default();
        let (text, message, model) = summary.as_ref().map_or_else(Default::default, |summary| {
            let Summary { text, message, model } = summary;
            (text.clone(), message.to_string(), model.clone())
        });
        pb::Compaction {
            compaction_id: id.to_field(),
            session_id: String::new(),
            state: state.to_field(),
            trigger: trigger.to_field(),
            strategy: strategy.to_field(),
            from_seq: from.to_field(),
            to_seq: to.to_field(),
            messages_compacted: messages_compacted.to_field(),
            messages_before: messages_before.to_field(),
            messages_after: messages_after.to_field(),
            tokens_before: tokens_before.to_field(),
            tokens_after: tokens_after.to_field(),
            limit_tokens: limit.to_field(),
            was_pruned: *was_pruned,
            was_summarized: !model.is_empty(),
            summary: text,
            summary_message_id: message,
            summary_model: model,
            usage: usage.to_field(),
            predecessor_id: predecessor.to_field(),
            referenced_tools: referenced_tools.clone(),
            unreferenced_tools: unreferenced_tools.clone(),
            failure: failure.to_field(),
            create_time: created_at.to_field(),
            end_time: ended_at.to_field(),
            revert_time: reverted_at.to_field(),
        }
    }

    fn from_field(_: &'static str, compaction: pb::Compaction) -> Result<Self, DecodeError> {
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
        let range = (Field::from_field("from_seq", from_seq)?, Field::from_field("to_seq", to_seq)?);
        let made = Summary {
            message: Field::from_field("summary_message_id", summary_message_id)?,
            text: summary,
            model: summary_model,
        };
        Ok(Self {
            id: Field::from_field("compaction_id", compaction_id)?,
            state: Field::from_field("compaction state", state)?,
            trigger: Field::from_field("compaction trigger", trigger)?,
            strategy: Field::from_field("compaction strategy", strategy)?,
            range: Some(range).filter(|_| to_seq > 0),
            messages_compacted: Field::from_field("messages_compacted", messages_compacted)?,
            messages_before: Field::from_field("messages_before", messages_before)?,
            messages_after: Field::from_field("messages_after", messages_after)?,
            tokens_before: Field::from_field("tokens_before", tokens_before)?,
            tokens_after: Field::from_field("tokens_after", tokens_after)?,
            limit: Field::from_field("limit_tokens", limit_tokens)?,
            was_pruned,
            summary: Some(made).filter(|summary| !summary.text.is_empty()),
            usage: Field::from_field("usage", usage)?,
            predecessor: Field::from_field("predecessor_id", predecessor_id)?,
            referenced_tools,
            unreferenced_tools,
            failure: Field::from_field("failure", failure)?,
            created_at: Field::from_field("create_time", create_time)?,
            ended_at: Field::from_field("end_time", end_time)?,
            reverted_at: Field::from_field("revert_time", revert_time)?,
        })
    }
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
