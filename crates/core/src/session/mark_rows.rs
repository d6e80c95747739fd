//! The pruning marks in a change.

use crate::model::{MessageId, Seq};

/// Position of a tool result: its message, and its index in the message.
pub type PartPosition = (MessageId, usize);

/// A mark on the tool results at these positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Marks<'a> {
    pub places: &'a [PartPosition],
    pub mark: Mark,
}

/// A mark on a tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// Pruned: the model gets a placeholder.
    Pruned {
        /// Size of the placeholder in tokens.
        placeholder: u32,
    },
    /// Restored.
    Restored {
        /// The seq of the prune that had hidden it.
        pruned_at: Seq,
    },
}
