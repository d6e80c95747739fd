//! The settings of data retention.

use std::time::Duration;

use crate::settings::{Checks, settings};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
/// The longest retention: ten years.
const MAX: Duration = Duration::from_hours(24 * 3_650);

settings! {
    /// `[retention]`: how long data is kept. Transcripts and turns are kept as long as their session.
    #[derive(Copy)]
    pub struct RetentionConfig {
        /// Idempotency keys (`request_id`). Clients rely on 7 days, which is the minimum.
        request_ids: Duration = DAY * 7, in DAY * 7..=MAX;
        /// Queued messages that were applied or withdrawn. At least `request_ids`: repeated requests are answered from
        /// them.
        queue: Duration = DAY * 7, in DAY * 7..=MAX;
        /// Events. Readers of older events get EVENTS_EXPIRED; the events of a live turn are kept. Not set: as long as
        /// their session.
        events: Option<Duration> = None, in HOUR..=MAX;
        /// Sessions, since their last use; `Session.ttl` can shorten it. Not set: until they are deleted, or for their
        /// `ttl`.
        sessions: Option<Duration> = None, in HOUR..=MAX;
        /// Tool sets that no session refers to any more.
        tool_sets: Duration = DAY, in HOUR..=MAX;
        /// Maximum time between two sweeps.
        interval: Duration = Duration::from_mins(5), in Duration::from_secs(1)..=DAY;
        /// Maximum rows that one statement removes.
        batch_rows: u32 = 500, in 1..=10_000, "rows";
    }
}

impl RetentionConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        checks.require(self.queue >= self.request_ids, "retention.queue", || {
            "must be at least retention.request_ids: repeated requests are answered from queued messages".to_owned()
        });
    }
}
