//! Queued messages that were applied to a user message, to and from their proto form.

use crate::{
    model::{AppliedMessage, MessageId},
    pb,
};

use super::{DecodeError, time};

/// Converts an applied message for the wire.
pub(super) fn to_pb(applied: &AppliedMessage) -> pb::AppliedMessage {
    let AppliedMessage {
        message,
        queued_at,
        metadata,
    } = applied;
    pb::AppliedMessage {
        queued_message_id: message.to_string(),
        enqueue_time: Some(time::timestamp_to_pb(*queued_at)),
        metadata: metadata.clone(),
    }
}

/// Reads a stored applied message.
pub(super) fn from_pb(applied: pb::AppliedMessage) -> Result<AppliedMessage, DecodeError> {
    let pb::AppliedMessage {
        queued_message_id,
        enqueue_time,
        metadata,
    } = applied;
    let enqueue_time =
        enqueue_time.ok_or_else(|| DecodeError::new("applied message", "its time is missing"))?;
    Ok(AppliedMessage {
        message: MessageId::new(queued_message_id),
        queued_at: time::timestamp_from_pb(enqueue_time)?,
        metadata,
    })
}
