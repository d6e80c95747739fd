//! The queue: what users send while a turn runs, and how it ends.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{InputMessage, MessageId, NewContent, SessionId, command::Idempotency};

/// When a queued message is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delivery {
    /// At the next step boundary of the running turn.
    Asap,
    /// After the running turn.
    WhenIdle,
    /// In a new turn, for which the running one is cancelled.
    Interrupt,
}

/// Why a queued message was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The session was deleted.
    SessionDeleted,
    /// A newer one took its place.
    Superseded,
    /// It alone does not fit into the window.
    TooLarge,
    /// What is stored of it cannot be read.
    Unreadable,
}

/// How many of the messages that wait are taken at a step boundary.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum TakeMode {
    /// All, coalesced.
    #[default]
    All,
    /// The oldest.
    OneAtATime,
    /// The newest; the older ones are dropped.
    Latest,
}

/// A queued message that became part of a user message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Its id in the queue.
    pub message: MessageId,
    /// When it was queued.
    pub queued_at: Timestamp,
    /// The labels it was queued with.
    pub metadata: BTreeMap<String, String>,
}

/// Queue a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnqueueMessage {
    /// The session.
    pub session: SessionId,
    /// Idempotency.
    pub idempotency: Idempotency,
    /// What the user says.
    pub message: InputMessage,
    /// Content that came with it.
    pub contents: Vec<NewContent>,
    /// When it is to be taken.
    pub delivery: Delivery,
    /// It starts a turn when none runs.
    pub starts_turn: bool,
    /// When it is given up. `None` means never.
    pub ttl: Option<Duration>,
}

/// Withdraw a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelQueuedMessage {
    /// The session.
    pub session: SessionId,
    /// The message.
    pub message: MessageId,
    /// Idempotency.
    pub idempotency: Idempotency,
}

/// Withdraw all messages that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearQueue {
    /// The session.
    pub session: SessionId,
    /// Idempotency.
    pub idempotency: Idempotency,
}
