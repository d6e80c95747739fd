//! The two row locks that transactions of a session meet on.

use super::{
    pipeline::{Param, Query},
    rows::Key,
};

/// Takes the gate between enqueue and the end of a turn.
pub(super) const GATE: &str = "-- store::turn::gate
    select 1 from sessions where tenant_id = $1 and session_id = $2 for update";

/// Locks the hot row, so that the next statement sees everything that was committed under the lock.
pub(super) const LOCK_RUN: &str = "-- store::turn::lock_run
    select 1 from session_run where tenant_id = $1 and session_id = $2 for no key update";

/// The first statement of every transaction that decides from other rows of the session.
pub(super) fn lock_run(key: &Key) -> Query<'_> {
    Query::new(LOCK_RUN, vec![&key.tenant as Param<'_>, &key.session])
}
