//! The changes of the queue in a change: the message that is added, and those that are removed.

use std::time::Duration;

use crate::model::{Delivery, DropReason, MessageId, RequestId};

/// Changes of the queue.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct QueueChange<'a> {
    /// The message to add at the end.
    pub added: Option<NewQueuedMessage<'a>>,
    /// The messages to remove.
    pub removed: Vec<RemovedMessage>,
    /// Messages that are delivered as soon as possible from now on.
    pub promoted_to_asap: Vec<MessageId>,
    /// Messages that no longer start a turn.
    pub cleared_turn_starts: Vec<MessageId>,
}

/// A message that is added to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewQueuedMessage<'a> {
    pub message: &'a MessageId,
    /// The encoded message.
    pub body: &'a [u8],
    /// The blobs that it references.
    pub blobs: &'a [&'a str],
    /// When it is taken.
    pub delivery: Delivery,
    /// It starts a turn if none is running.
    pub starts_turn: bool,
    /// The encoded turn request, if it is the input of an ExecuteTurn.
    pub execute: Option<&'a [u8]>,
    /// The message is dropped after this time. `None` means never.
    pub ttl: Option<Duration>,
    /// The request that enqueued it.
    pub request: Option<&'a RequestId>,
}

/// A message that is removed from the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedMessage {
    pub message: MessageId,
    pub end: QueueEnd,
    /// Index of its event in the change.
    pub event: usize,
}

/// How a message leaves the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueEnd {
    /// It was merged into this user message.
    Applied(MessageId),
    Withdrawn(Withdrawal),
}

/// Why a message is withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// A client cancelled it.
    Cancelled,
    /// Its time to live passed.
    Expired,
    /// The server dropped it.
    Dropped(DropReason),
}
