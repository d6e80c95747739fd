//! The state of streams in this replica's memory: open messages and their readers ([`hub`]), the
//! text that is shared with other replicas, and wake-ups.

mod followed;
pub mod hub;
pub(in crate::turn) mod sharing;
pub mod wakeups;
