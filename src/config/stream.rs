//! The settings of handing out events and lists.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::duration;

/// `[stream]`: what a reader of events gets, and what is kept in memory for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamConfig {
    /// How often a silent stream says that it lives.
    #[serde(with = "duration")]
    pub heartbeat: Duration,
    /// Latest events kept in memory for each session with readers; a slower reader reads from the database.
    pub buffer_events: usize,
    /// Largest page of a list, in bytes.
    pub page_bytes: usize,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(10), buffer_events: 1024, page_bytes: 2 << 20 }
    }
}

impl StreamConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self { heartbeat, buffer_events, page_bytes } = self;
        checks.duration("stream.heartbeat", *heartbeat, Duration::from_millis(100)..=Duration::from_mins(10));
        checks.number("stream.buffer_events", *buffer_events, 16..=65_536, "events");
        // gRPC clients refuse answers above 4 MiB unless told otherwise.
        checks.number("stream.page_bytes", *page_bytes, 64 << 10..=3 << 20, "bytes");
    }
}
