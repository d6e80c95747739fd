//! The marks of pruning that a change writes.

use crate::model::{MessageId, Seq};

/// Where a result stands: its message, and its position in it.
pub type Place = (MessageId, usize);

/// A mark on the results at these places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Marks<'a> {
    /// The places.
    pub places: &'a [Place],
    /// The mark.
    pub mark: Mark,
}

/// A mark on a tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// It is hidden: the model sees a placeholder.
    Cleared {
        /// Tokens of the placeholder.
        placeholder: u32,
    },
    /// It is shown again.
    Returned {
        /// The seq of the prune that had hidden it.
        pruned_at: Seq,
    },
}
