//! The queue: what users send while a turn runs, and how it ends.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::MessageId;

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
