//! Decodes the options of event streams.

use std::{ops::RangeInclusive, time::Duration};

use super::{Findings, Path, duration};
use crate::pb;

/// Default interval of heartbeats.
const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(10);
/// Allowed range of the heartbeat interval.
const HEARTBEATS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(10);

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
pub(super) fn options(options: Option<pb::StreamOptions>, found: &mut Findings) -> StreamOptions {
    let at = Path::to("stream");
    let pb::StreamOptions {
        omit_deltas,
        include_raw_tool_output,
        heartbeat_interval,
    } = options.unwrap_or_default();
    let heartbeat = heartbeat_interval
        .and_then(|interval| {
            duration::within(HEARTBEATS, at.field("heartbeat_interval"), interval, found)
        })
        .unwrap_or(DEFAULT_HEARTBEAT);
    StreamOptions {
        omit_deltas,
        raw_tool_output: include_raw_tool_output,
        heartbeat,
    }
}
