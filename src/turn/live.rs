//! Streaming: partial text and notifications, to readers here and to other replicas.

mod attendance;
mod followed;
pub mod hub;
mod listen;
pub mod share;
pub(in crate::turn) mod sharing;
pub mod wakeups;
