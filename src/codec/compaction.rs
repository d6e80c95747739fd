//! Compactions, to and from their proto form, which is also the stored form.

use prost::Message as _;

use crate::{
    model::{
        Compaction, CompactionState, Failure, FailureReason, MessageId, Seq, SessionId,
        compaction::{Strategy, Summary, Trigger},
    },
    pb,
};

use super::{
    DecodeError,
    field::{Field, choices, messages},
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
    let compaction: pb::Compaction = super::read("compaction", bytes)?;
    Compaction::from_field("compaction", compaction)
}

/// The failure of a compaction whose replica stopped.
pub fn replica_stopped_failure() -> Failure {
    Failure::local(FailureReason::Internal, "the server that ran it stopped", true)
}

messages! {
    // The stored form has no session id.
    Compaction = Compaction {
        id = compaction_id,
        state,
        trigger,
        strategy,
        range = (from_seq, to_seq),
        messages_compacted,
        messages_before,
        messages_after,
        tokens_before,
        tokens_after,
        limit = limit_tokens,
        was_pruned,
        summary = (summary, summary_message_id, summary_model),
        usage,
        predecessor = predecessor_id,
        referenced_tools,
        unreferenced_tools,
        failure,
        created_at = create_time,
        ended_at = end_time,
        reverted_at = revert_time,
        _ = session_id,
        _ = was_summarized: |it| it.summary.as_ref().is_some_and(|summary| !summary.model.is_empty()),
    }
}

/// Seqs; the last one is 0 if there is no range.
impl Field<(i64, i64)> for Option<(Seq, Seq)> {
    fn to_field(&self) -> (i64, i64) {
        let (from, to) = self.unwrap_or_default();
        (from.0, to.0)
    }

    fn from_field(_: &'static str, (from, to): (i64, i64)) -> Result<Self, DecodeError> {
        Ok((to > 0).then_some((Seq(from), Seq(to))))
    }
}

/// The text, the id of its message, and the model that wrote it. Without a text there is no summary.
impl Field<(String, String, String)> for Option<Summary> {
    fn to_field(&self) -> (String, String, String) {
        let parts = |Summary { text, message, model }: &Summary| (text.clone(), message.to_string(), model.clone());
        self.as_ref().map(parts).unwrap_or_default()
    }

    fn from_field(_: &'static str, (text, message, model): (String, String, String)) -> Result<Self, DecodeError> {
        let message = MessageId::new(message);
        Ok(Some(Summary { text, message, model }).filter(|summary| !summary.text.is_empty()))
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
