//! Chat Completions, as defined by OpenAI and implemented by many other services. The differences
//! between services are a table in [`dialect`].

mod bound;
mod calls;
mod citations;
pub mod decode;
pub mod dialect;
pub mod encode;
pub mod encode_options;
pub(crate) mod history;
pub(crate) mod import;
mod media;
mod messages;
pub(super) mod options;
mod order;
mod reasoning_details;
pub(super) mod rules;
mod service;
mod token_count;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

pub use service::OpenAi;
pub(super) use service::request;

/// Key of this kind of provider in settings and metadata.
const KIND: &str = "openai";
