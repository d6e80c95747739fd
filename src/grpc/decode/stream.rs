//! What a stream carries.

use std::{ops::RangeInclusive, time::Duration};

use super::{Findings, Path, duration};
use crate::pb;

/// Time between heartbeats when the request does not say.
const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(10);
/// Times between heartbeats that a client may choose.
const HEARTBEATS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(10);

/// What a stream carries; belongs to the call, not to the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    /// Leave out deltas.
    pub omit_deltas: bool,
    /// Add the whole outputs of tools where they were cut.
    pub raw_tool_output: bool,
    /// Time between heartbeats.
    pub heartbeat: Duration,
}

/// Reads the field `stream`.
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
