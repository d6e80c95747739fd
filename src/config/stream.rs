//! The settings of handing out events.

use serde::{Deserialize, Serialize};

use super::check::Checks;

/// `[stream]`: what a reader of events gets, and what is kept in memory for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamConfig {
    /// Events that may wait for one reader, beside what its connection holds; a slower one reads
    /// from the database.
    pub reader_events: usize,
    /// Bytes that they take up; a larger event waits alone.
    pub reader_bytes: u32,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            reader_events: 64,
            reader_bytes: 32 << 10,
        }
    }
}

impl StreamConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self {
            reader_events,
            reader_bytes,
        } = self;
        checks.number("stream.reader_events", *reader_events, 1..=65_536, "events");
        checks.number(
            "stream.reader_bytes",
            *reader_bytes,
            1 << 10..=16 << 20,
            "bytes",
        );
    }
}
