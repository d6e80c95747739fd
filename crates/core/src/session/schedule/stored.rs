//! A session as stored in a database.

use std::{collections::BTreeSet, time::Duration};

use super::super::{Session, answers::OpenCall, compaction::AppliedCompaction};
use crate::model::MessageId;

/// Duration of a lease, in seconds.
pub(super) const LEASE: i64 = 15;
/// Maximum number of queued messages.
pub(super) const MAX_QUEUED: usize = 3;

/// The session, the stored state that is not in its row, and the time.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) session: Session,
    /// The open calls of the live turn.
    pub(super) open: Vec<OpenCall>,
    /// Seconds since the start.
    pub(super) now: i64,
    /// When the lease expires.
    pub(super) lease_until: i64,
    /// When the lease of the running compaction expires.
    pub(super) making_until: i64,
    /// The applied compactions, newest last.
    pub(super) in_force: Vec<AppliedCompaction>,
    /// Number of changes of the context other than additions.
    pub(super) rewritten: u64,
    /// Messages that left the queue.
    pub(super) ended: BTreeSet<MessageId>,
}

pub(super) fn lease() -> Duration {
    Duration::from_secs(LEASE.unsigned_abs())
}
