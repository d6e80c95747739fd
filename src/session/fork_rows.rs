//! What a fork gets from its source.

use crate::model::{Seq, SessionId};

/// Rows that are copied from the source of a fork, as they were at a seq of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forked<'a> {
    /// The source.
    pub source: &'a SessionId,
    /// The seq up to which the fork is a copy.
    pub at: Seq,
    /// Messages to be copied: those after the first seq, up to the second one.
    pub copies: Option<(Seq, Seq)>,
    /// All messages are copied, and the fork becomes a session.
    pub opens: bool,
}
