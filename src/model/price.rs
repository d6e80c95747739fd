//! What a model service takes for a prompt that its cache holds, beside one that it does not.

/// Percent of the price of a token that is read without a cache.
const WHOLE: u32 = 100;

/// Prices of a token of a prompt, in percent of its price without a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachePrices {
    /// Of one that is read from the cache.
    pub read: u32,
    /// Of one that is written to it: at least the price without a cache.
    pub write: u32,
}

impl CachePrices {
    /// The prices. A service that says nothing of writing takes the price without a cache for it.
    pub fn new(read: u32, write: Option<u32>) -> Self {
        Self {
            read: read.min(WHOLE),
            write: write.unwrap_or(WHOLE).max(WHOLE),
        }
    }
}
