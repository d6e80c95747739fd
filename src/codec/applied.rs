//! Queued messages that went into a user message: to and from their proto form.

use crate::{
    model::{Applied, MessageId},
    pb,
};

use super::{DecodeError, time};

/// A message that was applied, for the wire.
pub(super) fn to_pb(applied: &Applied) -> pb::AppliedMessage {
    let Applied {
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

/// A message that was applied, as it was stored.
pub(super) fn from_pb(applied: pb::AppliedMessage) -> Result<Applied, DecodeError> {
    let pb::AppliedMessage {
        queued_message_id,
        enqueue_time,
        metadata,
    } = applied;
    let enqueue_time =
        enqueue_time.ok_or_else(|| DecodeError::new("applied message", "its time is missing"))?;
    Ok(Applied {
        message: MessageId::new(queued_message_id),
        queued_at: time::timestamp_from_pb(enqueue_time)?,
        metadata,
    })
}
