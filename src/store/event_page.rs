//! A page of events, with the content that they refer to.

use crate::{codec::event::Content, model::event::StoredEvent};

/// A run of events with everything needed to show them, read at one time.
#[derive(Debug, Clone)]
pub struct Follow {
    /// The events in order, without gaps.
    pub events: Vec<StoredEvent>,
    /// The messages and results they refer to.
    pub content: Content,
    /// Bytes of the event after them, if there is one that was left out for its size.
    pub next: Option<u64>,
    /// The session is deleted and its rows are being removed: these are the last events.
    pub is_gone: bool,
}

/// How much is read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// Events.
    pub events: u32,
    /// Bytes of them with their content.
    pub bytes: u64,
    /// Bytes that each event counts for beside its payload and content.
    pub overhead: u32,
    /// One event is read however large it is.
    pub or_one: bool,
}
