//! The rows of compactions in a change.

use std::time::Duration;

use super::{counters::TokenCounters, rows::Rows};
use crate::model::{CompactionId, MessageId, Seq, Usage, UsageTotals};

/// A running compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningCompaction {
    pub id: CompactionId,
    /// The version of the context that it is based on. Messages added after it raise this version along with the
    /// session's.
    pub context_version: i64,
    /// The lease of the replica that runs it has expired.
    pub lease_is_over: bool,
}

/// The range of messages that a compaction replaces, and the replacement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replacement<'a> {
    /// The seq of the first message of the range.
    pub from: Seq,
    /// The seq of the last message.
    pub to: Seq,
    /// Messages in the range that are kept, in addition to pinned ones.
    pub kept: &'a [Seq],
    /// Pinned messages that are not in `kept` are replaced too.
    pub hides_pinned: bool,
    /// The change of the counters, including the summary.
    pub shift: TokenCounters,
    /// Its event, with the summary if any, followed by the events that report its calls.
    pub rows: &'a Rows,
    /// The encoded compaction.
    pub info: &'a [u8],
    /// The cost of its model calls.
    pub cost: &'a Cost,
}

/// The cost of a compaction's model calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cost {
    /// The model that was called.
    pub model: String,
    /// The usage of each call, including failed ones. `None` if not known.
    pub calls: Vec<Option<Usage>>,
}

impl Cost {
    /// The totals over all calls.
    pub fn totals(&self) -> UsageTotals {
        let calls = self.calls.iter();
        calls.fold(UsageTotals::default(), |sum, usage| sum.plus(usage.as_ref()))
    }
}

/// A change of a compaction's row.
#[derive(Debug, Clone, PartialEq)]
pub enum CompactionChange<'a> {
    Begins {
        compaction: &'a CompactionId,
        /// The encoded compaction.
        info: &'a [u8],
        /// Duration of its first lease.
        lease: Duration,
    },
    Fails {
        compaction: CompactionId,
        /// The encoded compaction. `None` leaves the stored one unchanged.
        info: Option<&'a [u8]>,
    },
    Applies {
        compaction: CompactionId,
        /// The compaction that was active before it.
        predecessor: Option<CompactionId>,
        replacement: Replacement<'a>,
    },
    Reverts {
        compaction: CompactionId,
        /// The seq of the event.
        at: Seq,
    },
}

impl<'a> Replacement<'a> {
    /// The summary. Returns `None` if messages are left out without one.
    pub fn summary(&self) -> Option<&'a MessageId> {
        let mut messages = self.rows.messages.iter();
        messages.next().map(|placed| &placed.message.id)
    }
}
