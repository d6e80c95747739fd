//! Messages: the fields that have no column, and their wire form.

use std::collections::BTreeMap;

use prost::Message as _;

use crate::{
    model::{AppliedMessage, Message, ModelResponse, Role, SessionId},
    pb,
};

use super::{
    DecodeError,
    field::{Field as _, choices, messages},
    part, read, usage,
};

/// The fields of a message that have no column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessageInfo {
    /// The model call that produced an assistant message.
    pub response: Option<ModelResponse>,
    /// Metadata set by the host.
    pub metadata: BTreeMap<String, String>,
    /// The queued messages from which a user message was made.
    pub queued: Vec<AppliedMessage>,
}

choices! {
    Role = Role { System, User, Assistant, Tool }
}

messages! {
    MessageInfo = Message {
        response,
        metadata,
        queued,
        _ = message_id,
        _ = session_id,
        _ = turn_id,
        _ = step,
        _ = seq,
        _ = role,
        _ = parts,
        _ = create_time,
        _ = tokens,
        _ = is_summary,
        _ = pinned,
        _ = compacted_by,
        _ = voided_at_seq,
    }
}

/// Encodes the info as a `Message` with only these fields. Returns no bytes if all are empty.
pub fn encode_info(info: &MessageInfo) -> Vec<u8> {
    let info: pb::Message = info.to_field();
    info.encode_to_vec()
}

/// Decodes the info.
pub fn decode_info(bytes: &[u8]) -> Result<MessageInfo, DecodeError> {
    let info: pb::Message = read("message", bytes)?;
    MessageInfo::from_field("message", info)
}

/// Converts a message for the wire.
pub fn to_pb(message: &Message, session: &SessionId) -> pb::Message {
    let Message {
        id,
        turn,
        step,
        seq,
        role,
        parts,
        overhead: _,
        created_at,
        response,
        pinned,
        metadata,
        queued,
        is_summary,
        compacted_by,
        voided_at,
    } = message;
    pb::Message {
        message_id: id.to_field(),
        session_id: session.to_string(),
        turn_id: turn.to_field(),
        step: step.to_field(),
        seq: seq.to_field(),
        role: role.to_field(),
        parts: parts.iter().map(part::to_pb).collect(),
        create_time: created_at.to_field(),
        response: response.to_field(),
        tokens: Some(size(message)),
        is_summary: *is_summary,
        pinned: *pinned,
        metadata: metadata.clone(),
        queued: queued.to_field(),
        compacted_by: compacted_by.to_field(),
        voided_at_seq: voided_at.to_field(),
    }
}

/// The size of the message: its parts and its overhead.
fn size(message: &Message) -> pb::TokenCount {
    let tokens = message.parts.iter().fold(message.overhead, |sum, part| sum.saturating_add(part.size.tokens));
    usage::size_to_pb(tokens, message.parts.first().map_or("", |part| part.estimator.as_str()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        codec::arbitrary,
        model::{Category, CompactionId, MessageId, Part, PartSize, Seq, TurnId, message::StoredPart},
    };

    proptest! {
        #[test]
        fn message_infos_round_trip(response in proptest::option::of(arbitrary::response()), metadata in arbitrary::metadata()) {
            let queued = vec![AppliedMessage { message: MessageId::new("q1"), queued_at: jiff::Timestamp::UNIX_EPOCH, metadata: metadata.clone() }];
            let info = MessageInfo { response, metadata, queued };
            prop_assert_eq!(decode_info(&encode_info(&info)), Ok(info));
        }
    }

    #[test]
    fn an_empty_message_info_takes_no_bytes() {
        assert_eq!(encode_info(&MessageInfo::default()), Vec::<u8>::new());
    }

    #[test]
    fn message_size_is_the_sum_of_its_parts_and_its_overhead() {
        let part = |text: &str, tokens| StoredPart {
            part: Part::text(text),
            size: PartSize { tokens, category: Category::User },
            estimator: "chars".to_owned(),
            pruned: None,
        };
        let message = Message {
            id: MessageId::new("m1"),
            turn: Some(TurnId::new("t1")),
            step: 2,
            seq: Seq(7),
            role: Role::User,
            parts: vec![part("a", 3), part("b", 4)],
            overhead: 4,
            created_at: jiff::Timestamp::UNIX_EPOCH,
            response: None,
            pinned: true,
            metadata: BTreeMap::new(),
            queued: Vec::new(),
            is_summary: true,
            compacted_by: Some(CompactionId::new("k1")),
            voided_at: Some(Seq(9)),
        };
        let wire = to_pb(&message, &SessionId::new("s1"));
        assert_eq!(wire.tokens, Some(usage::size_to_pb(4 + 3 + 4, "chars")));
        assert_eq!((wire.session_id.as_str(), wire.turn_id.as_str(), wire.voided_at_seq), ("s1", "t1", 9));
        assert_eq!((wire.is_summary, wire.compacted_by.as_str()), (true, "k1"));
    }
}
