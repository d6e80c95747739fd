//! What a change writes in the queue: the message that joins it, and those that leave it.

use std::time::Duration;

use crate::model::{Delivery, DropReason, MessageId, RequestId};

/// What becomes of the queue.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct QueueChange<'a> {
    /// The message that comes last from now on.
    pub joins: Option<Joining<'a>>,
    /// Those that wait no longer.
    pub leave: Vec<Leaving>,
    /// Those that are taken as soon as possible from now on.
    pub hurried: Vec<MessageId>,
    /// Those that start no turn any more.
    pub calmed: Vec<MessageId>,
}

/// A message that joins the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joining<'a> {
    /// Its id.
    pub message: &'a MessageId,
    /// The encoded message.
    pub body: &'a [u8],
    /// The blobs that it refers to.
    pub blobs: &'a [&'a str],
    /// When it is to be taken.
    pub delivery: Delivery,
    /// It starts a turn when none runs.
    pub starts_turn: bool,
    /// The encoded turn request, when it is the input of an ExecuteTurn.
    pub execute: Option<&'a [u8]>,
    /// When it is given up.
    pub ttl: Option<Duration>,
    /// The request that brought it.
    pub request: Option<&'a RequestId>,
}

/// A message that leaves the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// Which.
    pub message: MessageId,
    /// How it ends.
    pub end: QueueEnd,
    /// The position of the event that says so, from 0.
    pub event: usize,
}

/// How the wait of a message ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueEnd {
    /// It went into this user message.
    Applied(MessageId),
    /// It was withdrawn.
    Withdrawn(Withdrawal),
}

/// Why messages are withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// A client wants it.
    Cancelled,
    /// Their time passed.
    Expired,
    /// The server gives them up.
    Dropped(DropReason),
}
