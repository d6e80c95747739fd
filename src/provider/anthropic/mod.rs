//! Anthropic Messages, and what other services speak of it. What sets the generations of models
//! apart is a table in [`family`].

mod block;
mod cache;
pub mod decode;
mod encode;
mod family;
pub(in crate::provider) mod history;
mod hosted;
pub(in crate::provider) mod import;
mod media;
mod messages;
mod options;
mod rules;
mod service;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

pub use family::ReasoningBack;
pub(super) use family::binds_prefix;
pub(super) use service::request;
pub use service::{Anthropic, PromptCache};

/// Under this name the settings and the metadata of this kind of provider stand.
const KIND: &str = "anthropic";
