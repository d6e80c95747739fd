//! The settings of handing out events.

use serde::{Deserialize, Serialize};

use super::check::Checks;

/// `[stream]`: what a reader of events gets, and what is kept in memory for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamConfig {
    /// Latest events kept in memory for each session with readers; a slower reader reads from the database.
    pub buffer_events: usize,
    /// Events that may wait for one reader, beside what its connection holds.
    pub reader_events: usize,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self { buffer_events: 1024, reader_events: 64 }
    }
}

impl StreamConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self { buffer_events, reader_events } = self;
        checks.number("stream.buffer_events", *buffer_events, 16..=65_536, "events");
        checks.number("stream.reader_events", *reader_events, 1..=65_536, "events");
    }
}
