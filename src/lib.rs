//! contextd.
pub mod pb;
