//! The turn engine: admits turns, runs them, takes answers and messages, and keeps the context
//! inside the window.
//!
//! A turn is admitted in one statement that also grants the lease ([`run::execute`]); then it is a
//! supervised task that reads what is committed, asks [`run::decide`] what to do, and does it
//! ([`run`]). When tools are open it ends: the replica that takes the last result
//! ([`tools::submit`]), cancels the turn ([`run::cancel`]) or finds it overdue
//! ([`lease::takeover`]) becomes its next owner. No state changes in a request's future: what a
//! caller asks for runs to its end also when the caller has left.

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
pub use settings::{DEFAULT_POLICY, Retention, Rules, UploadBounds};
