//! The values of `queue.status`.

pub(super) const PENDING: i16 = 0;
pub(super) const APPLIED: i16 = 1;
pub(super) const CANCELLED: i16 = 2;
pub(super) const EXPIRED: i16 = 3;
pub(super) const DROPPED: i16 = 4;
