//! contextd.
pub mod context;
pub mod model;
pub mod pb;
pub mod provider;
