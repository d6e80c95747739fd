//! The queue of messages that users send while a turn is running.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::MessageId;
use crate::settings::choices;

choices!(TakeMode);

/// When a queued message is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delivery {
    /// At the next step boundary of the running turn.
    Asap,
    /// After the running turn.
    WhenIdle,
    /// In a new turn; the running turn is cancelled.
    Interrupt,
}

/// Why a queued message was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    SessionDeleted,
    /// A newer message replaced it.
    Superseded,
    /// The message alone does not fit into the window.
    TooLarge,
    /// Its stored form cannot be decoded.
    Unreadable,
}

/// Which queued messages are taken at a step boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakeMode {
    /// All, merged into one message.
    #[default]
    All,
    /// Only the oldest.
    OneAtATime,
    /// Only the newest; older ones are dropped.
    Latest,
}

/// A queued message that became part of a user message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedMessage {
    /// The id that it had in the queue.
    pub message: MessageId,
    pub queued_at: Timestamp,
    /// The labels that it was queued with.
    pub metadata: BTreeMap<String, String>,
}
