//! The turn engine: admits turns, runs them, accepts tool results and messages, and keeps the
//! context inside the model's window.
//!
//! A turn is admitted in one statement that also grants the lease ([`run::execute`]). It then runs
//! as a supervised task that reads the committed state, calls [`run::decide`] for the next action,
//! and performs it ([`run`]). The task ends when tool calls are open. The next owner of the turn is
//! the replica that stores the last result ([`tools::submit`]), cancels the turn ([`run::cancel`])
//! or finds it overdue ([`lease::takeover`]). No state changes in a request's future: a command
//! runs to completion even if the caller disconnects.

pub mod context;
mod engine;
pub mod error;
pub mod lease;
pub mod live;
mod optimistic;
pub mod queue;
pub mod run;
pub mod session;
mod settings;
pub mod tools;

pub use engine::Engine;
pub use error::Error;
pub use live::hub::Hub;
pub use settings::{DEFAULT_POLICY, Rules};
