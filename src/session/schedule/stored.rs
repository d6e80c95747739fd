//! A session as a database keeps it.

use std::{collections::BTreeSet, time::Duration};

use super::super::{Session, answers::OpenCall, compaction::Applied};
use crate::model::MessageId;

/// How long a lease lasts, in seconds.
pub(super) const LEASE: i64 = 15;
/// How many messages may wait.
pub(super) const MOST_WAITING: usize = 3;

/// The session, what its row does not say, and the time.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) session: Session,
    /// The calls of the live turn that are open.
    pub(super) open: Vec<OpenCall>,
    /// Seconds since the beginning.
    pub(super) now: i64,
    /// When the lease runs out.
    pub(super) lease_until: i64,
    /// When the lease of the compaction that is being made runs out.
    pub(super) making_until: i64,
    /// The compactions in force, the newest last.
    pub(super) in_force: Vec<Applied>,
    /// How often the context was changed otherwise than by what was added.
    pub(super) rewritten: u64,
    /// Messages that wait no longer.
    pub(super) ended: BTreeSet<MessageId>,
}

pub(super) fn lease() -> Duration {
    Duration::from_secs(LEASE.unsigned_abs())
}
