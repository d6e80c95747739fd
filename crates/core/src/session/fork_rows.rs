//! The rows that a fork copies from its source.

use crate::model::{Seq, SessionId};

/// Rows to copy from the source of a fork, as of a seq of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forked<'a> {
    pub source: &'a SessionId,
    /// The seq up to which the fork is a copy.
    pub at: Seq,
    /// Messages to copy: those after the first seq, up to the second.
    pub copies: Option<(Seq, Seq)>,
    /// All messages are copied, and the fork becomes a session.
    pub opens: bool,
}
