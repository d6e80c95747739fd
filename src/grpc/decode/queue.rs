//! Decodes the requests about the queue.

use std::time::Duration;

use super::{
    Findings, PageRequest, Path, duration,
    findings::StoredBlobs,
    hash::{idempotency, request_hash},
    id, ignored, input, number, page,
};
use crate::{
    grpc::violations::RequestError,
    model::{
        Delivery, InputMessage, Role, SessionId,
        command::{CancelQueuedMessage, ClearQueue, EnqueueMessage},
    },
    pb,
};

pub const ENQUEUE_MESSAGE: &str = "contextd.v1.QueueService/EnqueueMessage";
pub const LIST_QUEUED_MESSAGES: &str = "contextd.v1.QueueService/ListQueuedMessages";
pub const CANCEL_QUEUED_MESSAGE: &str = "contextd.v1.QueueService/CancelQueuedMessage";
pub const CLEAR_QUEUE: &str = "contextd.v1.QueueService/ClearQueue";

/// Maximum TTL of a queued message.
const MAX_TTL: Duration = Duration::from_hours(7 * 24);

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
    let mut found = Findings::with(ENQUEUE_MESSAGE, stored);
    request
        .message
        .iter_mut()
        .flat_map(|message| &mut message.parts)
        .for_each(ignored::clear_part);
    let hash = request_hash(ENQUEUE_MESSAGE, &request);
    let pb::EnqueueMessageRequest {
        session_id,
        request_id,
        message,
        delivery,
        on_idle,
        ttl,
    } = request;
    if message.is_none() {
        found.required(Path::to("message"));
    }
    let enqueue = EnqueueMessage {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        idempotency: idempotency(request_id, hash, &mut found),
        delivery: self::delivery(Path::to("delivery"), delivery, &mut found),
        starts_turn: starts_turn(Path::to("on_idle"), on_idle, &mut found),
        ttl: duration::up_to(MAX_TTL, Path::to("ttl"), ttl, &mut found),
        message: match message {
            Some(message) => input::user(Path::to("message"), message, &mut found),
            None => InputMessage::new(Role::User, Vec::new()),
        },
        contents: found.take_contents(),
    };
    found.finish(enqueue)
}

/// Decodes a ListQueuedMessagesRequest.
pub fn list_queued_messages(
    request: pb::ListQueuedMessagesRequest,
) -> Result<ListQueuedMessages, RequestError> {
    let mut found = Findings::of(LIST_QUEUED_MESSAGES);
    let pb::ListQueuedMessagesRequest {
        session_id,
        page_size,
        page_token,
    } = request;
    let list = ListQueuedMessages {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        page: page::page(page_size, page_token, &mut found),
    };
    found.finish(list)
}

/// Decodes a CancelQueuedMessageRequest.
pub fn cancel_queued_message(
    request: pb::CancelQueuedMessageRequest,
) -> Result<CancelQueuedMessage, RequestError> {
    let mut found = Findings::of(CANCEL_QUEUED_MESSAGE);
    let hash = request_hash(CANCEL_QUEUED_MESSAGE, &request);
    let pb::CancelQueuedMessageRequest {
        session_id,
        queued_message_id,
        request_id,
    } = request;
    let cancel = CancelQueuedMessage {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        message: id::message(Path::to("queued_message_id"), queued_message_id, &mut found),
        idempotency: idempotency(request_id, hash, &mut found),
    };
    found.finish(cancel)
}

/// Decodes a ClearQueueRequest.
pub fn clear_queue(request: pb::ClearQueueRequest) -> Result<ClearQueue, RequestError> {
    let mut found = Findings::of(CLEAR_QUEUE);
    let hash = request_hash(CLEAR_QUEUE, &request);
    let pb::ClearQueueRequest {
        session_id,
        request_id,
    } = request;
    let clear = ClearQueue {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        idempotency: idempotency(request_id, hash, &mut found),
    };
    found.finish(clear)
}

fn delivery(at: Path<'_>, delivery: i32, found: &mut Findings) -> Delivery {
    match number::enum_value(at, delivery, found) {
        Some(pb::Delivery::Unspecified | pb::Delivery::Asap) | None => Delivery::Asap,
        Some(pb::Delivery::WhenIdle) => Delivery::WhenIdle,
        Some(pb::Delivery::Interrupt) => Delivery::Interrupt,
    }
}

fn starts_turn(at: Path<'_>, action: i32, found: &mut Findings) -> bool {
    match number::enum_value(at, action, found) {
        Some(pb::IdleAction::Unspecified | pb::IdleAction::Hold) | None => false,
        Some(pb::IdleAction::StartTurn) => true,
    }
}
