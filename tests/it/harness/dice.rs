//! Reproducible randomness: the same seed produces the same numbers.

use std::{future::Future, pin::pin, task::Poll};

/// The environment variable with a seed to be replayed.
pub const SEED: &str = "CONTEXTD_TEST_SEED";

/// The seed of a run: the one in [`SEED`], or a new one.
pub fn seed() -> u64 {
    let named = std::env::var_os(SEED).map(|seed| seed.to_str().and_then(|seed| seed.parse().ok()).expect("a number"));
    named.unwrap_or_else(|| uuid::Uuid::now_v7().as_u64_pair().1)
}

/// A pseudorandom number generator (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The generator for a seed and one of its users.
    pub fn new(seed: u64, lane: u64) -> Self {
        let mut dice = Self(seed ^ lane.wrapping_mul(0xd1b5_4a32_d192_ed03));
        dice.number();
        dice
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % u64::try_from(end).unwrap()).unwrap()
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A random element. Returns `None` if there is none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { of.get(self.below(of.len())) }
    }

    /// A random element; its probability is proportional to its weight.
    pub fn weighed<T: Copy>(&mut self, of: &[(T, usize)]) -> T {
        let mut at = self.below(of.iter().map(|(_, weight)| weight).sum());
        for (what, weight) in of {
            if at < *weight {
                return *what;
            }
            at -= weight;
        }
        panic!("the weights are those of the sum")
    }
}

/// Polls the future at most `most` times, then drops it. Data that it has already sent still takes effect.
pub async fn polled<T>(future: impl Future<Output = T>, most: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut polls = 0;
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => {
            polls += 1;
            if polls >= most { Poll::Ready(None) } else { Poll::Pending }
        }
    })
    .await
}
