//! Randomness from a seed: the choices are the same in every run with the seed, their timing is not.

/// A random number generator (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// One of many generators with the same seed.
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    /// Another generator that is derived from this one.
    pub(crate) fn other(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % end).unwrap_or_default()
    }

    /// True in `percent` percent of the calls.
    pub(crate) fn happens(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A random choice.
    pub(crate) fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}
