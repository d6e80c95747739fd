//! contextd.
pub mod pb;
pub mod postgres;
