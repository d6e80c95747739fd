//! Decodes the options of event streams.

use std::time::Duration;

use super::number;
use crate::pb;

/// Default interval of heartbeats.
const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(10);

/// Options of an event stream. They belong to the call, not to the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    pub omit_deltas: bool,
    /// Whether to add the uncut outputs of tools whose output was cut.
    pub raw_tool_output: bool,
    /// Interval of heartbeats.
    pub heartbeat: Duration,
}

/// Decodes the field `stream`.
pub(super) fn options(options: Option<pb::StreamOptions>) -> StreamOptions {
    let pb::StreamOptions { omit_deltas, include_raw_tool_output, heartbeat_interval } = options.unwrap_or_default();
    StreamOptions {
        omit_deltas,
        raw_tool_output: include_raw_tool_output,
        heartbeat: number::duration(heartbeat_interval).unwrap_or(DEFAULT_HEARTBEAT),
    }
}
