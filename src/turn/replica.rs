//! What a replica does without a request: heartbeats, takeover of turns without an owner, wake-ups of
//! other replicas, and the drain.

mod attendance;
mod drain;
mod heartbeat;
mod listen;
pub mod takeover;
