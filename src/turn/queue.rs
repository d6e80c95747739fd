//! The queue of a session: messages that wait for a turn, and the plans of turns that they start.

mod backlog;
pub mod enqueue;
pub mod expire;
pub(in crate::turn) mod plan;
pub(in crate::turn) mod take;
