//! A page of events, with the content that they refer to.

use crate::{codec::event::EventContent, model::event::StoredEvent};

/// Consecutive events with everything needed to show them, read at one time.
#[derive(Debug, Clone, Default)]
pub struct EventPage {
    /// The events in order, without gaps.
    pub events: Vec<StoredEvent>,
    /// The messages and results they refer to.
    pub content: EventContent,
    /// Size in bytes of the next event, if it was left out because of its size.
    pub oversized_bytes: Option<u64>,
    /// Whether the session is deleted and its rows are being removed. These are the last events.
    pub is_gone: bool,
}

/// Limits of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventPageLimits {
    /// Maximum number of events.
    pub events: u32,
    /// Maximum size of the events and their content, in bytes.
    pub bytes: u64,
    /// Bytes counted per event in addition to its payload and content.
    pub overhead: u32,
    /// Whether to read one event even if it exceeds the limits.
    pub at_least_one: bool,
}
