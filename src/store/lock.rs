//! The row lock that transactions of a session meet on which decide from other rows.

use super::{
    pipeline::{Param, Query},
    rows::Key,
};

/// Locks the hot row, so that the next statement sees everything that was committed under the lock.
pub(super) const LOCK_RUN: &str = "-- store::turn::lock_run
    select 1 from session_run where tenant_id = $1 and session_id = $2 for no key update";

/// The first statement of every transaction that decides from other rows of the session.
pub(super) fn lock_run(key: &Key) -> Query<'_> {
    Query::new(LOCK_RUN, vec![&key.tenant as Param<'_>, &key.session])
}
