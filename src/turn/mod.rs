//! The turn engine: admits turns, runs them, accepts tool results and messages, and keeps the
//! context inside the model's window.
//!
//! A turn is admitted in one statement that also grants the lease ([`run::execute`]). It then runs
//! as a supervised task that reads the committed state, calls [`run::decide`] for the next action,
//! and performs it ([`run`]). The task ends when tool calls are open. The next owner of the turn is
//! the replica that stores the last result ([`tools::submit`]), cancels the turn ([`run::cancel`])
//! or finds it overdue ([`replica::takeover`]). No state changes in a request's future: a command
//! runs to completion even if the caller disconnects.
//!
//! The modules are layers. They are declared from top to bottom, and each imports only modules
//! below it (`tests/it/tidy/layers.rs`).

pub mod replica;

pub mod host;
pub mod tools;

pub mod run;

pub mod queue;
pub mod session;

mod opening;

pub mod context;

mod idempotency;
mod readers;

mod engine;

mod calibrations;
pub mod lease;
pub mod live;

mod optimistic;
mod settings;

pub mod error;
pub mod retry;

pub use engine::Engine;
pub use error::Error;
pub use live::hub::Hub;
pub use settings::{DEFAULT_POLICY, Rules};
