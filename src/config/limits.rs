//! The settings of tenant limits.

use crate::settings::settings;

/// The largest limit that the database and the API can represent.
const MAX: u64 = 1 << 62;

settings! {
    /// `[limits]`: the limits of tenants without limits set by `contextd admin limits set`. A limit that is not set
    /// does not apply.
    pub struct LimitsConfig {
        /// Turns and calls of Compact that run at once, on all replicas together.
        running_turns: Option<u64> = None, in 0..=MAX, "turns";
        /// Requests per second, on each replica.
        requests_per_second: Option<u64> = None, in 0..=MAX, "requests";
        /// Tokens per minute that models read and write, on all replicas together.
        tokens_per_minute: Option<u64> = None, in 0..=MAX, "tokens";
        /// Stored bytes: messages, events, configurations, requests and blobs, including uploads in progress.
        stored_bytes: Option<u64> = None, in 0..=MAX, "bytes";
    }
}
