//! The settings of what is removed, and when.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::duration;

/// One day.
const DAY: Duration = Duration::from_hours(24);

/// `[retention]`: for how long what is kept. Transcripts and turns stay for as long as their
/// session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RetentionConfig {
    /// Idempotency keys (`request_id`). Clients are promised 7 days, which is the least.
    #[serde(with = "duration")]
    pub request_ids: Duration,
    /// Queued messages that were applied or withdrawn. At least as long as `request_ids`: repeated
    /// requests are answered from them.
    #[serde(with = "duration")]
    pub queue: Duration,
    /// Events. Older ones are gone for readers, who get EVENTS_EXPIRED; those of a live turn stay.
    /// Absent: as long as their session.
    #[serde(
        default,
        serialize_with = "duration::serialize_some",
        deserialize_with = "duration::deserialize_some"
    )]
    pub events: Option<Duration>,
    /// Sessions, from their last use on; `Session.ttl` can make it shorter. Absent: until they are
    /// deleted, or for their `ttl`.
    #[serde(
        default,
        serialize_with = "duration::serialize_some",
        deserialize_with = "duration::deserialize_some"
    )]
    pub sessions: Option<Duration>,
    /// Tool sets that no session refers to any more.
    #[serde(with = "duration")]
    pub tool_sets: Duration,
    /// The longest time between two looks for what has to be removed.
    #[serde(with = "duration")]
    pub interval: Duration,
    /// Most rows that one statement removes.
    pub batch_rows: u32,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            request_ids: 7 * DAY,
            queue: 7 * DAY,
            events: None,
            sessions: None,
            tool_sets: DAY,
            interval: Duration::from_mins(5),
            batch_rows: 500,
        }
    }
}

impl RetentionConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self {
            request_ids,
            queue,
            events,
            sessions,
            tool_sets,
            interval,
            batch_rows,
        } = self;
        let hour = Duration::from_hours(1);
        let most = 3_650 * DAY;
        checks.duration("retention.request_ids", *request_ids, 7 * DAY..=most);
        checks.duration("retention.queue", *queue, 7 * DAY..=most);
        checks.require(queue >= request_ids, "retention.queue", || {
            "must be at least retention.request_ids: repeated requests are answered from queued messages".to_owned()
        });
        for (key, kept) in [
            ("retention.events", events),
            ("retention.sessions", sessions),
        ] {
            if let Some(kept) = kept {
                checks.duration(key, *kept, hour..=most);
            }
        }
        checks.duration("retention.tool_sets", *tool_sets, hour..=most);
        checks.duration(
            "retention.interval",
            *interval,
            Duration::from_secs(1)..=DAY,
        );
        checks.number("retention.batch_rows", *batch_rows, 1..=10_000, "rows");
    }
}
