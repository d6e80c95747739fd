//! Whether a compaction gained enough to have been worth it.

/// A compaction that makes the context smaller by less than one part in so many (5 %) has failed.
const LEAST_GAIN: u64 = 20;

/// Whether a context became so much smaller that it was worth it.
pub fn gained_enough(before: u32, after: u32) -> bool {
    u64::from(after) * LEAST_GAIN <= u64::from(before) * (LEAST_GAIN - 1)
}
