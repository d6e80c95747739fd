//! What a change does to compactions.

use std::time::Duration;

use super::{counters::Shift, rows::Rows};
use crate::model::{CompactionId, MessageId, Seq, Usage, UsageTotals};

/// The compaction that is being made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its id.
    pub id: CompactionId,
    /// The version of the context that it is made from, moved by messages that were added behind all of it.
    pub context_version: i64,
    /// Nobody makes it any more.
    pub lease_is_over: bool,
}

/// What stands in the transcript's place from now on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replacement<'a> {
    /// The seq of the first message that it stands for.
    pub from: Seq,
    /// The seq of the last one.
    pub to: Seq,
    /// Messages in between that stay; beside those that are pinned, unless such are hidden.
    pub kept: &'a [Seq],
    /// Pinned messages that are not among `kept` are hidden too.
    pub hides_pinned: bool,
    /// What changes in the counters, the summary included.
    pub shift: Shift,
    /// Its event first, with the summary if there is one, then how its calls are reported.
    pub rows: &'a Rows,
    /// The encoded compaction.
    pub info: &'a [u8],
    /// What it cost.
    pub cost: &'a Cost,
}

/// What was spent on a compaction: by the turn that is live when it ends, if one is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cost {
    /// The model that was called.
    pub model: String,
    /// The calls, those that failed too. `None` means it is not known.
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

/// What becomes of a compaction.
#[derive(Debug, Clone, PartialEq)]
pub enum CompactionChange<'a> {
    /// It is being made.
    Begins {
        /// Which.
        compaction: &'a CompactionId,
        /// It, encoded.
        info: &'a [u8],
        /// For how long it has its lease.
        lease: Duration,
    },
    /// It is given up. The context stays as it is.
    Fails {
        /// Which.
        compaction: CompactionId,
        /// It, encoded. `None`: as it is.
        info: Option<&'a [u8]>,
    },
    /// It is in force.
    Applies {
        /// Which.
        compaction: CompactionId,
        /// The one that it builds on.
        predecessor: Option<CompactionId>,
        /// What it stands for.
        replacement: Replacement<'a>,
    },
    /// It is in force no more.
    Reverts {
        /// Which.
        compaction: CompactionId,
        /// The seq that says so.
        at: Seq,
    },
}

impl<'a> Replacement<'a> {
    /// The message that stands for what is left out. `None`: messages are only left out.
    pub fn summary(&self) -> Option<&'a MessageId> {
        let mut messages = self.rows.messages.iter();
        messages.next().map(|placed| &placed.message.id)
    }
}
