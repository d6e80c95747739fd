//! The memory of contextd: the only SQL.
pub mod error;
pub use error::Error;
