//! Queued messages, to and from their stored and wire forms.

use prost::Message as _;

use crate::{
    model::{AppliedMessage, Content, Delivery, DropReason, InputMessage, OutputPart, Part, Role},
    pb,
};

use super::{
    DecodeError,
    field::{Field, choices, messages},
    part, read,
};

choices! {
    Delivery = Delivery { Asap, WhenIdle, Interrupt }
    DropReason = DropReason { SessionDeleted, Superseded, TooLarge, Unreadable }
}

messages! {
    // A queued message that was applied to a user message.
    AppliedMessage = AppliedMessage {
        message = queued_message_id,
        queued_at = enqueue_time,
        metadata,
    }
}

/// Encodes a queued message as an `InputMessage`.
pub fn encode(message: &InputMessage) -> Vec<u8> {
    let InputMessage { role, parts, pinned, metadata, response: _, created_at: _ } = message;
    pb::InputMessage {
        role: role.to_field(),
        parts: parts.iter().map(part::input_to_pb).collect(),
        pinned: *pinned,
        metadata: metadata.clone(),
        response: None,
        create_time: None,
    }
    .encode_to_vec()
}

/// Decodes a queued message.
pub fn decode(bytes: &[u8]) -> Result<InputMessage, DecodeError> {
    let pb::InputMessage { role, parts, pinned, metadata, response: _, create_time: _ } = to_pb(bytes)?;
    if role != pb::Role::User as i32 || parts.is_empty() {
        return Err(DecodeError::new("queued message", "it is not a user message"));
    }
    let parts = parts.into_iter().map(part_from_pb).collect::<Result<_, _>>()?;
    Ok(InputMessage { pinned, metadata, ..InputMessage::new(Role::User, parts) })
}

/// Decodes a queued message for the wire.
pub fn to_pb(bytes: &[u8]) -> Result<pb::InputMessage, DecodeError> {
    read("queued message", bytes)
}

/// Reads a part of a queued message; only parts that a user message may hold are accepted.
fn part_from_pb(mut part: pb::Part) -> Result<Part, DecodeError> {
    let metadata = std::mem::take(&mut part.provider_metadata_json);
    let provider_metadata = Field::from_field("provider_metadata_json", metadata)?;
    let sanitized = part.sanitized;
    let content = match OutputPart::from_field("queued message", part)? {
        OutputPart::Text(text) => Content::Text(text),
        OutputPart::Media(media) => Content::Media(media),
    };
    Ok(Part { content, citations: Vec::new(), provider_metadata, sanitized })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::arbitrary;

    proptest! {
        #[test]
        fn queued_messages_round_trip(parts in proptest::collection::vec(arbitrary::user_part(), 1..4), pinned: bool, metadata in arbitrary::metadata()) {
            let message = InputMessage { pinned, metadata, ..InputMessage::new(Role::User, parts) };
            prop_assert_eq!(decode(&encode(&message)), Ok(message));
        }

        #[test]
        fn undecodable_queued_message_bytes_are_an_error(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_queued_message_with_parts_that_users_cannot_send_is_an_error() {
        for bytes in [b"\xff".as_slice(), b"", &pb::InputMessage::default().encode_to_vec()] {
            assert!(decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
