//! What a change does to results that the model sees.

use crate::model::{MessageId, Seq};

/// Where a result stands: its message, and its position in it.
pub type Place = (MessageId, usize);

/// What becomes of the results at these places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Marks<'a> {
    /// The places.
    pub places: &'a [Place],
    /// What becomes of them.
    pub mark: Mark,
}

/// What becomes of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// The model sees a placeholder in its place, of so many tokens.
    Cleared {
        /// How many.
        placeholder: u32,
    },
    /// The model sees it again, which the prune with this seq had cleared.
    Returned {
        /// Which.
        pruned_at: Seq,
    },
}
