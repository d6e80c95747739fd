//! The rows of compactions that a change writes.

use std::time::Duration;

use super::{counters::Shift, rows::Rows};
use crate::model::{CompactionId, MessageId, Seq, Usage, UsageTotals};

/// A compaction that is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its id.
    pub id: CompactionId,
    /// The version of the context that it is made from. Messages that are added behind it raise this version as well
    /// as the session's.
    pub context_version: i64,
    /// The replica that made it let its lease run out.
    pub lease_is_over: bool,
}

/// What a compaction puts in the place of messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replacement<'a> {
    /// The seq of the first message that it stands for.
    pub from: Seq,
    /// The seq of the last one.
    pub to: Seq,
    /// Messages in between that stay, beside pinned ones.
    pub kept: &'a [Seq],
    /// Pinned messages that are not among `kept` are left out too.
    pub hides_pinned: bool,
    /// The change of the counters, the summary included.
    pub shift: Shift,
    /// Its event first, with the summary if there is one, then how its calls are reported.
    pub rows: &'a Rows,
    /// The encoded compaction.
    pub info: &'a [u8],
    /// What it cost.
    pub cost: &'a Cost,
}

/// What the model calls of a compaction cost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cost {
    /// The model that was called.
    pub model: String,
    /// The usage of each call, also of those that failed. `None`: it is not known.
    pub calls: Vec<Option<Usage>>,
}

impl Cost {
    /// All calls together.
    pub fn totals(&self) -> UsageTotals {
        let calls = self.calls.iter();
        calls.fold(UsageTotals::default(), |sum, usage| {
            sum.plus(usage.as_ref())
        })
    }
}

/// A change of a compaction's row.
#[derive(Debug, Clone, PartialEq)]
pub enum CompactionChange<'a> {
    /// A compaction begins.
    Begins {
        /// Which.
        compaction: &'a CompactionId,
        /// The encoded compaction.
        info: &'a [u8],
        /// How long its first lease lasts.
        lease: Duration,
    },
    /// It has failed.
    Fails {
        /// Which.
        compaction: CompactionId,
        /// The encoded compaction. `None`: the stored one stays.
        info: Option<&'a [u8]>,
    },
    /// It takes effect.
    Applies {
        /// Which.
        compaction: CompactionId,
        /// The one that was in force before it.
        predecessor: Option<CompactionId>,
        /// What it puts in the place of which messages.
        replacement: Replacement<'a>,
    },
    /// It is reverted.
    Reverts {
        /// Which.
        compaction: CompactionId,
        /// The seq of the event.
        at: Seq,
    },
}

impl<'a> Replacement<'a> {
    /// The summary. `None`: messages are left out without one.
    pub fn summary(&self) -> Option<&'a MessageId> {
        let mut messages = self.rows.messages.iter();
        messages.next().map(|placed| &placed.message.id)
    }
}
