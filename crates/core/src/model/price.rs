//! Price of prompt tokens with prompt caching, relative to their price without a cache.

/// Price of an uncached token, in percent.
const WHOLE: u32 = 100;

/// Price of a prompt token, in percent of its price without a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachePrices {
    /// Price of a token read from the cache.
    pub read: u32,
    /// Price of a token written to the cache; at least 100.
    pub write: u32,
}

impl CachePrices {
    /// The prices. If the price of writing is not known, it is 100.
    pub fn new(read: u32, write: Option<u32>) -> Self {
        Self { read: read.min(WHOLE), write: write.unwrap_or(WHOLE).max(WHOLE) }
    }
}
