//! Whether a compaction was worth it.

/// A compaction that makes the context smaller by less than one part in so many (5 %) has failed.
const PROGRESS: u64 = 20;

/// Whether a context became so much smaller that it was worth it.
pub fn is_progress(before: u32, after: u32) -> bool {
    u64::from(after) * PROGRESS <= u64::from(before) * (PROGRESS - 1)
}
