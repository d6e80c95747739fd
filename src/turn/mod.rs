//! The deed of contextd: joins thinking, memory and voice.
pub mod error;
pub use error::Error;
