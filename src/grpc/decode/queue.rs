//! Decodes the requests about the queue.

use super::{
    Findings, PageRequest, Path,
    findings::StoredBlobs,
    hash::{idempotency, request_hash},
    input, number, page,
};
use crate::{
    grpc::violations::RequestError,
    model::{
        Delivery, InputMessage, MessageId, Role, SessionId,
        command::{CancelQueuedMessage, ClearQueue, EnqueueMessage},
    },
    pb::{self, rpc},
};

/// A validated request of ListQueuedMessages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQueuedMessages {
    pub session: SessionId,
    pub page: PageRequest,
}

/// Decodes an EnqueueMessageRequest.
pub fn enqueue_message(
    mut request: pb::EnqueueMessageRequest,
    stored: StoredBlobs,
) -> Result<EnqueueMessage, RequestError> {
    let mut found = Findings::check_with(rpc::ENQUEUE_MESSAGE, &mut request, stored);
    let hash = request_hash(rpc::ENQUEUE_MESSAGE, &request);
    let pb::EnqueueMessageRequest { session_id, request_id, message, delivery, on_idle, ttl } = request;
    let enqueue = EnqueueMessage {
        session: SessionId::new(session_id),
        idempotency: idempotency(request_id, hash),
        delivery: self::delivery(delivery),
        starts_turn: starts_turn(on_idle),
        ttl: number::duration(ttl),
        message: match message {
            Some(message) => input::user(Path::to("message"), message, &mut found),
            None => InputMessage::new(Role::User, Vec::new()),
        },
        contents: found.take_contents(),
    };
    found.finish(enqueue)
}

/// Decodes a ListQueuedMessagesRequest.
pub fn list_queued_messages(mut request: pb::ListQueuedMessagesRequest) -> Result<ListQueuedMessages, RequestError> {
    let found = Findings::check(rpc::LIST_QUEUED_MESSAGES, &mut request);
    let pb::ListQueuedMessagesRequest { session_id, page_size, page_token } = request;
    let list = ListQueuedMessages { session: SessionId::new(session_id), page: page::page(page_size, page_token) };
    found.finish(list)
}

/// Decodes a CancelQueuedMessageRequest.
pub fn cancel_queued_message(mut request: pb::CancelQueuedMessageRequest) -> Result<CancelQueuedMessage, RequestError> {
    let found = Findings::check(rpc::CANCEL_QUEUED_MESSAGE, &mut request);
    let hash = request_hash(rpc::CANCEL_QUEUED_MESSAGE, &request);
    let pb::CancelQueuedMessageRequest { session_id, queued_message_id, request_id } = request;
    let cancel = CancelQueuedMessage {
        session: SessionId::new(session_id),
        message: MessageId::new(queued_message_id),
        idempotency: idempotency(request_id, hash),
    };
    found.finish(cancel)
}

/// Decodes a ClearQueueRequest.
pub fn clear_queue(mut request: pb::ClearQueueRequest) -> Result<ClearQueue, RequestError> {
    let found = Findings::check(rpc::CLEAR_QUEUE, &mut request);
    let hash = request_hash(rpc::CLEAR_QUEUE, &request);
    let pb::ClearQueueRequest { session_id, request_id } = request;
    let clear = ClearQueue { session: SessionId::new(session_id), idempotency: idempotency(request_id, hash) };
    found.finish(clear)
}

fn delivery(delivery: i32) -> Delivery {
    match number::choice(delivery) {
        Some(pb::Delivery::Unspecified | pb::Delivery::Asap) | None => Delivery::Asap,
        Some(pb::Delivery::WhenIdle) => Delivery::WhenIdle,
        Some(pb::Delivery::Interrupt) => Delivery::Interrupt,
    }
}

fn starts_turn(action: i32) -> bool {
    match number::choice(action) {
        Some(pb::IdleAction::Unspecified | pb::IdleAction::Hold) | None => false,
        Some(pb::IdleAction::StartTurn) => true,
    }
}
