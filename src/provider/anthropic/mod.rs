//! Anthropic Messages, and services compatible with it. The differences between model generations
//! are a table in [`family`].

mod block;
mod cache;
pub mod decode;
mod encode;
mod family;
pub(crate) mod history;
mod hosted;
pub(crate) mod import;
mod media;
mod messages;
mod options;
mod parts;
mod rules;
mod service;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

pub(super) use family::binds_prefix;
pub use service::Anthropic;
pub(super) use service::request;

/// Key of this kind of provider in settings and metadata.
const KIND: &str = "anthropic";
