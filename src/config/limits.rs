//! The settings of what each tenant may use.

use serde::{Deserialize, Serialize};

use super::check::Checks;

/// `[limits]`: what a tenant may use that has no limits of its own (`contextd admin limits set`).
/// Absent: as much as there is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LimitsConfig {
    /// Turns that run at once, and calls of Compact, on all replicas together.
    pub running_turns: Option<u64>,
    /// Requests per second, on each replica.
    pub requests_per_second: Option<u64>,
    /// Tokens that models read and write per minute, on all replicas together.
    pub tokens_per_minute: Option<u64>,
    /// Bytes of messages, events, configurations, requests and blobs, uploads under way included.
    pub stored_bytes: Option<u64>,
}

/// The largest limit: numbers of the database and the API are not larger.
const MOST: u64 = 1 << 62;

impl LimitsConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self {
            running_turns,
            requests_per_second,
            tokens_per_minute,
            stored_bytes,
        } = self;
        let limits = [
            ("limits.running_turns", running_turns, "turns"),
            (
                "limits.requests_per_second",
                requests_per_second,
                "requests",
            ),
            ("limits.tokens_per_minute", tokens_per_minute, "tokens"),
            ("limits.stored_bytes", stored_bytes, "bytes"),
        ];
        for (key, limit, unit) in limits {
            if let Some(limit) = limit {
                checks.number(key, *limit, 0..=MOST, unit);
            }
        }
    }
}
