//! Checks whether a compaction reduced the context enough.

/// A compaction fails if it removes less than 1/20 (5 %) of the context.
const MIN_GAIN_DIVISOR: u64 = 20;

/// Whether the reduction from `before` to `after` tokens is sufficient.
pub fn gained_enough(before: u32, after: u32) -> bool {
    u64::from(after) * MIN_GAIN_DIVISOR <= u64::from(before) * (MIN_GAIN_DIVISOR - 1)
}
