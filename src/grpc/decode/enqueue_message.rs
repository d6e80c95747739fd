//! Decodes EnqueueMessage.

use super::{Decode, Findings, Path, input, media, number};
use crate::{
    codec::DecodeError,
    model::{BlobId, Delivery, InputMessage, Role, SessionId, command::EnqueueMessage},
    pb,
};

impl Decode for pb::EnqueueMessageRequest {
    type Command = EnqueueMessage;

    fn blobs(&self) -> Vec<BlobId> {
        media::blobs_in_messages(&self.message)
    }

    fn read(self, found: &mut Findings) -> Result<EnqueueMessage, DecodeError> {
        let Self { session_id, request_id, message, delivery, on_idle, ttl } = self;
        Ok(EnqueueMessage {
            session: SessionId::new(session_id),
            idempotency: found.idempotency(request_id),
            delivery: number::choice_or(delivery, Delivery::Asap),
            starts_turn: number::choice(on_idle) == Some(pb::IdleAction::StartTurn),
            ttl: number::duration(ttl),
            message: match message {
                Some(message) => input::user(Path::to("message"), message, found),
                None => InputMessage::new(Role::User, Vec::new()),
            },
            contents: found.take_contents(),
        })
    }
}
