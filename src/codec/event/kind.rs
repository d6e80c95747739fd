//! The kinds of events, generated from the proto's `Event.payload`, and the causes of a `turn_recovered`.

pub(crate) use crate::pb::event_kind::*;

/// The ref of a `turn_recovered`: the owner handed the turn over.
pub(crate) const HANDED_OVER: &str = "handed_over";
/// The ref of a `turn_recovered`: the owner's lease expired.
pub(crate) const LEASE_EXPIRED: &str = "lease_expired";
