//! Messages that are queued while a turn runs, and the turns that they start.

mod backlog;
pub mod enqueue;
pub mod expire;
pub mod following;
